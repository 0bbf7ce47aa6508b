"""The files that a run of the bundled app writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import INFO, WARNING

from flwr.common.logger import log

from fbo_flower.app.config import AppConfig
from fbo_flower.reports.figures import save_with_picture
from fbo_flower.simulation.agents import check_roles
from fbo_flower.simulation.annotation import annotate
from fbo_flower.study.directory import removed_if_empty, study_directory
from fbo_flower.study.study import Study


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
            if no_picture := save_with_picture(annotated, directory):
                log(WARNING, "No picture: %s", no_picture)

    with removed_if_empty(directory):
        study_directory(directory, overwrite=config.overwrite, resume=config.resume)
        log(INFO, "Results will be written to %s", directory)
        yield save
    log(INFO, "Results are in %s", directory)
