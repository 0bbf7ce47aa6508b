"""`Study.to_optuna` and `Study.from_optuna`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fbo_flower.errors import ConfigError
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.optuna_reader import read_studies
from fbo_flower.study.optuna_storage import Storage, open_storage, quiet_optuna
from fbo_flower.study.optuna_writer import OptunaWriter
from fbo_flower.study.schema import ROUNDS
from fbo_flower.study.table import Table
from fbo_flower.study.trial import trials_of

if TYPE_CHECKING:
    from fbo_flower.study.study import Study


def to_optuna(study: Study, storage: Storage, one_study: bool, space: SearchSpace | None) -> list[str]:
    """Write the trials of a study into an Optuna storage; see `Study.to_optuna`."""
    spaces = {label: space or _space_of(study, label) for label in study.algorithms}
    names: list[str] = []
    with quiet_optuna():
        try:
            opened = open_storage(storage)
            for label, own in spaces.items():
                writer = OptunaWriter(
                    opened, _run_id(study, label), label, own, study.minimizes(label), one_study,
                    _attributes(study, label),
                )  # fmt: skip
                writer.write_all(
                    trials_of(study.trials.where(algorithm=label), study.times.where(algorithm=label))
                )
                names += writer.names
        except ConfigError:
            raise
        except Exception as error:  # of any database driver
            raise ConfigError(f"{storage}: cannot be written ({_short(error)})") from error
    return names


def from_optuna(
    make: type[Study], storage: Storage, name: str | None, agent: str | None, space: SearchSpace | None
) -> Study:
    """Return the finished trials of Optuna studies; see `Study.from_optuna`."""
    settings, trials, times = read_studies(storage, name, agent, space)
    return make(settings, trials, Table.from_rows([], ROUNDS), times=times)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _space_of(study: Study, label: str) -> SearchSpace:
    text = study.run(label).get("space")
    if not isinstance(text, str):
        raise ConfigError(
            f"to_optuna: expected the search space of {label} in the study, found none; pass space=..."
        )
    return SearchSpace.from_json(text)


def _run_id(study: Study, label: str) -> str:
    """Return the id of a run; of a study that was made by hand its label and date."""
    known = study.run(label).get("study")
    return known if isinstance(known, str) else f"{label} {study.settings.get('created', '')}".strip()


def _attributes(study: Study, label: str) -> dict[str, Any]:
    run = study.run(label)
    return {name: run[name] for name in ("algorithm", "options", "problem", "metric", "seed") if name in run}
