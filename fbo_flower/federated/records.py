"""The values that a tuner of a federation keeps, and the result that it returns.

A *trial* is one run of the user's Flower strategy with one configuration. A *client-round* is one training
message: one client that trains for one round. It is the unit of cost, because clients' work is what costs.

On disk the result is a directory of plain files::

    federation.json   settings, the best trial, and the kinds of the tables' columns
    trials.csv        one row per trial: config.*, rounds, value, state, failure
    curves.csv        one row per trial and round: value, s.d., clients asked, trained and evaluated
    best_model.npz    the arrays of the best trial's model
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from fbo_flower.algorithms.records import Array
from fbo_flower.errors import ConfigError
from fbo_flower.federated.state import from_record, to_record
from fbo_flower.lazy import required
from fbo_flower.space.copies import copies
from fbo_flower.space.space import Config
from fbo_flower.storage.files import atomic_file, read_arrays, writable_directory
from fbo_flower.storage.paths import path_of, read_text
from fbo_flower.study.table import Kind, Table


@copies("metrics", "blocks")
@dataclass(frozen=True)
class TrialRound:
    """What one round of a trial brought.

    Attributes
    ----------
    round : round of the trial, from 1
    value : the metric, larger is better (a loss has its sign changed); NaN if it could not be measured
    variance : of `value`, because only some clients evaluated; 0 if unknown, or if all clients did
    asked, trained, evaluated : clients that were asked to train, whose updates were used, whose evaluations
        were used
    metrics : all aggregated metrics that are single numbers, by name, as the strategy returned them
    checkpoint : digest of the model and the strategy's state after this round
    blocks : blocks of clients that the trial had in this round
    outcome : digest of model and value, equal only for exactly equal ones
    """

    round: int
    value: float
    variance: float = 0.0
    asked: int = 0
    trained: int = 0
    evaluated: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: str = ""
    blocks: Sequence[int] = ()
    outcome: str = ""


@copies("config", "point")
@dataclass(frozen=True)
class FederatedTrial:
    """One configuration, and how far its run has come.

    Attributes
    ----------
    number : from 0
    config, point : the configuration, and its point `(D,)` in the unit cube
    bracket : the bracket of Hyperband to which it belongs; 0 elsewhere
    rounds : its rounds so far
    target : the round until which it may run now; larger than its last round while it runs
    failure : why it ended early; "" if it did not
    judged : value of its last model on all clients, if it was a finalist; None if it was not
    parent, born, origin : the trial whose model it goes on from, the round of that model, and its
        checkpoint's digest; -1, 0, "": it has begun with the first model
    """

    number: int
    config: Config
    point: Array
    bracket: int = 0
    rounds: tuple[TrialRound, ...] = ()
    target: int = 0
    failure: str = ""
    judged: float | None = None
    parent: int = -1
    born: int = 0
    origin: str = ""

    @property
    def round(self) -> int:
        """Number of rounds that its model has had."""
        return self.born + len(self.rounds)

    @property
    def value(self) -> float:
        """Value after its last round; NaN before the first one and after a failure."""
        return self.rounds[-1].value if self.rounds and not self.failure else math.nan

    @property
    def has_value(self) -> bool:
        """Return whether the trial has done a round and has not failed."""
        return bool(self.rounds) and not self.failure

    @property
    def runs(self) -> bool:
        """Return whether the trial has rounds to do now."""
        return self.round < self.target and not self.failure

    @property
    def client_rounds(self) -> int:
        """Client-rounds that it has cost."""
        return sum(done.asked for done in self.rounds)

    @property
    def checkpoint(self) -> str:
        """Digest of the checkpoint that it goes on from; "": it has not begun."""
        return self.rounds[-1].checkpoint if self.rounds else self.origin

    def waits_at(self, rung: int) -> bool:
        """Return whether the trial has come to a rung and waits there to be promoted."""
        return self.round == self.target == rung and not self.failure

    def value_at(self, server_round: int) -> float:
        """Return the value after a round that the trial has done; `-inf` if it failed before that."""
        if not self.born < server_round <= self.round:
            return -math.inf
        return self.rounds[server_round - self.born - 1].value

    def learn(self, done: TrialRound) -> FederatedTrial:
        """Return the trial with one more round."""
        return replace(self, rounds=(*self.rounds, done), judged=None)


TRIALS: dict[str, Kind] = {
    "trial": "integer", "bracket": "integer", "rounds": "integer", "value": "real", "on_all_clients": "real",
    "client_rounds": "integer", "state": "text", "failure": "text", "parent": "integer",
    "config": "config",
}  # fmt: skip
CURVES: dict[str, Kind] = {
    "trial": "integer", "round": "integer", "value": "real", "stddev": "real", "asked": "integer",
    "trained": "integer", "evaluated": "integer",
}  # fmt: skip
MARK = "federation.json"  # written last, so a directory with it is complete


@copies("settings", "best_arrays")
@dataclass(frozen=True)
class TunedFederation:
    """The result of `tune_federation`.

    Attributes
    ----------
    settings : plain JSON: metric, minimize, rounds, schedule, proposals, budget, spent client-rounds, seed,
        without_effect
    trials : one row per trial; `state` is "finished", "stopped", "running" or "failed"; `parent` is the trial
        whose model it has taken over, -1: none
    curves : one row per trial and round, in the metric's own sign
    best_trial : number of the best trial
    best_arrays : model of the best trial after its last round
    """

    settings: Mapping[str, Any]
    trials: Table
    curves: Table
    best_trial: int
    best_arrays: ArrayRecord

    @property
    def best_config(self) -> Config:
        """The configuration of the best trial."""
        config: Config = self._best["config"]
        return config

    @property
    def best_value(self) -> float:
        """Its value after its last round; on all clients, if it was a finalist."""
        judged = float(self._best["on_all_clients"])
        return float(self._best["value"]) if math.isnan(judged) else judged

    @property
    def client_rounds(self) -> int:
        """Client-rounds that were spent."""
        return int(self.settings["spent"])

    @property
    def without_effect(self) -> list[str]:
        """Parameters that had no effect on any result, as far as can be seen; see `docs/tune-federation.md`.

        Their best values mean nothing.
        """
        return list(self.settings.get("without_effect", []))

    @property
    def _best(self) -> dict[str, Any]:
        return next(iter(self.trials.where(trial=self.best_trial)))

    def curve(self, trial: int) -> list[float]:
        """Return a trial's value after each of its rounds."""
        values: list[float] = self.curves.where(trial=trial)["value"].tolist()
        return values

    def to_dataframe(self) -> Any:  # pandas is optional and has no types of its own
        """Return the trials as a `pandas.DataFrame`, one row per trial and one column per parameter.

        Learning curves are in `curves.to_pandas()`.
        """
        pandas = required("pandas", "to_dataframe")
        frame = self.trials.to_pandas()
        configs = frame.pop("config").tolist()
        names = dict.fromkeys(name for config in configs for name in config)
        for name in names:
            frame[f"config.{name}"] = pandas.Series([config.get(name) for config in configs])
        return frame

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the files into a directory, which is created if it does not exist.

        Raises
        ------
        ConfigError
            If a file cannot be written; the message names it.
        """
        path = writable_directory(directory)
        layouts = {
            "trials": self.trials.write_csv(path / "trials.csv"),
            "curves": self.curves.write_csv(path / "curves.csv"),
        }
        with atomic_file(path / "best_model.npz") as file:
            arrays: dict[str, Any] = from_record(self.best_arrays)
            np.savez(file, **{f"a:{name}": array for name, array in arrays.items()})
        best = {"trial": self.best_trial, "value": self.best_value, "config": self.best_config}
        with atomic_file(path / MARK, text=True) as file:
            json.dump({**self.settings, "best": best, "tables": layouts}, file, indent=2)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> TunedFederation:
        """Return the result that `save` wrote.

        Raises
        ------
        ConfigError
            If a file is missing or malformed; the message names it.
        """
        path = path_of(directory, "directory")
        try:
            settings = json.loads(read_text(path / MARK))
            layouts, best = settings.pop("tables"), settings.pop("best")["trial"]
            tables = {name: Table.read_csv(path / f"{name}.csv", layouts[name]) for name in layouts}
            arrays = read_arrays(path / "best_model.npz")
            model = to_record({name.removeprefix("a:"): array for name, array in arrays.items()})
            return cls(settings, tables["trials"], tables["curves"], int(best), model)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}: expected the files of TunedFederation.save, got {error}") from error

    def __str__(self) -> str:
        metric, config = self.settings["metric"], self.best_config
        values = ", ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                           for name, value in config.items())  # fmt: skip
        idle = ", ".join(self.without_effect)
        return (
            f"{metric} {self.best_value:.4g} with {values} (trial {self.best_trial} of {len(self.trials)}, "
            f"{self.client_rounds} client-rounds{idle and f'; without effect: {idle}'})"
        )


def tables_of(trials: Sequence[FederatedTrial], rounds: int, sign: float) -> tuple[Table, Table]:
    """Return the tables of trials and of learning curves, in the metric's own sign."""
    rows, points = [], []
    for trial in trials:
        last = trial.rounds[-1].value if trial.rounds else math.nan
        state = "finished" if trial.round >= rounds else "running" if trial.runs else "stopped"
        state = "failed" if trial.failure else state
        rows.append({
            "trial": trial.number, "bracket": trial.bracket, "rounds": trial.round, "value": sign * last,
            "on_all_clients": math.nan if trial.judged is None else sign * trial.judged,
            "client_rounds": trial.client_rounds,
            "state": state, "failure": trial.failure, "parent": trial.parent,
            "config": trial.config,
        })  # fmt: skip
        points += [
            {
                "trial": trial.number, "round": done.round, "value": sign * done.value,
                "stddev": math.sqrt(done.variance) if done.variance >= 0.0 else math.nan,
                "asked": done.asked, "trained": done.trained, "evaluated": done.evaluated,
            }
            for done in trial.rounds
        ]  # fmt: skip
    return Table.from_rows(rows, TRIALS), Table.from_rows(points, CURVES)
