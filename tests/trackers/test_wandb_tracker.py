"""A running study in the offline files of Weights & Biases, read back."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tracked import tune
from waiting import wait_until

from fbo_flower.trackers import WandbTracker

BLOCK, FULL, LAST = 32768, 1, 4

pytest.importorskip("wandb", reason="needs fbo-flower[wandb]")


@pytest.fixture(autouse=True)
def _nothing_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import wandb

    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    yield
    wandb.teardown()


def chunks(data: bytes) -> Iterator[bytes]:
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


def records(directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any], int]:
    """Return the rows of the history, the config and the exit code of the run in a directory.

    The service of W&B writes them from a process of its own, the exit code last.
    """
    wait_until(lambda: read(directory)[2] >= 0, "the end of the run")
    return read(directory)


def read(directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any], int]:
    from wandb.proto import wandb_internal_pb2

    (file,) = directory.glob("wandb/offline-run-*/run-*.wandb")
    rows: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    code = -1
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


def test_the_offline_run_holds_rounds_and_trials(tmp_path: Path) -> None:
    study = tune([WandbTracker(tmp_path)])
    rows, config, code = records(tmp_path)
    assert code == 0
    assert config["algorithm"] == "random"
    assert config["trials_per_round"] == 2
    assert [row["rounds/replies"] for row in rows if "rounds/replies" in row] == [3, 3, 3]
    for agent in "012":
        known = list(study.trials.where(agent=agent))
        values = [row[f"agents/{agent}/value"] for row in rows if f"agents/{agent}/value" in row]
        assert values == [row["value"] for row in known if math.isfinite(row["value"])]
        rounds = [row["round"] for row in rows if f"agents/{agent}/failed" in row]
        assert rounds == [row["round"] for row in known]
        widths = [row[f"agents/{agent}/config/n"] for row in rows if f"agents/{agent}/config/n" in row]
        assert widths == [row["config"]["n"] for row in known]


def test_the_table_has_all_trials(tmp_path: Path) -> None:
    study = tune([WandbTracker(tmp_path)])
    (file,) = tmp_path.glob("wandb/offline-run-*/files/media/table/*.table.json")
    table = json.loads(file.read_text(encoding="utf-8"))
    assert len(table["data"]) == len(study.trials)
    kernels = [row[table["columns"].index("config.kernel")] for row in table["data"]]
    assert sorted(kernels) == sorted(config["kernel"] for config in study.trials["config"])


def test_nothing_but_counts_is_written_of_agents_that_disclose_nothing(tmp_path: Path) -> None:
    tune([WandbTracker(tmp_path)], disclose=None)
    rows, _, _ = records(tmp_path)
    names = {name for row in rows for name in row if not name.startswith("_")}
    assert not any(name.startswith("agents/") for name in names)
    assert not {"rounds/best", "rounds/mean_incumbent", "trials"} & names
    assert "rounds/replies" in names
