"""A running study in TensorBoard, MLflow and Weights & Biases, read back with each one's own reader."""

import json
import math
import struct
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
from tracked import SPACE, tune
from waiting import wait_until

from fbo_flower.study.trial import Trial
from fbo_flower.trackers import MLflowTracker, RoundInfo, StudyInfo, TensorBoardTracker, WandbTracker
from fbo_flower.trackers.dashboards import AGENT, STUDY

BLOCK, FULL, LAST = 32768, 1, 4  # of LevelDB's log format
TRACKERS = {"tensorboard": TensorBoardTracker, "mlflow": MLflowTracker, "wandb": WandbTracker}


@pytest.fixture(params=TRACKERS)
def kind(request):
    return with_package(request.param)


def with_package(kind):
    if find_spec(kind) is None:
        pytest.skip(f"needs fbo-flower[{kind}]")
    return kind


@pytest.fixture(autouse=True)
def _nothing_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    yield
    if find_spec("wandb") is not None:
        import wandb

        wandb.teardown()


def series(kind, directory):
    """Return what a tracker has written: agent, or "" for rounds -> name -> (step, value) pairs."""
    readers = {"tensorboard": of_tensorboard, "mlflow": of_mlflow, "wandb": of_wandb}
    return readers[kind](directory)


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


def of_wandb(directory):
    found = {}
    for row in wandb_run(directory)[0]:
        for name, value in row.items():
            where, _, rest = name.partition("/")
            agent, _, own = ("", "", rest) if where == "rounds" else rest.partition("/")
            step = row["round"] if where == "rounds" else int(row.get(f"agents/{agent}/trial", -1))
            if where in {"rounds", "agents"} and own != "trial":
                found.setdefault(agent, {}).setdefault(own, []).append((step, value))
    return found


def wandb_run(directory):
    """Return the rows of the history, the config and the exit code of the run in a directory.

    The service of W&B writes them from a process of its own, the exit code last.
    """
    from google.protobuf.message import DecodeError

    def has_ended():
        with suppress(DecodeError):  # a record that is half written
            return wandb_file(directory)[2] >= 0
        return False

    wait_until(has_ended, "the end of the run")
    return wandb_file(directory)


def chunks(data):
    """Yield the records of a file in LevelDB's log format behind the 7 bytes of W&B's header."""
    assert data[:4] == b":W&B"
    place, parts = 7, b""
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:  # too little is left for a head
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)  # checksum, length, whole or which part
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {FULL, LAST}:
            yield parts
            parts = b""


def wandb_file(directory):
    from wandb.proto import wandb_internal_pb2

    (file,) = directory.glob("wandb/offline-run-*/run-*.wandb")
    rows, config, code = [], {}, -1
    for data in chunks(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({(i.key or ".".join(i.nested_key)): json.loads(i.value_json) for i in items})
        elif record.WhichOneof("record_type") == "run":
            config |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
        elif record.WhichOneof("record_type") == "exit":
            code = record.exit.exit_code
    return rows, config, code


def test_rounds_and_the_trials_of_every_agent_are_written_with_their_steps(kind, tmp_path):
    study = tune([TRACKERS[kind](tmp_path / "x")])
    found = series(kind, tmp_path / "x")
    assert sorted(found) == ["", "0", "1", "2"]
    assert found[""]["replies"] == [(1, 3.0), (2, 3.0), (3, 3.0)]
    if kind == "tensorboard":
        (folder,) = (tmp_path / "x").iterdir()
        assert folder.name == f"by-chance {study.settings['runs'][0]['study']}"
    for name in ("best", "bytes_up"):
        assert [value for _, value in found[""][name]] == pytest.approx(study.rounds[name].tolist())
    for agent in "012":
        rows, own = list(study.trials.where(agent=agent)), found[agent]
        good = [(row["trial"], row["value"]) for row in rows if math.isfinite(row["value"])]
        assert [step for step, _ in own["value"]] == [step for step, _ in good]
        assert [value for _, value in own["value"]] == pytest.approx([value for _, value in good])
        assert own["best"][-1][1] == pytest.approx(study.best[agent]["value"])
        assert own["failed"] == [(row["trial"], float(math.isnan(row["value"]))) for row in rows]
        assert [value for _, value in own["config/C"]] == pytest.approx([r["config"]["C"] for r in rows])
        inactive = {row["trial"] for row in rows if "gamma" not in row["config"]}
        assert not {step for step, _ in own.get("config/gamma", [])} & inactive


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow"])  # an offline run of W&B cannot be resumed
def test_a_resumed_study_goes_on_and_nothing_is_written_twice(kind, tmp_path):
    tracker = TRACKERS[with_package(kind)]
    journal, place = tmp_path / "journal.db", tmp_path / "x"
    tune([tracker(place)], num_rounds=2, journal=journal)
    study = tune([tracker(place)], num_rounds=4, journal=journal, resume=True)
    found = series(kind, place)
    for agent in "012":
        assert [n for n, _ in found[agent]["failed"]] == study.trials.where(agent=agent)["trial"].tolist()
    assert found[""]["replies"] == [(n, 3.0) for n in (1, 2, 3, 4)]


def test_nothing_but_counts_is_written_of_agents_that_disclose_nothing(kind, tmp_path):
    tune([TRACKERS[kind](tmp_path / "x")], disclose=None)
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
    assert parent.data.params["algorithm"] == "random"
    assert parent.data.params["trials_per_round"] == "2"
    assert parent.info.status == "FINISHED"
    for agent in "012":
        assert found[agent].data.tags["mlflow.parentRunId"] == parent.info.run_id
        file = client.download_artifacts(found[agent].info.run_id, "best.json", str(tmp_path))
        best = json.loads(Path(file).read_text(encoding="utf-8"))
        assert best["config"] == study.best[agent]["config"]


def test_a_run_of_wandb_says_what_it_is_and_has_a_table_of_all_trials(tmp_path):
    with_package("wandb")
    study = tune([WandbTracker(tmp_path)])
    rows, config, code = wandb_run(tmp_path)
    assert code == 0
    assert config["algorithm"] == "random"
    assert config["trials_per_round"] == 2
    for agent in "012":
        rounds = [row["round"] for row in rows if f"agents/{agent}/failed" in row]
        assert rounds == study.trials.where(agent=agent)["round"].tolist()
    (file,) = tmp_path.glob("wandb/offline-run-*/files/media/table/*.table.json")
    table = json.loads(file.read_text(encoding="utf-8"))
    assert len(table["data"]) == len(study.trials)
    kernels = [row[table["columns"].index("config.kernel")] for row in table["data"]]
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
