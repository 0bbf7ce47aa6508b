"""Tables: checked, exact on disk, and harmless to a spreadsheet program and a terminal."""

import csv
import json
import math
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fbo_flower.errors import ConfigError, printable
from fbo_flower.study import table as tables
from fbo_flower.study.table import Table, guard, unguard

EVIL = "=cmd|' /C calc'!A1\x1b[2J\x1b]0;owned\x07\n\r\u202egnp.exe\x9b31m"
AWKWARD = [
    "007", "1", "", "true", "None", "a,b", 'say "x"', "two\nlines", "\r", "\r\n\r\n", "é🌼", "\x00", "\ud800",
    " ", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'", "''=1", "'\\x1b", "\\", "\\n", "C:\\new", EVIL,
]  # fmt: skip
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
TEXT = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(AWKWARD)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
CONFIGS = st.dictionaries(TEXT, SCALARS, max_size=3)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


def test_a_table_has_columns_rows_and_a_length_and_cannot_be_written_to():
    values = np.array([0.5, 1.0])
    table = Table({"agent": ["2", "007"], "trial": [0, np.int64(1)], "value": values, "none": [0.5, None]})
    assert (len(table), table.columns) == (2, ("agent", "trial", "value", "none"))
    assert table.kinds == {"agent": "text", "trial": "integer", "value": "real", "none": "real"}
    assert next(iter(table)) == {"agent": "2", "trial": 0, "value": 0.5, "none": 0.5}
    assert table.where(agent="007", trial=1)["agent"].tolist() == ["007"]
    with pytest.raises(ValueError, match="read-only"):
        table["value"][0] = 3.0
    values[0] = 3.0
    assert table["value"].tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("columns", "kinds", "message"),
    [
        ({"a": [1], "b": [1, 2]}, {}, "one length"),
        ({"a": ["1"]}, {"a": "real"}, "expected real values, got str"),
        ({"a": [True]}, {"a": "integer"}, "expected integer values, got bool"),
        ({"a": [2**70]}, {"a": "integer"}, "64 bits"),
        ({"a": [None]}, {"a": "text"}, "expected text values, got NoneType"),
        ({"a": np.zeros((2, 2))}, {}, "1 dimension"),
        ({"a": [1]}, {"a": "complex"}, "expected a kind"),
    ],
)
def test_values_of_another_kind_are_refused(columns, kinds, message):
    with pytest.raises(ConfigError, match=message):
        Table(columns, kinds)


def test_unknown_columns_and_rows_with_other_columns_are_named():
    with pytest.raises(ConfigError, match="no column 'vlaue'; there are value"):
        Table({"value": [1.0]})["vlaue"]
    with pytest.raises(ConfigError, match="row 1: expected the columns"):
        Table.from_rows([{"a": 1}, {"a": 1, "b": 2}], ["a"])
    with pytest.raises(ConfigError, match="expected the columns"):
        Table.concatenate([Table({"a": [1]}), Table({"a": [1.0]})])
    assert Table.concatenate([Table({"a": []}, {"a": "real"}), Table({"a": [1.5]})]) == Table({"a": [1.5]})


def test_equality_tells_types_in_configs_apart():
    assert Table({"config": [{"C": 1}]}) != Table({"config": [{"C": 1.0}]})
    assert Table({"config": [{"C": None}]}) != Table({"config": [{}]})
    assert Table({"config": [{"a": 1, "b": 2}]}) == Table({"config": [{"b": 2, "a": 1}]})
    assert Table({"value": [math.nan]}) == Table({"value": [math.nan]})
    assert Table({"value": []}, {"value": "real"}) != Table({"value": []}, {"value": "text"})


def test_a_table_reads_as_plain_csv_and_harmless_texts_are_written_as_they_are(tmp_path):
    configs = [{"C": 1.0}, {"kernel": "rbf"}, {}]
    table = Table({"agent": ["007", "C:\\new", "'x'"], "value": [0.1, math.nan, -1.0], "config": configs})
    layout = table.write_csv(tmp_path / "t.csv")
    text = "agent,value,config.C,config.kernel\n007,0.1,1.0,\nC:\\new,,,rbf\n''x',-1.0,,\n"
    assert (tmp_path / "t.csv").read_text() == text
    assert layout == {"agent": "text", "value": "real", "config": {"C": "real", "kernel": "text"}}
    assert Table.read_csv(tmp_path / "t.csv")["agent"].tolist() == ["007", "C:\\new", "'x'"]
    (tmp_path / "t.csv").write_bytes(b'agent,value\r\n007,0.5\r\n"2",')  # saved by another program
    table = Table.read_csv(tmp_path / "t.csv", {"agent": "text", "value": "real"})
    assert table == Table({"agent": ["007", "2"], "value": [0.5, None]}, {"value": "real"})
    config = {"C": np.float64(0.5), "depth": np.int64(3), "on": np.bool_(True)}
    table = Table({"config": [config], "failure": ["x" * 200_000]})
    back = Table.read_csv(tmp_path / "t.csv", table.write_csv(tmp_path / "t.csv"))
    assert repr(back["config"][0]) == "{'C': 0.5, 'depth': 3, 'on': True}"


