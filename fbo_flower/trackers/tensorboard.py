"""`TensorBoardTracker`: best values, configurations and traffic as TensorBoard scalars.

Each study is a folder `LABEL STUDY` of the log directory. The scalars of its rounds are in the folder
`rounds`, those of each agent in a folder of the agent, so TensorBoard draws one line per agent.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fbo_flower.study.trial import Trial
from fbo_flower.trackers.callback import RoundInfo, StudyInfo
from fbo_flower.trackers.tracker import Tracker, finite, scalars_of

if TYPE_CHECKING:
    from fbo_flower.study.study import Study

FILE = "events.out.tfevents.0.fbo-flower"
ROUNDS = "rounds"


class TensorBoardTracker(Tracker):
    """Writes scalars that `tensorboard --logdir DIR` shows while the study runs.

    An agent's trial gives `value`, `best` (so far), `failed` (0 or 1) and `config/NAME` for each number of
    its configuration, at the step of the trial's number. A round gives the numbers of `rounds.csv`. A resumed
    study goes on in the same files; what was written before the crash is written again and replaces it.

    Parameters
    ----------
    logdir : directory that is created if needed

    Raises
    ------
    ConfigError
        If TensorBoard is not installed.
    """

    def __init__(self, logdir: str | PathLike[str]) -> None:
        super().__init__("TensorBoard", "tensorboard")
        self._logdir = Path(logdir)

    def _reset(self) -> None:
        self._events: dict[str, list[bytes]] = {}  # folder -> events of the open round
        self._begun: set[str] = set()  # folders that this process has written into

    def _keep(self, trial: Trial, best: float) -> None:
        folder = f"agent {quote(trial.agent, safe=' ~')}"  # a name may hold a slash
        self._add(folder, trial.trial, scalars_of(trial, best), trial.ended)

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Write the numbers of a round and of its trials."""
        self._begin(study)
        self._add(ROUNDS, finished.round, finite(finished.numbers), time.time())
        self._flush(study)

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """Write what is left."""
        self._begin(study)
        self._flush(study)

    def _add(self, folder: str, step: int, numbers: Mapping[str, float], seconds: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=number) for tag, number in numbers.items()]
        known = time.time() if math.isnan(seconds) else seconds
        event = Event(wall_time=known, step=step, summary=Summary(value=values))
        self._events.setdefault(folder, []).append(event.SerializeToString())

    def _flush(self, study: StudyInfo) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        label = re.sub(r"[^\w .,=+-]", "_", study.label)
        for folder in list(self._events):
            directory = self._logdir / f"{label} {study.study}".lstrip(".") / folder
            directory.mkdir(parents=True, exist_ok=True)
            head = [] if folder in self._begun else _head(resumed=(directory / FILE).exists())
            with open(directory / FILE, "ab") as stream:
                writer: Any = RecordWriter(stream)
                for event in [*head, *self._events[folder]]:
                    writer.write(event)
            self._begun.add(folder)
            del self._events[folder]


def _head(resumed: bool) -> list[bytes]:
    """Return the first events of a file; of a resumed one an event that discards all earlier steps."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    if resumed:
        return [Event(wall_time=time.time(), step=0, session_log=SessionLog(status=1)).SerializeToString()]
    return [Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString()]
