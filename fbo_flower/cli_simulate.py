"""`fbo-flower simulate`: one problem, one or several algorithms, one study directory."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from fbo_flower.errors import ConfigError, ObjectiveError

if TYPE_CHECKING:
    from fbo_flower.simulation.summary import SummaryRow
    from fbo_flower.study import Study

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and Flower's own log.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")]

EXAMPLES = """Examples:

fbo-flower simulate --compare ts --compare random

fbo-flower simulate --problem gp-samples --agents 8 --engine inline

fbo-flower simulate --option advice=portfolio --compare "fts schedule=first-5"
"""


class Interrupted(Exception):  # noqa: N818  # not an error: someone pressed Ctrl-C
    """Says what was written until then; typer would swallow a KeyboardInterrupt."""


@dataclass(frozen=True)
class Contestant:
    """An algorithm with options, under its name in tables and pictures."""

    label: str
    algorithm: str
    options: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Contestant:
        """Read `--compare`.

        >>> Contestant.parse("fts advice=portfolio label='fts portfolio'")
        Contestant(label='fts portfolio', algorithm='fts', options={'advice': 'portfolio'})
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"--compare: {error}, got {text!r}") from error
        if not words:
            raise ConfigError("--compare: expected an algorithm and its options, got nothing")
        options = parse_options(words[1:], "--compare")
        return Contestant(str(options.pop("label", " ".join(words))), words[0], options)