@given(
    rows=st.lists(st.tuples(TEXT, st.floats(), INTEGERS, st.booleans(), CONFIGS), max_size=5),
    chunk=st.sampled_from([1, 2, 3, 50_000]),
)
@example(
    [(text, -0.0, -1, True, {"a": text, "b": 1 if k % 2 else text}) for k, text in enumerate(AWKWARD)], 2
)
def test_every_table_survives_its_csv_file_and_no_cell_of_it_can_be_run(tmp_path_factory, rows, chunk):
    path = tmp_path_factory.getbasetemp() / "round-trip.csv"
    kinds = {"text": "text", "real": "real", "integer": "integer", "flag": "boolean", "config": "config"}
    columns = list(zip(*rows, strict=True)) or [()] * 5
    table = Table(dict(zip(kinds, columns, strict=True)), kinds)
    layout = json.loads(json.dumps(table.write_csv(path)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "CHUNK", chunk)
        back = Table.read_csv(path, layout)
    assert back == table
    assert list(map(repr, back["real"].tolist())) == list(map(repr, table["real"].tolist()))
    for config, original in zip(back["config"], table["config"], strict=True):
        assert list(map(repr, sorted(config.items()))) == list(map(repr, sorted(original.items())))
    with path.open(encoding="utf-8", errors="surrogatepass", newline="") as file:
        header, *lines = csv.reader(file)
    written = [layout[name] for name in list(kinds)[:4]] + list(layout["config"].values())
    assert all(name.isprintable() for name in header)
    for cell, kind in [pair for line in lines for pair in zip(line, written, strict=True)]:
        assert kind == "json" or cell.isprintable()
        assert not {"\x1b", "\u202e", "\n"} & set(cell)
        is_number = kind in {"real", "integer"} or (kind == "json" and NUMBER.fullmatch(cell) is not None)
        assert is_number or not cell.startswith(("=", "+", "-", "@", "\t", "\r")), (kind, cell)


@given(TEXT)
def test_a_guarded_text_is_printable_and_comes_back(text):
    assert unguard(guard(text)) == text
    assert guard(text).isprintable()
    assert printable(printable(text)) == printable(text)


def test_config_values_that_have_no_cell_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="'layers': expected int, float, bool, str or None, got tuple"):
        Table({"config": [{"layers": (1, 2)}]}).write_csv(tmp_path / "t.csv")
    with pytest.raises(ConfigError, match="distinct CSV columns"):
        Table({"config": [{"C": 1}], "config.C": [2]}).write_csv(tmp_path / "t.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (b"a,b\n1,2\n\n", {"a": "text", "b": "text"}, "row 1: expected 2 cells, got 0"),
        (b'a,b\n1,2\n"3",4\n5,6,7\n', {"a": "text", "b": "text"}, "row 2: expected 2 cells, got 3"),
        (b"", {"a": "text"}, "expected the header"),
        (b"b\n1\n", {"a": "text"}, r"expected the header \['a'\], got \['b'\]"),
        (b"a\nx\n", {"a": "integer"}, "'a': expected integer cells"),
        (b"a\n99999999999999999999\n", {"a": "integer"}, "integer"),
        (b"a\nTrue\n", {"a": "boolean"}, "expected boolean cells"),
        (b'a\n"x\n', {"a": "text"}, "unexpected end"),
        (b"a\n\xff\n", {"a": "text"}, "expected a text in UTF-8, got the byte 0xff"),
        (b"a\n'\\q\n", {"a": "text"}, "not an escape"),
        (b"c.x\n[1]\n", {"c": {"x": "json"}}, "not a JSON scalar"),
        (b"c.x\n" + b"[" * 100_000 + b"\n", {"c": {"x": "json"}}, "expected json cells"),
        (b"c.x\n1\n", {"c": {"x": ["text"]}}, "expected a kind"),
        (b"a\n1\n", {"a": []}, "expected a kind among"),
    ],
)
def test_malformed_files_are_refused_by_name(tmp_path, content, layout, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        Table.read_csv(path, layout)
    assert str(path) in str(caught.value)
