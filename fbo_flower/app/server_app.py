"""The server of the bundled Flower app: `flwr run . --stream`.

Its settings are the keys of `[tool.flwr.app.config]` in `pyproject.toml`. With the same settings,
`fbo-flower simulate` gives the same trials.
"""

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

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the algorithm and write the study; an error is logged as one line and ends the run."""
    try:
        config = AppConfig.read(context.run_config)
        algorithm, problem = config.made(), config.problem_of(config.num_agents)
        check_roles(problem, algorithm, {"allow_models_with_data": True} if algorithm.roles else None)
        directory = config.directory(context.run_id)
        with removed_if_empty(directory):
            study_directory(directory, overwrite=config.overwrite, resume=config.resume)
            log(INFO, "Results will be written to %s", directory)
            strategy = config.strategy()
            try:
                strategy.start(grid, **config.how_to_start())
            finally:
                if (study := strategy.study) is not None:
                    (run,) = study.settings["runs"]
                    problem = config.problem_of(run["num_agents"])
                    study = annotate(study, problem, engine="flower runtime")
                    study.save(directory)
                    if no_picture := draw(study, directory / PICTURE):
                        log(WARNING, "No picture: %s", no_picture)
        log(INFO, "Results are in %s", directory)
    except FBOError as error:
        log(ERROR, "%s", error)
        raise
