"""A running study in TensorBoard and MLflow, read back by their own readers, and in Weights & Biases."""

import json
import math
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock, Mock

import pytest
from tracked import SPACE, tune

from fbo_flower.study.trial import Trial
from fbo_flower.trackers import MLflowTracker, RoundInfo, StudyInfo, TensorBoardTracker, WandbTracker
from fbo_flower.trackers.dashboards import AGENT, STUDY

TRACKERS = {"tensorboard": TensorBoardTracker, "mlflow": MLflowTracker, "wandb": WandbTracker}


def with_package(kind):
    if find_spec(kind) is None:
        pytest.skip(f"needs fbo-flower[{kind}]")
    return kind


@pytest.fixture(autouse=True)
def wandb(monkeypatch):
    """Stand in for W&B, whose files have no reader: a module that keeps what it is told."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    module = ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    for name in ("init", "Settings", "Table"):
        setattr(module, name, MagicMock())
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


@pytest.fixture
def series(wandb):
    """Return what a tracker has written: agent, or "" for rounds -> name -> (step, value) pairs."""
    readers = {"tensorboard": of_tensorboard, "mlflow": of_mlflow, "wandb": lambda _: of_wandb(wandb)}
    return lambda kind, directory: readers[kind](directory)


def of_tensorboard(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    (study,) = directory.iterdir()
    for folder in study.iterdir():
        events = EventAccumulator(str(folder))
        events.Reload()
        found["" if folder.name == "rounds" else folder.name.removeprefix("agent ")] = {
            tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
        }
    return found


def mlflow_runs(directory):
    """Return a client, and agent -> its run; "": the run of the study."""
    from mlflow import MlflowClient

    client = MlflowClient(directory.as_uri())
    experiment = client.get_experiment_by_name("fbo-flower")
    found = client.search_runs([experiment.experiment_id])
    by_agent = {run.data.tags.get(AGENT, ""): run for run in found}
    assert len(by_agent) == len(found), "one run for each agent"
    return client, by_agent


def of_mlflow(directory):
    client, runs = mlflow_runs(directory)
    return {
        agent: {
            name: sorted((e.step, e.value) for e in client.get_metric_history(run.info.run_id, name))
            for name in run.data.metrics
        }
        for agent, run in runs.items()
    }


def logged(wandb):
    """Return the rows that a run of W&B has logged."""
    return [call.args[0] for call in wandb.init.return_value.log.call_args_list]


def of_wandb(wandb):
    found = {}
    for row in logged(wandb):
        for name, value in row.items():
            where, _, rest = name.partition("/")
            agent, _, own = ("", "", rest) if where == "rounds" else rest.partition("/")
            step = row["round"] if where == "rounds" else int(row.get(f"agents/{agent}/trial", -1))
            if where in {"rounds", "agents"} and own != "trial":
                found.setdefault(agent, {}).setdefault(own, []).append((step, value))
    return found


@pytest.mark.parametrize("kind", TRACKERS)
def test_rounds_and_the_trials_of_every_agent_are_written_with_their_steps(kind, series, tmp_path):
    study = tune([TRACKERS[with_package(kind)](tmp_path / "x")])
    found = series(kind, tmp_path / "x")
    assert sorted(found) == ["", "0", "1", "2"]
    assert found[""]["replies"] == [(1, 3.0), (2, 3.0), (3, 3.0)]
    for name in ("best", "bytes_up"):
        assert [value for _, value in found[""][name]] == pytest.approx(study.rounds[name].tolist())
    for agent in "012":
        rows, own = list(study.trials.where(agent=agent)), found[agent]
        good = [(row["trial"], pytest.approx(row["value"])) for row in rows if math.isfinite(row["value"])]
        assert own["value"] == good
        assert own["best"][-1][1] == pytest.approx(study.best[agent]["value"])
        assert own["failed"] == [(row["trial"], float(math.isnan(row["value"]))) for row in rows]
        assert [value for _, value in own["config/C"]] == pytest.approx([r["config"]["C"] for r in rows])
        inactive = {row["trial"] for row in rows if "gamma" not in row["config"]}
        assert not {step for step, _ in own.get("config/gamma", [])} & inactive


@pytest.mark.parametrize("kind", TRACKERS)
def test_a_resumed_study_goes_on_and_nothing_is_written_twice(kind, series, tmp_path):
    tracker = TRACKERS[with_package(kind)]
    journal, place = tmp_path / "journal.db", tmp_path / "x"
    tune([tracker(place)], num_rounds=2, journal=journal)
    study = tune([tracker(place)], num_rounds=4, journal=journal, resume=True)
    found = series(kind, place)
    for agent in "012":
        assert [n for n, _ in found[agent]["failed"]] == study.trials.where(agent=agent)["trial"].tolist()
    assert found[""]["replies"] == [(n, 3.0) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("kind", TRACKERS)
def test_nothing_but_counts_is_written_of_agents_that_disclose_nothing(kind, series, tmp_path):
    tune([TRACKERS[with_package(kind)](tmp_path / "x")], disclose=None)
    found = series(kind, tmp_path / "x")
    assert list(found) == [""]
    assert not {"best", "mean_incumbent"} & set(found[""])
    assert found[""]["replies"][-1] == (3, 3.0)


def test_runs_of_mlflow_say_what_they_are_and_hold_the_best_configurations(tmp_path):
    with_package("mlflow")
    study = tune([MLflowTracker(tmp_path)])
    client, found = mlflow_runs(tmp_path)
    parent = found[""]
    assert parent.data.tags[STUDY] == study.settings["runs"][0]["study"]
    assert (parent.data.params["algorithm"], parent.data.params["trials_per_round"]) == ("random", "2")
    assert parent.info.status == "FINISHED"
    for agent in "012":
        assert found[agent].data.tags["mlflow.parentRunId"] == parent.info.run_id
        file = client.download_artifacts(found[agent].info.run_id, "best.json", str(tmp_path))
        assert json.loads(Path(file).read_text(encoding="utf-8"))["config"] == study.best[agent]["config"]


def test_a_run_of_wandb_says_what_it_is_stays_offline_and_has_a_table_of_all_trials(wandb, tmp_path):
    study = tune([WandbTracker(tmp_path)])
    given = wandb.init.call_args.kwargs
    assert (given["mode"], given["dir"], given["name"]) == ("offline", str(tmp_path), "by chance")
    assert (given["config"]["algorithm"], given["config"]["trials_per_round"]) == ("random", 2)
    wandb.init.return_value.finish.assert_called_once_with(exit_code=0)
    columns = wandb.Table.call_args.args[0]
    table = [dict(zip(columns, call.args, strict=True)) for call in wandb.Table().add_data.call_args_list]
    assert logged(wandb)[-1] == {"trials": wandb.Table()}
    kernels = [row["config.kernel"] for row in table]
    assert sorted(kernels) == sorted(config["kernel"] for config in study.trials["config"])


def test_a_hostile_name_stays_in_the_log_directory(tmp_path):
    with_package("tensorboard")
    tracker, info = TensorBoardTracker(tmp_path / "logs"), StudyInfo("id", "../..", "x", {}, SPACE, False)
    tracker.on_trial(info, Trial("../../../escape", 0, 1, "succeeded", {"C": 1.0}, 0.5))
    tracker.on_round(info, RoundInfo(1, {"replies": 1}))
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert len([path for path in (tmp_path / "logs").rglob("*") if path.is_file()]) == 2


def test_what_cannot_be_written_is_written_with_a_later_round(tmp_path, monkeypatch):
    with_package("tensorboard")
    tracker, info = TensorBoardTracker(tmp_path / "logs"), StudyInfo("id", "x", "x", {}, SPACE, True)
    tracker.on_trial(info, Trial("a", 0, 1, "succeeded", {"C": 1.0}, 0.5))
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", Mock(side_effect=OSError("No space left on device")))
        with pytest.raises(OSError, match="No space"):
            tracker.on_round(info, RoundInfo(1, {"replies": 1}))
    tracker.on_trial(info, Trial("a", 1, 2, "succeeded", {"C": 1.0}, 0.75))
    tracker.on_round(info, RoundInfo(2, {"replies": 1}))
    found = of_tensorboard(tmp_path / "logs")
    assert found["a"]["value"] == [(0, 0.5), (1, 0.75)]
    assert found["a"]["best"] == [(0, 0.5), (1, 0.5)], "smaller is better"
    assert found[""]["replies"] == [(1, 1.0), (2, 1.0)]
