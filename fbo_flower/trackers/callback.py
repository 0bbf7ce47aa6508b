"""`Callback`: what is told about a running study, and the events that it is told.

A callback sees what the server holds, in simulations too: trials that agents disclosed, and the numbers of
each round. What an agent does not disclose cannot reach it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fbo_flower.space.space import SearchSpace
from fbo_flower.study.trial import Trial

if TYPE_CHECKING:
    from fbo_flower.study.study import Study


@dataclass(frozen=True)
class StudyInfo:
    """What is known about a study from its first event on.

    Parameters
    ----------
    study : its id, which stays the same when the study is resumed
    label : name of the run in tables and pictures
    algorithm, options : of the study
    space : its search space
    minimize : whether smaller values are better
    num_rounds : as requested; None: until the algorithm is finished
    num_replayed : number of rounds that an earlier process ran. They are told again, so that nothing is
        missing; a callback that cannot recognise what it was told before may skip them
    objectives : name -> "max" or "min" of the numbers that the objective returns by name; else empty
    """

    study: str
    label: str
    algorithm: str
    options: Mapping[str, Any]
    space: SearchSpace
    minimize: bool
    num_rounds: int | None = None
    num_replayed: int = 0
    objectives: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundInfo:
    """A finished round.

    Parameters
    ----------
    round : its number, from 1
    numbers : number of tasks, valid replies, failures (lost replies), refused replies, failed trials, bytes
        and floats sent down and up; seconds; best and mean_incumbent, the best and the mean of the agents'
        best values so far, NaN if none was disclosed. `study.schema.ROUNDS` explains each
    """

    round: int
    numbers: Mapping[str, float] = field(default_factory=dict)


class Callback:
    """Is told what happens in a study. Inherit from it and define the methods that you need.

    The methods are called in the server's process, between rounds, one after the other. The study waits for
    them. An exception costs a warning in the log, and nothing else.
    """

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        """Take a trial: running when its task was sent, and when the round has ended succeeded or failed.

        A trial is told as running only if its agent discloses trials.
        """

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Take a finished round; its trials were told before it."""

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """Take the whole study when the run has ended, also if it was interrupted or failed.

        `result.settings["runs"][0]["status"]` says which of them it was.
        """
