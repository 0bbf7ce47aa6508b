"""The server of the bundled Flower app: `flwr run . --stream`.

Its settings are the keys of `[tool.flwr.app.config]` in `pyproject.toml`. With the same settings,
`fbo-flower simulate` gives the same trials.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import ERROR, INFO, WARNING

from flwr.app import Context
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from fbo_flower.app.config import AppConfig
from fbo_flower.errors import FBOError
from fbo_flower.reports.figures import PICTURE, draw
from fbo_flower.simulation.agents import check_roles
from fbo_flower.simulation.runner import annotate
from fbo_flower.study.directory import removed_if_empty, study_directory
from fbo_flower.study.study import Study

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the algorithm and write the study; an error is logged as one line and ends the run."""
    try:
        config = AppConfig.read(context.run_config)
        with results_of(config, context.run_id) as save:
            strategy = config.strategy()
            try:
                strategy.start(grid, **config.how_to_start())
            finally:
                save(strategy.study)
    except FBOError as error:
        log(ERROR, "%s", error)
        raise


@contextmanager
def results_of(config: AppConfig, run_id: int) -> Iterator[Callable[[Study | None], None]]:
    """Check the settings and open the directory of the results; yield a function that saves a study there.

    Raises
    ------
    ConfigError
        If the problem does not suit the algorithm, or the directory holds a study.
    """
    algorithm, problem = config.made(), config.problem_of(config.num_agents)
    check_roles(problem, algorithm, {"allow_models_with_data": True} if algorithm.roles else None)
    directory = config.directory(run_id)

    def save(study: Study | None) -> None:
        if study is not None:
            (run,) = study.settings["runs"]
            annotated = annotate(study, config.problem_of(run["num_agents"]), engine="flower runtime")
            annotated.save(directory)
            if no_picture := draw(annotated, directory / PICTURE):
                log(WARNING, "No picture: %s", no_picture)

    with removed_if_empty(directory):
        study_directory(directory, overwrite=config.overwrite, resume=config.resume)
        log(INFO, "Results will be written to %s", directory)
        yield save
    log(INFO, "Results are in %s", directory)
