"""Run a plan of `fbo-flower simulate`: its algorithms one after the other, each saved when it has ended."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fbo_flower.cli.common import Interrupted, plural
from fbo_flower.cli.plan import JOURNALS, SimulationPlan, point_latest_at, slug
from fbo_flower.cli.report import print_selections, print_table
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.settings import Start
from fbo_flower.study.directory import Keep
from fbo_flower.trackers.callback import Callback, StudyInfo

if TYPE_CHECKING:
    from fbo_flower.study.study import Study


def run_plan(
    plan: SimulationPlan,
    out: Path | None,
    address: str | None,
    journal: bool,
    resume: bool,
    overwrite: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Run the algorithms of a plan, write their studies, and print the results.

    Parameters
    ----------
    out : directory for the results; None: the plan's own, and `runs/latest` points at it
    address : of a Ray cluster; None: start one
    journal, resume : whether to keep journals there, and whether to continue those
    overwrite : whether a study that is there may be replaced
    """
    from fbo_flower.algorithms import make_algorithm
    from fbo_flower.cli.progress import Display
    from fbo_flower.simulation.ray_workers import ray_running
    from fbo_flower.simulation.runner import prior_study, simulate
    from fbo_flower.study.directory import removed_if_empty, study_directory
    from fbo_flower.trackers import OptunaTracker

    problem, num_rounds = plan.check()  # finds every wrong setting before the first evaluation
    directory = out or plan.directory()
    record = _Record(directory, journal, out is None)
    journals = directory / JOURNALS if journal else None
    with ExitStack() as stack:
        stack.enter_context(removed_if_empty(directory))
        study_directory(directory, overwrite=overwrite, resume=resume)
        if journals is not None and not resume:
            if journals.exists():
                raise ConfigError(
                    f"--journal: {directory} already holds journals; continue them with --resume {directory}"
                )
            plan.save(directory)
        display = stack.enter_context(Display(quiet=quiet, debug=debug))
        try:
            if plan.engine == "ray":
                stack.enter_context(ray_running(address))
            observations, start, agents = None, plan.start, plan.agents
            if start.prior_rounds:
                display.announce(f"prior {start.prior_algorithm}", start.prior_rounds)
                earlier = Keep(journals=None if journals is None else journals / "prior", resume=resume)
                settings = start.prior_algorithm, start.prior_rounds, plan.seed, plan.engine
                observations = prior_study(problem, *settings, earlier)
            sites = {"models": str(directory / "models"), **(agents.site_options or {})}
            for number, contestant in enumerate(plan.contestants, 1):
                display.announce(contestant.label, num_rounds[contestant.label])
                own = None if journals is None else journals / f"{number}-{slug(contestant.label)}"
                simulate(
                    problem,
                    agents=replace(agents, site_options=sites),
                    algorithm=make_algorithm(contestant.algorithm, contestant.options),
                    num_rounds=num_rounds[contestant.label],
                    seed=plan.seed,
                    engine=plan.engine,
                    rounds=plan.rounds,
                    start=Start(observations=observations, warm_start=plan.warm(contestant)),
                    keep=Keep(journals=own, resume=resume, messages=directory, label=contestant.label),
                    callbacks=[
                        record,
                        display.advance,
                        *([] if plan.optuna is None else [OptunaTracker(plan.optuna)]),
                    ],
                )
        except KeyboardInterrupt as error:
            raise Interrupted(record.close()) from error
        except Exception as error:
            error.add_note(record.close())
            raise
    no_picture = record.draw()
    if not quiet:
        _print_results(plan, record.study, directory, no_picture)


def _print_results(plan: SimulationPlan, study: Study, directory: Path, no_picture: str) -> None:
    from fbo_flower.reports.summary import summarise

    print_table(summarise(study))
    print_selections(study)
    if plan.function is None:
        typer.echo(
            "Simulated agents disclosed their trials, because nobody owns the data of a bundled problem."
        )
    if no_picture:
        typer.echo(f"No picture: {no_picture}")
    typer.echo(f"Results: {directory}")
    if plan.optuna is not None:
        typer.echo(f"Look at the trials: optuna-dashboard {plan.optuna}")
    if plan.rounds.clock is not None:
        typer.echo(f"Values against time: fbo-flower report {directory} --x time")


class _Record(Callback):
    """The studies of the algorithms that have ended, saved after each of them so that none is lost."""

    def __init__(self, directory: Path, journal: bool, is_default: bool) -> None:
        self.directory = directory
        self.journal = journal
        self.is_default = is_default
        self.studies: list[Study] = []

    @property
    def study(self) -> Study:
        from fbo_flower.study.study import Study

        return Study.merge(self.studies, name=self.directory.name)

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        self.studies.append(result)
        self.study.save(self.directory)
        if self.is_default:
            point_latest_at(self.directory)

    def draw(self) -> str:
        from fbo_flower.reports.figures import PICTURE, draw

        return draw(self.study, self.directory / PICTURE)

    def close(self) -> str:
        """Draw the results so far and return a sentence that says where they are."""
        if not self.studies:
            return "nothing was written"
        self.draw()
        parts = [
            f"{name} {plural(len(set(self.study.rounds.where(algorithm=name)['round'].tolist())), 'round')}"
            for name in self.study.algorithms
        ]
        text = f"{self.directory} holds the results so far: {', '.join(parts)}"
        return f"{text}; continue with --resume {self.directory}" if self.journal else text
