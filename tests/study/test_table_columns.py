"""A table as arrays beside its CSV file: the same table, or none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fbo_flower.study import Study
from fbo_flower.study import files as study_files
from fbo_flower.study.columns import csv_mark, from_bytes, to_bytes
from fbo_flower.study.schema import REGRET, ROUNDS, SCHEMA, TRIALS
from fbo_flower.study.table import Table

TEXT = st.text(max_size=8) | st.sampled_from(["007", "", "true", "a,b", "\r\n", "\x00", "\ud800", "é🌼"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
CONFIGS = st.dictionaries(TEXT, SCALARS, max_size=3)
KINDS: Any = {"t": "text", "i": "integer", "r": "real", "b": "boolean", "c": "config"}
ROWS = st.tuples(TEXT, st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), CONFIGS)


def written(table: Table, path: Path) -> tuple[dict[str, Any], list[int], bytes]:
    layout = table.write_csv(path)
    mark = csv_mark(path.read_bytes())
    return layout, mark, to_bytes(table, layout, mark)


@given(rows=st.lists(ROWS, max_size=6))
@settings(deadline=None)
def test_every_table_is_the_one_that_its_csv_file_holds(tmp_path_factory, rows) -> None:
    path = tmp_path_factory.mktemp("t") / "t.csv"
    table = Table.from_rows([dict(zip(KINDS, row, strict=True)) for row in rows], KINDS)
    layout, mark, data = written(table, path)
    found = from_bytes(data, layout, mark)
    assert found is not None
    assert found == Table.read_csv(path, layout)
    assert [[type(v) for v in row["c"].values()] for row in found] == [
        [type(v) for v in row["c"].values()] for row in Table.read_csv(path, layout)
    ]
    assert data == written(table, path)[2]


def test_numpy_scalars_in_configs_become_python_ones(tmp_path: Path) -> None:
    table = Table({"c": [{"a": np.int64(1)}, {"a": "x", "b": np.float64(2.5)}]})
    layout, mark, data = written(table, tmp_path / "t.csv")
    found = from_bytes(data, layout, mark)
    assert found is not None
    assert [type(v) for c in found["c"] for v in c.values()] == [int, str, float]


def a_study(num_rows: int) -> Study:
    trials = Table(
        {
            "algorithm": ["ts"] * num_rows,
            "agent": [str(i // 3) for i in range(num_rows)],
            "round": np.arange(num_rows) % 3 + 1,
            "trial": np.arange(num_rows) % 3,
            "pulls": np.ones(num_rows, dtype=int),
            "config": [{"x": i / 7, "kernel": "rbf" if i % 2 else "poly"} for i in range(num_rows)],
            "value": np.where(np.arange(num_rows) % 5 == 0, math.nan, np.arange(num_rows) / 3),
            "failure": ["diverged" if i % 5 == 0 else "" for i in range(num_rows)],
            "regret": np.full(num_rows, math.nan),
        },
        TRIALS,
    )
    regret = Table(
        {
            "algorithm": ["ts"] * num_rows,
            "agent": trials["agent"],
            "evaluations": trials["trial"] + 1,
            "cumulative": np.arange(num_rows) * 0.1,
            "simple": np.zeros(num_rows),
        },
        REGRET,
    )
    settings = {"schema": SCHEMA, "name": "ts", "runs": [{"algorithm": "ts"}]}
    return Study(settings, trials, Table.from_rows([], ROUNDS), regret=regret)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a study's directory with copies of its tables of 30 rows."""
    monkeypatch.setattr(study_files, "LARGE", 30)
    a_study(30).save(tmp_path)
    return tmp_path


def refuse(*_: object) -> None:
    raise AssertionError("the CSV file was read")


def test_a_large_table_is_read_from_its_copy(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(path.name for path in directory.glob("*.columns"))
    assert names == ["regret.columns", "trials.columns"]
    read_csv = Table.read_csv
    small = {"rounds.csv"}
    monkeypatch.setattr(
        Table, "read_csv", lambda path, layout: read_csv(path, layout) if path.name in small else refuse()
    )
    assert Study.load(directory) == a_study(30)


def test_a_csv_file_that_was_edited_counts(directory: Path) -> None:
    path = directory / "trials.csv"
    path.write_text(path.read_text().replace("diverged", "exploded"))
    assert set(Study.load(directory).trials["failure"]) == {"exploded", ""}


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\xff" * 200, None])
def test_a_damaged_copy_is_passed_over(directory: Path, damage: bytes | None) -> None:
    path = directory / "trials.columns"
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert Study.load(directory) == a_study(30)


def test_a_copy_of_another_study_is_passed_over(directory: Path, tmp_path: Path) -> None:
    a_study(33).save(tmp_path / "other")
    (directory / "trials.columns").write_bytes((tmp_path / "other" / "trials.columns").read_bytes())
    assert Study.load(directory) == a_study(30)


def test_a_small_table_has_no_copy_and_an_old_one_goes(directory: Path) -> None:
    a_study(29).save(directory)
    assert not list(directory.glob("*.columns"))
    assert Study.load(directory) == a_study(29)
