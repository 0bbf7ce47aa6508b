"""Tells trackers of a tuned federation: one trial per configuration, with its value after each round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from logging import WARNING
from typing import Any

from flwr.common.logger import log

from fbo_flower.errors import printable
from fbo_flower.federated.records import Trial
from fbo_flower.space.space import SearchSpace
from fbo_flower.study.schema import ROUNDS, SCHEMA, TRIALS
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table
from fbo_flower.study.trial import FAILED, STOPPED_EARLY, SUCCEEDED
from fbo_flower.study.trial import Trial as Told
from fbo_flower.trackers.callback import Callback, RoundInfo, StudyInfo

AGENT = "federation"  # the name under which trackers show the trials


class Telling:
    """Tells callbacks of trials when they have ended, and of each round of the tuner.

    A trial has ended when it has failed or come to its last round, or when the run ends: until then it may be
    promoted.

    Parameters
    ----------
    callbacks : whom to tell
    study : id of the run, which a resumed run keeps
    num_replayed : number of rounds of earlier processes, which are told again
    settings : of the run, plain JSON
    space : the search space
    sign : -1 if smaller values are better
    rounds : of a whole trial
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        study: str,
        num_replayed: int,
        settings: Mapping[str, Any],
        space: SearchSpace,
        sign: float,
        rounds: int,
    ) -> None:
        self._callbacks, self._sign, self._rounds = callbacks, sign, rounds
        self._info = StudyInfo(
            study, "tune_federation", "tune_federation", dict(settings), space, sign < 0.0,
            num_replayed=num_replayed,
        )  # fmt: skip
        self._told: set[int] = set()
        self._round = 0

    def round_ended(self, trials: Sequence[Trial], numbers: Mapping[str, float]) -> None:
        """Tell the trials that have ended, and the round."""
        self._round += 1
        self._tell(trial for trial in trials if trial.failure or trial.round >= self._rounds)
        values = [trial.value for trial in trials if trial.has_value]
        best = self._sign * max(values, default=math.nan)
        self._call("on_round", RoundInfo(self._round, {**numbers, "best": best}))

    def finished(self, trials: Sequence[Trial], status: str, *, resumable: bool) -> None:
        """Tell that the run has ended, and before it what is left, unless a resumed run may go on with it."""
        if not resumable:
            self._tell(trials)
        rows = [
            {"algorithm": "tune_federation", "agent": AGENT, "round": trial.round, "trial": trial.number,
             "pulls": 1, "config": trial.config, "value": self._sign * trial.value,
             "failure": trial.failure, "regret": math.nan}
            for trial in trials
            if trial.rounds or trial.failure
        ]  # fmt: skip
        run = {"algorithm": "tune_federation", "status": status, "minimize": self._sign < 0.0}
        study = Study(
            {"schema": SCHEMA, "name": "tune_federation", "runs": [run]},
            Table.from_rows(rows, TRIALS),
            Table.from_rows([], ROUNDS),
        )
        self._call("on_finish", study)

    def _tell(self, trials: Any) -> None:
        for trial in trials:
            if trial.number in self._told or not (trial.rounds or trial.failure):
                continue
            self._told.add(trial.number)
            whole = trial.round >= self._rounds
            state = FAILED if trial.failure else SUCCEEDED if whole else STOPPED_EARLY
            curve = {done.round: self._sign * done.value for done in trial.rounds}
            value = self._sign * trial.value
            self._call(
                "on_trial",
                Told(AGENT, trial.number, trial.round, state, trial.config, value, trial.failure,
                     intermediate=curve),
            )  # fmt: skip

    def _call(self, method: str, event: Any) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, method)(self._info, event)
            except Exception as error:  # of any library behind a callback
                log(WARNING, "%s.%s failed, the run goes on: %s", type(callback).__name__, method,
                    printable(f"{type(error).__name__}: {error}")[:500])  # fmt: skip
