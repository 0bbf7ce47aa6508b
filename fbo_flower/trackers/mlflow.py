"""`MLflowTracker`: a run of MLflow for each study, with a child run for each agent."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fbo_flower.study.trial import Trial
from fbo_flower.trackers.callback import RoundInfo, StudyInfo
from fbo_flower.trackers.tracker import Tracker, finite, scalars_of

if TYPE_CHECKING:
    from fbo_flower.study.study import Study

STUDY, AGENT = "fbo_flower.study", "fbo_flower.agent"  # tags
_AT_ONCE = 1000  # metrics in a request, MLflow's limit
_MAX_PARAM = 500  # characters, MLflow's limit for some stores
_ENDS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MLflowTracker(Tracker):
    """Writes a study into MLflow while it runs.

    The study's run has the options as parameters and the numbers of `rounds.csv` as metrics, at the step of
    the round. Each agent that discloses trials has a child run with `value`, `best` (so far), `failed` (0 or
    1) and `config/NAME` for each number of its configuration, at the step of the trial's number; its best
    configuration is the artifact `best.json` at the end. A resumed study goes on in the same runs.

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
        self._uri = text if "://" in text else Path(text).absolute().as_uri()
        self._experiment = experiment
        self._client: Any = None  # MLflow has no types where it is missing

    def _reset(self) -> None:
        self._runs: dict[str, str] = {}  # agent -> id of its run; "": the study's
        self._steps: dict[str, set[int]] = {}  # agent -> steps that an earlier process has written
        self._trials: list[tuple[Trial, float]] = []  # of the open round, with the best so far

    def _keep(self, trial: Trial, best: float) -> None:
        self._trials.append((trial, best))

    def on_round(self, study: StudyInfo, finished: RoundInfo) -> None:
        """Write the numbers of a round and of its trials."""
        self._begin(study)
        self._write_trials(study)
        self._log(study, "", [(finished.round, finite(finished.numbers))])

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        """Write what is left and the best configurations, and end the runs."""
        self._begin(study)
        self._write_trials(study)
        status = _ENDS.get(str(result.settings["runs"][0].get("status")), "FINISHED")
        for agent, trial in self._best.items():
            best = {"value": trial.value, "config": dict(trial.config), "trial": trial.trial}
            self._client_of().log_text(self._run(study, agent), json.dumps(best, indent=2), "best.json")
        for run in self._runs.values():
            self._client_of().set_terminated(run, status)

    def _write_trials(self, study: StudyInfo) -> None:
        by_agent: dict[str, list[tuple[int, dict[str, float]]]] = {}
        for trial, best in self._trials:
            by_agent.setdefault(trial.agent, []).append((trial.trial, scalars_of(trial, best)))
        for agent, steps in by_agent.items():
            self._log(study, agent, steps)
            self._trials = [(trial, best) for trial, best in self._trials if trial.agent != agent]

    def _log(self, study: StudyInfo, agent: str, steps: list[tuple[int, dict[str, float]]]) -> None:
        """Write metrics, but not at steps that an earlier process has written."""
        from mlflow.entities import Metric

        run, now = self._run(study, agent), int(1000 * time.time())
        metrics = [
            Metric(_name(name), number, now, step)
            for step, numbers in steps
            if step not in self._steps[agent]
            for name, number in numbers.items()
        ]
        for start in range(0, len(metrics), _AT_ONCE):
            self._client_of().log_batch(run, metrics[start : start + _AT_ONCE])

    def _client_of(self) -> Any:
        if self._client is None:
            from mlflow import MlflowClient

            if self._uri.startswith("file:"):  # MLflow 3 asks for it: this store gets no new functions
                os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            self._client = MlflowClient(self._uri)
        return self._client

    def _run(self, study: StudyInfo, agent: str) -> str:
        """Return the id of the run of an agent, or of the study for the agent ""; create or resume it."""
        if agent in self._runs:
            return self._runs[agent]
        parent = self._run(study, "") if agent else ""
        client = self._client_of()
        known = client.get_experiment_by_name(self._experiment)
        experiment = client.create_experiment(self._experiment) if known is None else known.experiment_id
        found = self._earlier(experiment, study, agent) if study.num_replayed else None
        self._steps[agent] = set()
        if found is not None:
            client.update_run(found, status="RUNNING")
            counted = "failed" if agent else "tasks"  # at every step
            self._steps[agent] = {metric.step for metric in client.get_metric_history(found, counted)}
            self._runs[agent] = found
            return found
        tags = {STUDY: study.study} | ({AGENT: agent, "mlflow.parentRunId": parent} if agent else {})
        run = client.create_run(experiment, tags=tags, run_name=agent or study.label).info.run_id
        if not agent:
            for name, value in {"algorithm": study.algorithm, **study.options}.items():
                client.log_param(run, _name(name), str(value)[:_MAX_PARAM])
        self._runs[agent] = run
        return str(run)

    def _earlier(self, experiment: str, study: StudyInfo, agent: str) -> str | None:
        # `agent` may hold quotes, so it is not part of the filter
        chosen = f"tags.`{STUDY}` = '{study.study}'"
        found = self._client_of().search_runs([experiment], chosen, max_results=5000)
        runs: Mapping[str, str] = {run.data.tags.get(AGENT, ""): run.info.run_id for run in found}
        return runs.get(agent)


def _name(name: str) -> str:
    """Return a name with the characters that MLflow allows in names."""
    return re.sub(r"[^\w\-. :/]", "_", name)
