"""`Study.to_optuna`: the runs of a study in an Optuna storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fbo_flower.errors import ConfigError
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.optuna_storage import Storage, open_storage, quiet_optuna
from fbo_flower.study.optuna_writer import OptunaWriter
from fbo_flower.study.table import Table
from fbo_flower.study.trial import trials_of


@dataclass(frozen=True)
class Run:
    """One algorithm's run of a study.

    Parameters
    ----------
    label : the run's name in the study's tables
    settings : of the run, as in `Study.settings`; empty if they were not recorded
    minimizes : whether smaller values are better
    trials, times : the run's rows of the study's tables
    """

    label: str
    settings: Mapping[str, Any]
    minimizes: bool
    trials: Table
    times: Table


def to_optuna(
    runs: Sequence[Run], storage: Storage, one_study: bool, space: SearchSpace | None, created: str
) -> list[str]:
    """Write the trials of runs into an Optuna storage; see `Study.to_optuna`.

    Parameters
    ----------
    created : date of the study; names the runs of a study that was made by hand
    """
    spaces = [space or _space_of(run) for run in runs]
    names: list[str] = []
    with quiet_optuna():
        try:
            opened = open_storage(storage)
            for run, own in zip(runs, spaces, strict=True):
                writer = OptunaWriter(
                    opened, _run_id(run, created), run.label, own, run.minimizes, one_study, _attributes(run)
                )
                writer.write_all(trials_of(run.trials, run.times))
                names += writer.names
        except ConfigError:
            raise
        except Exception as error:  # of any database driver
            raise ConfigError(f"{storage}: cannot be written ({_short(error)})") from error
    return names


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _space_of(run: Run) -> SearchSpace:
    text = run.settings.get("space")
    if not isinstance(text, str):
        raise ConfigError(
            f"to_optuna: expected the search space of {run.label} in the study, found none; pass space=..."
        )
    return SearchSpace.from_json(text)


def _run_id(run: Run, created: str) -> str:
    """Return the id of a run; of a study that was made by hand its label and date."""
    known = run.settings.get("study")
    return known if isinstance(known, str) else f"{run.label} {created}".strip()


def _attributes(run: Run) -> dict[str, Any]:
    names = ("algorithm", "options", "problem", "metric", "seed")
    return {name: run.settings[name] for name in names if name in run.settings}
