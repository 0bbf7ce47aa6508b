"""The server of the bundled Flower app: `flwr run . --stream`.

Its settings are the keys of `[tool.flwr.app.config]` in `pyproject.toml`. With the same settings,
`fbo-flower simulate` gives the same trials.
"""

from __future__ import annotations

from logging import ERROR, INFO, WARNING
from pathlib import Path

from flwr.app import Context
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from fbo_flower.algorithms import make_algorithm
from fbo_flower.app.config import AppConfig
from fbo_flower.errors import FBOError
from fbo_flower.reports.report import save_with_picture
from fbo_flower.simulation.agents import check_roles
from fbo_flower.simulation.annotate import annotate
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import STRATEGIES
from fbo_flower.study.directory import removed_if_empty, study_directory
from fbo_flower.trackers import OptunaTracker

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the algorithm and write the study; an error is logged as one line and ends the run."""
    try:
        config = AppConfig.read(context.run_config)
        algorithm = make_algorithm(config.algorithm, config.options)
        problem = make_problem(config.problem, config.num_agents, config.seed, config.problem_options)
        check_roles(problem, algorithm, {"allow_models_with_data": True} if algorithm.roles else None)
        directory = config.directory(context.run_id)
        with removed_if_empty(directory):
            study_directory(directory, overwrite=config.overwrite, resume=config.resume)
            log(INFO, "Results will be written to %s", directory)
            tune(grid, config, directory)
        log(INFO, "Results are in %s", directory)
    except FBOError as error:
        log(ERROR, "%s", error)
        raise


def tune(grid: Grid, config: AppConfig, directory: Path) -> None:
    """Run the algorithm and write the study, also when the run fails."""
    strategy = STRATEGIES[config.algorithm](
        num_agents=config.num_agents,
        seed=config.seed,
        fraction=config.fraction,
        wait_seconds=config.wait_seconds,
        round_timeout=config.round_timeout,
        quorum=config.quorum,
        label=config.label,
        callbacks=[] if config.optuna is None else [OptunaTracker(config.optuna)],
        **config.options,
    )
    try:
        strategy.start(
            grid,
            num_rounds=config.num_rounds,
            journal=config.journal,
            resume=config.resume,
            mode=config.mode,
            max_staleness=config.max_staleness,
        )
    finally:
        if strategy.study is not None:
            (run,) = strategy.study.settings["runs"]
            problem = make_problem(config.problem, run["num_agents"], config.seed, config.problem_options)
            study = annotate(strategy.study, problem, engine="flower runtime")
            no_picture = save_with_picture(study, directory)
            if no_picture:
                log(WARNING, "No picture: %s", no_picture)
