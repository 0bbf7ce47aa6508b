"""Trackers of TensorBoard, MLflow and Weights & Biases, which write the same numbers in three places.

A study is one *series* of its rounds, with the numbers of `rounds.csv` at the step of the round, and one of
each agent that discloses trials, with the numbers of its trials at the step of the trial: `value`, `best` (so
far), `failed` (0 or 1) and `config/NAME` for each number of its configuration.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from os import PathLike
from typing import TYPE_CHECKING, Any

from fbo_flower.lazy import required
from fbo_flower.storage.files import open_own
from fbo_flower.storage.paths import file_name, path_of
from fbo_flower.study.trial import RUNNING, SUCCEEDED, Trial
from fbo_flower.trackers.callback import RoundInfo, StudyByStudy, StudyInfo

if TYPE_CHECKING:
    from fbo_flower.study.study import Study

Point = tuple[int, dict[str, float], float]  # step, numbers by name, seconds since 1970 (NaN: unknown)
FILE, ROUNDS = "events.out.tfevents.0.fbo-flower", "rounds"  # of TensorBoard
STUDY, AGENT = "fbo_flower.study", "fbo_flower.agent"  # tags of MLflow
_AT_ONCE = 1000  # metrics in a request, MLflow's limit
_MAX_PARAM = 500  # characters, MLflow's limit for some stores
_MLFLOW_ENDS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_WANDB_ENDS = {"finished": 0, "interrupted": 255, "failed": 1}  # exit codes by which W&B names the state
_LONGEST_RUN = 128  # characters of a run's name, W&B's limit
_COLUMNS = ("agent", "trial", "round", "state", "value", "failure")  # of W&B's table


class Tracker(StudyByStudy):
    """Follows one study after the other, and writes the points of a round when it ends.

    Parameters
    ----------
    title, package : what is tracked with, for people and for pip

    Raises
    ------
    ConfigError
        If the package is not installed; the message says what to install.
    """

    def __init__(self, title: str, package: str) -> None:
        required(package, type(self).__name__, title, package)
        self._begin_study()

    def _begin_study(self) -> None:
        self._best: dict[str, Trial] = {}  # agent -> its best trial so far
        self._points: dict[str, list[Point]] = {}  # agent -> what is not written yet; "": of rounds

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        """Keep the numbers of a finished trial until the end of its round."""
        self._begin(study)
        if trial.state == RUNNING:
            return
        sign, best = -1.0 if study.minimize else 1.0, self._best.get(trial.agent)
        counts = trial.state == SUCCEEDED and trial.feasible is not False
        if counts and (best is None or sign * (trial.value - best.value) > 0):
            best = self._best[trial.agent] = trial
        value = math.nan if best is None else best.value
        numbers = {
            "value": trial.value,
            "best": trial.best if math.isfinite(trial.best) else value,
            "failed": float(math.isnan(trial.value)),
        }
        numbers |= {f"outputs/{name}": value for name, value in trial.outputs.items()}
        numbers |= {
            f"config/{name}": float(value)
            for name, value in trial.config.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        self._points.setdefault(trial.agent, []).append((trial.trial, _finite(numbers), trial.ended))

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Write the numbers of a round and of its trials."""
        self._begin(study)
        self._points.setdefault("", []).append((finished.round, _finite(finished.numbers), math.nan))
        self._flush(study)

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """Write what is left, and end the study."""
        self._begin(study)
        self._flush(study)
        self._end(study, result, str(result.settings["runs"][0].get("status")))

    def _flush(self, study: StudyInfo) -> None:
        """Write all points; those that cannot be written are tried again after the next round."""
        for name in sorted(self._points, key=lambda name: not name):  # agents first
            self._write(study, name, self._points[name])
            del self._points[name]

    @abstractmethod
    def _write(self, study: StudyInfo, series: str, points: Sequence[Point]) -> None:
        """Write points of an agent, or of the rounds for ""."""

    def _end(self, study: StudyInfo, result: Study, status: str) -> None:
        """Do what is to be done at the end of a study."""


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