def run_simulate(
    problem: Annotated[str, typer.Option(help="See `fbo-flower problems`.")] = "digits-svm",
    algorithm: Annotated[str, typer.Option(help="See `fbo-flower algorithms`.")] = "fts",
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help='A further algorithm, "NAME key=value ... label=TEXT", with the same starts, seed and '
            "budget; repeatable.",
        ),
    ] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents; default: the problem's.")] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Number of rounds; the first is the initial design. Default: 25, or until the budget of an "
            "algorithm that has one is spent.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything: the same seed, the same trials.")] = 0,
    engine: Annotated[str, typer.Option(help="flower (Flower's engine, on Ray) or inline.")] = "flower",
    option: Annotated[
        list[str] | None,
        typer.Option(help="key=value for --algorithm, the value as JSON or text; repeatable."),
    ] = None,
    problem_option: Annotated[
        list[str] | None, typer.Option(help="key=value for --problem; repeatable.")
    ] = None,
    prior_rounds: Annotated[int, typer.Option(help="Rounds for which agents tune alone before.")] = 0,
    prior_algorithm: Annotated[str, typer.Option(help="How they do it.")] = "ts",
    fraction: Annotated[float, typer.Option(help="Share of agents that get a task in a round.")] = 1.0,
    label: Annotated[
        str | None, typer.Option(help="Name of --algorithm in tables and pictures; default: its own.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the study; default: runs/PROBLEM-ALGORITHMS-seedSEED.")
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run algorithms on a bundled problem with simulated agents.

    Prints a table and writes study.json, trials.csv, rounds.csv, best.json and report.png.

    After Ctrl-C they hold what was done until then.
    """
    from fbo_flower.algorithms import make_algorithm
    from fbo_flower.algorithms.protocol import check_number
    from fbo_flower.cli_progress import Display
    from fbo_flower.simulation.problems import make_problem
    from fbo_flower.simulation.runner import ENGINES, prior_study, simulate, writable_directory

    contestants = [
        Contestant(label or algorithm, algorithm, parse_options(option or [], "--option")),
        *map(Contestant.parse, compare or []),
    ]
    _check_labels(contestants)
    # everything that can be wrong is looked at before the first evaluation
    if rounds is not None:
        check_number("rounds", rounds, 1, integer=True)
    check_number("prior_rounds", prior_rounds, 0, integer=True)
    check_number("fraction", fraction, 1e-9, 1.0)
    if engine not in ENGINES:
        raise ConfigError(f"engine: expected one of {', '.join(ENGINES)}, got {engine!r}")
    chosen = make_problem(problem, agents, seed, parse_options(problem_option or [], "--problem-option"))
    chosen.check_data()
    num_rounds: dict[str, int | None] = {}
    for contestant in contestants:
        algorithm_made = make_algorithm(contestant.algorithm, contestant.options)
        algorithm_made.check(chosen.space)
        num_rounds[contestant.label] = rounds or (None if algorithm_made.finishes else 25)
    make_algorithm(prior_algorithm, {})
    directory = writable_directory(out or default_directory(problem, contestants, seed))

    record = _Record(directory)
    with Display(quiet=quiet, debug=debug) as display:
        try:
            prior = None
            if prior_rounds:
                display.announce(f"prior {prior_algorithm}", prior_rounds)
                prior = prior_study(chosen, prior_algorithm, prior_rounds, seed, engine)
            for contestant in contestants:
                display.announce(contestant.label, num_rounds[contestant.label])
                simulate(
                    chosen,
                    contestant.algorithm,
                    num_rounds=num_rounds[contestant.label],
                    seed=seed,
                    engine=engine,
                    options=contestant.options,
                    label=contestant.label,
                    fraction=fraction,
                    prior=prior,
                    on_round=display.advance,
                    on_study=record.add,
                )
        except KeyboardInterrupt as error:
            raise Interrupted(record.close()) from error
        except Exception as error:
            error.add_note(record.close())
            raise
    no_picture = record.draw()
    if not quiet:
        from fbo_flower.simulation.summary import summarise

        print_table(summarise(record.study))
        if no_picture:
            typer.echo(f"No picture: {no_picture}")
        typer.echo(f"Results: {directory}")
    _check_success(record.study)


class _Record:
    """The study so far, saved after every algorithm, so that nothing that was done is lost."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.studies: list[Study] = []

    @property
    def study(self) -> Study:
        from fbo_flower.study import Study

        return Study.merge(self.studies, name=self.directory.name)

    def add(self, study: Study) -> None:
        self.studies.append(study)
        self.study.save(self.directory)

    def draw(self) -> str:
        from fbo_flower.simulation.report import PICTURE, draw

        return draw(self.study, self.directory / PICTURE)

    def close(self) -> str:
        """Draw what there is and say where it is."""
        if not self.studies:
            return "nothing was written"
        self.draw()
        parts = [
            f"{name} {_plural(len(set(self.study.rounds.where(algorithm=name)['round'].tolist())), 'round')}"
            for name in self.study.algorithms
        ]
        return f"{self.directory} holds what was done: {', '.join(parts)}"


def parse_options(pairs: Iterable[str], source: str) -> dict[str, Any]:
    """Read `key=value` pairs; a value is JSON, and text if it is not.

    >>> parse_options(["advice=portfolio", "num-features=50"], "--option")
    {'advice': 'portfolio', 'num_features': 50}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{source}: expected key=value, got {pair!r}")
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = value
        options[key.strip().replace("-", "_")] = parsed
    return options


def default_directory(problem: str, contestants: Sequence[Contestant], seed: int) -> Path:
    """Return `runs/PROBLEM-ALGORITHMS-seedSEED`."""
    names = "-".join(contestant.label for contestant in contestants)
    slug = re.sub(r"[^a-z0-9.]+", "-", f"{problem}-{names}".lower()).strip("-.")
    return Path("runs") / f"{slug[:100]}-seed{seed}"


def print_table(rows: Sequence[SummaryRow], console: Console | None = None) -> None:
    """Print the comparison, in several parts if it is wider than the terminal; a file has no width."""
    from fbo_flower.simulation.summary import render_table

    console, unbounded = console or Console(highlight=False), Console(width=10_000)
    if not console.is_terminal:
        console.width = unbounded.width
    start = 0
    while start < len(rows):
        stop = len(rows)
        while stop > start + 1 and unbounded.measure(render_table(rows[start:stop])).maximum > console.width:
            stop -= 1
        console.print(render_table(rows[start:stop]))
        start = stop


def _check_labels(contestants: Sequence[Contestant]) -> None:
    labels = [contestant.label for contestant in contestants]
    twice = sorted({name for name in labels if labels.count(name) > 1})
    if twice:
        raise ConfigError(
            f"label: expected a different one for every algorithm, got {', '.join(twice)} twice; "
            "name them with --label and label=..."
        )


def _check_success(study: Study) -> None:
    """Raise unless every algorithm had an evaluation that succeeded."""
    for name in study.algorithms:
        rows = study.trials.where(algorithm=name)
        if not np.isfinite(rows["value"]).any():
            reasons = [f", the first with: {reason}" for reason in rows["failure"].tolist() if reason]
            raise ObjectiveError(f"{name}: all of {len(rows)} evaluations failed{(*reasons, '')[0]}")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
