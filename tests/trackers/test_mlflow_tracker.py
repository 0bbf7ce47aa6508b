"""A running study in MLflow's file store, read back with MLflow's client."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tracked import tune

from fbo_flower.trackers import MLflowTracker
from fbo_flower.trackers.mlflow import AGENT, STUDY

pytest.importorskip("mlflow", reason="needs fbo-flower[mlflow]")


@pytest.fixture(autouse=True)
def _file_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def runs(directory: Path) -> tuple[Any, dict[str, Any]]:
    """Return a client, and agent -> its run; "": the run of the study."""
    from mlflow import MlflowClient

    client = MlflowClient(directory.as_uri())
    experiment = client.get_experiment_by_name("fbo-flower")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id])
    by_agent = {run.data.tags.get(AGENT, ""): run for run in found}
    assert len(by_agent) == len(found), "one run for each agent"
    return client, by_agent


def history(client: Any, run: Any, metric: str) -> list[tuple[int, float]]:
    found = client.get_metric_history(run.info.run_id, metric)
    return sorted((entry.step, entry.value) for entry in found)


def test_a_study_is_a_run_with_a_child_for_each_agent(tmp_path: Path) -> None:
    study = tune([MLflowTracker(tmp_path)])
    client, found = runs(tmp_path)
    assert sorted(found) == ["", "0", "1", "2"]
    parent = found[""]
    assert parent.data.tags[STUDY] == study.settings["runs"][0]["study"]
    assert parent.data.params["algorithm"] == "random"
    assert parent.data.params["trials_per_round"] == "2"
    assert parent.info.status == "FINISHED"
    assert history(client, parent, "replies") == [(1, 3.0), (2, 3.0), (3, 3.0)]
    for agent in "012":
        assert found[agent].data.tags["mlflow.parentRunId"] == parent.info.run_id
        rows = list(study.trials.where(agent=agent))
        good = [(row["trial"], row["value"]) for row in rows if math.isfinite(row["value"])]
        assert history(client, found[agent], "value") == good
        assert history(client, found[agent], "failed") == [
            (row["trial"], float(math.isnan(row["value"]))) for row in rows
        ]
        assert history(client, found[agent], "config/C") == [
            (row["trial"], row["config"]["C"]) for row in rows
        ]
        file = client.download_artifacts(found[agent].info.run_id, "best.json", str(tmp_path))
        best = json.loads(Path(file).read_text(encoding="utf-8"))
        assert best["config"] == study.best[agent]["config"]


def test_a_resumed_study_goes_on_in_its_runs(tmp_path: Path) -> None:
    journal, store = tmp_path / "journal.db", tmp_path / "mlruns"
    tune([MLflowTracker(store)], num_rounds=2, journal=journal)
    study = tune([MLflowTracker(store)], num_rounds=4, journal=journal, resume=True)
    client, found = runs(store)
    steps = [step for step, _ in history(client, found["1"], "failed")]
    assert steps == study.trials.where(agent="1")["trial"].tolist()
    assert history(client, found[""], "replies") == [(n, 3.0) for n in (1, 2, 3, 4)]


def test_nothing_but_counts_is_written_of_agents_that_disclose_nothing(tmp_path: Path) -> None:
    tune([MLflowTracker(tmp_path)], disclose=None)
    _, found = runs(tmp_path)
    assert list(found) == [""]
    assert not {"best", "mean_incumbent"} & set(found[""].data.metrics)
    assert found[""].data.metrics["replies"] == 3.0