class TensorBoardTracker(Tracker):
    """Writes scalars that `tensorboard --logdir DIR` shows while the study runs.

    Each study is a folder `LABEL STUDY` of the log directory. The scalars of its rounds are in the folder
    `rounds`, those of each agent in a folder of the agent, so TensorBoard draws one line per agent. A resumed
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
        self._logdir = path_of(logdir, "logdir")

    def _begin_study(self) -> None:
        super()._begin_study()
        self._begun: set[str] = set()  # series that this process has written

    def _write(self, study: StudyInfo, series: str, points: Sequence[Point]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = f"agent {file_name(series)}" if series else ROUNDS
        file = self._logdir / f"{file_name(study.label.replace(' ', '-'))} {study.study}" / folder / FILE
        events, now = [], time.time()
        if series not in self._begun:  # of a resumed study all earlier steps are discarded
            restart = {"step": 0, "session_log": SessionLog(status=1)}
            events.append(
                Event(wall_time=now, **(restart if file.exists() else {"file_version": "brain.Event:2"}))
            )
        for step, numbers, ended in points:
            values = [Summary.Value(tag=tag, simple_value=number) for tag, number in numbers.items()]
            known = now if math.isnan(ended) else ended
            events.append(Event(wall_time=known, step=step, summary=Summary(value=values)))
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "ab", opener=partial(open_own, mode=0o666)) as stream:
            writer: Any = RecordWriter(stream)
            for event in events:
                writer.write(event.SerializeToString())
        self._begun.add(series)


class MLflowTracker(Tracker):
    """Writes a study into MLflow while it runs.

    The study's run has the options as parameters and the series of its rounds as metrics. Each agent that
    discloses trials has a child run with its series; its best configuration is the artifact `best.json` at
    the end. A resumed study goes on in the same runs.

    Parameters
    ----------
    tracking_uri : of a server, a database such as "sqlite:///mlflow.db", or a directory ("mlruns")
    experiment : name of the experiment, which is created if needed

    Raises
    ------
    ConfigError
        If MLflow is not installed.
    """

    def __init__(self, tracking_uri: str | PathLike[str], experiment: str = "fbo-flower") -> None:
        super().__init__("MLflow", "mlflow")
        text = str(tracking_uri)
        self._uri = text if "://" in text else path_of(text, "tracking_uri").absolute().as_uri()
        self._experiment = experiment
        self._connected: Any = None  # MLflow has no types where it is missing

    def _begin_study(self) -> None:
        super()._begin_study()
        self._runs: dict[str, str] = {}  # agent -> id of its run; "": the study's
        self._steps: dict[str, set[int]] = {}  # agent -> steps that an earlier process has written

    @property
    def _client(self) -> Any:
        if self._connected is None:
            from mlflow import MlflowClient

            if self._uri.startswith("file:"):  # MLflow 3 asks for it: this store gets no new functions
                os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            self._connected = MlflowClient(self._uri)
        return self._connected

    def _write(self, study: StudyInfo, series: str, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        run, now = self._run(study, series), int(1000 * time.time())
        metrics = [
            Metric(_allowed(name), number, now, step)
            for step, numbers, _ in points
            if step not in self._steps[series]
            for name, number in numbers.items()
        ]
        for start in range(0, len(metrics), _AT_ONCE):
            self._client.log_batch(run, metrics[start : start + _AT_ONCE])

    def _end(self, study: StudyInfo, result: Study, status: str) -> None:
        for agent, best in (result.best if len(result.objectives) < 2 else {}).items():
            self._client.log_text(self._run(study, agent), json.dumps(best, indent=2), "best.json")
        for run in self._runs.values():
            self._client.set_terminated(run, _MLFLOW_ENDS.get(status, "FINISHED"))

    def _run(self, study: StudyInfo, agent: str) -> str:
        """Return the id of the run of an agent, or of the study for the agent ""; create or resume it."""
        if agent in self._runs:
            return self._runs[agent]
        parent, client = self._run(study, "") if agent else "", self._client
        known = client.get_experiment_by_name(self._experiment)
        experiment = client.create_experiment(self._experiment) if known is None else known.experiment_id
        earlier: dict[str, str] = {}
        if study.num_replayed:  # `agent` may hold quotes, so it is not part of the filter
            chosen = f"tags.`{STUDY}` = '{study.study}'"
            found = client.search_runs([experiment], chosen, max_results=5000)
            earlier = {run.data.tags.get(AGENT, ""): run.info.run_id for run in found}
        self._steps[agent] = set()
        if agent in earlier:
            run = earlier[agent]
            client.update_run(run, status="RUNNING")
            counted = ("failed",) if agent else ("tasks", "client_rounds")  # one of them is at every step
            self._steps[agent] = {m.step for name in counted for m in client.get_metric_history(run, name)}
        else:
            tags = {STUDY: study.study} | ({AGENT: agent, "mlflow.parentRunId": parent} if agent else {})
            run = str(client.create_run(experiment, tags=tags, run_name=agent or study.label).info.run_id)
            for name, value in {} if agent else {"algorithm": study.algorithm, **study.options}.items():
                client.log_param(run, _allowed(name), str(value)[:_MAX_PARAM])
        self._runs[agent] = run
        return run


def _allowed(name: str) -> str:
    """Return a name as MLflow allows it; its file store makes files of the parts between slashes."""
    group, slash, own = name.partition("/") if "/" in name else ("", "", name)
    plain = re.fullmatch(r"[\w-][\w. :-]{0,99}", own, re.ASCII) and own == own.rstrip(" .")
    return f"{group}{slash}{own if plain else file_name(own)}"


class WandbTracker(Tracker):
    """Writes a study into a run of Weights & Biases while it runs.

    The series of the rounds is `rounds/NAME`, that of an agent `agents/AGENT/NAME`. The table `trials` has
    all trials at the end. A resumed study goes on in the same run, from the first round that was not
    reported.

    Parameters
    ----------
    directory : where W&B writes; its folder `wandb` is created there
    mode : "offline" writes files, which `wandb sync` uploads when you decide to; "online" sends everything to
        W&B at once. That is another party, which then learns what the server knows
    project : name of the project

    Raises
    ------
    ConfigError
        If wandb is not installed.
    """

    def __init__(
        self, directory: str | PathLike[str] = ".", *, mode: str = "offline", project: str = "fbo-flower"
    ) -> None:
        super().__init__("Weights & Biases", "wandb")
        self._directory, self._project = str(path_of(directory, "directory")), project
        self._mode: Any = mode  # wandb checks it
        self._run: Any = None  # wandb has no types where it is missing

    def _begin_study(self) -> None:
        super()._begin_study()
        self._rows: list[Trial] = []

    def on_trial(self, study: StudyInfo, trial: Trial) -> None:
        """Keep a finished trial until the end of its round, and for the table at the end."""
        super().on_trial(study, trial)
        if trial.state != RUNNING:
            self._rows.append(trial)

    def _flush(self, study: StudyInfo) -> None:
        """Log the n-th trials of all agents in this round together, the last ones with the round."""
        rounds, points, self._points = self._points.pop("", []), self._points, {}
        for number, numbers, _ in rounds:
            if number <= study.num_replayed:
                continue  # an earlier process has reported it
            waves: list[dict[str, float]] = [
                {
                    f"agents/{agent}/{name}": value
                    for agent, point in zip(points, wave, strict=True)
                    if point is not None
                    for name, value in {**point[1], "trial": float(point[0])}.items()
                }
                for wave in zip_longest(*points.values())
            ] or [{}]
            waves[-1] |= {f"rounds/{name}": value for name, value in numbers.items()}
            for wave in waves:
                self._run_of(study).log({"round": number, **wave})

    def _end(self, study: StudyInfo, result: Study, status: str) -> None:
        import wandb

        run = self._run_of(study)
        names = list(dict.fromkeys(name for trial in self._rows for name in trial.config))
        table = wandb.Table([*_COLUMNS, *(f"config.{name}" for name in names)], allow_mixed_types=True)
        for trial in self._rows:
            own = [getattr(trial, column) for column in _COLUMNS]
            table.add_data(*own, *(trial.config.get(name) for name in names))
        if self._rows:
            run.log({"trials": table})
        self._run = None
        run.finish(exit_code=_WANDB_ENDS.get(status, 0))

    def _run_of(self, study: StudyInfo) -> Any:
        if self._run is None:
            import wandb

            config = {"algorithm": study.algorithm, "study": study.study, "num_rounds": study.num_rounds}
            self._run = wandb.init(
                project=self._project,
                name=study.label[:_LONGEST_RUN],
                id=study.study,
                dir=self._directory,
                mode=self._mode,
                config=config | dict(study.options),
                resume="allow" if study.num_replayed and self._mode == "online" else None,
                reinit="create_new",
                settings=wandb.Settings(
                    silent=True, console="off", disable_git=True, x_disable_meta=True, x_disable_stats=True
                ),  # the study alone: neither the console nor the machine and the code of the server
            )
            for name in ("rounds/*", "agents/*"):
                self._run.define_metric(name, step_metric="round")
        return self._run
