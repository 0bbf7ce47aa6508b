"""Tables and studies: exact on disk, sorted, checked."""

from __future__ import annotations

import json
import math
import os
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_study import USUAL, made_study

from fbo_flower.errors import ConfigError
from fbo_flower.storage.files import atomic_file
from fbo_flower.study import Study
from fbo_flower.study import table as tables
from fbo_flower.study.ranking import incumbents, natural_order
from fbo_flower.study.schema import REGRET, ROUNDS, TRIALS
from fbo_flower.study.table import Table

TEXT = st.text(max_size=8) | st.sampled_from([
    "007", "1", "", "true", "None", "a,b", 'say "x"', "two\nlines", "\r", "\r\n", "é🌼", "\x00",
    "\ud800", " ",
])  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
CONFIGS = st.dictionaries(TEXT, SCALARS, max_size=3)


def trial(agent: str, number: int, value: float, algorithm: str = "ts", **config: Any) -> dict[str, Any]:
    key = {"algorithm": algorithm, "agent": agent, "round": number + 1, "trial": number}
    failure = "diverged" if math.isnan(value) else ""
    return USUAL["trials"] | key | {"config": config, "value": value, "failure": failure}


def a_study(trials: list[dict[str, Any]], *, algorithm: str = "ts") -> Study:
    rounds = [{"algorithm": algorithm, "round": k, "bytes_up": 50, "floats_up": 4.5} for k in (1, 2)]
    return made_study([{"algorithm": algorithm, "status": "finished"}], trials=trials, rounds=rounds)


@pytest.fixture
def study() -> Study:
    return a_study(
        [
            trial("10", 0, 0.1, C=1.0, kernel="rbf"),
            trial("2", 1, 0.5, C=2.0, kernel="1"),
            trial("2", 0, math.nan, C=3, kernel=""),
            trial("007", 0, 1 / 3, kernel=None, shrink=True),
        ]
    )


# Tables


def test_a_table_has_columns_rows_and_a_length() -> None:
    table = Table({"agent": ["2", "007"], "trial": [0, 1], "value": [0.5, None]})
    assert (len(table), table.columns) == (2, ("agent", "trial", "value"))
    assert table.kinds == {"agent": "text", "trial": "integer", "value": "real"}
    assert next(iter(table)) == {"agent": "2", "trial": 0, "value": 0.5}
    assert table.where(agent="007", trial=1)["agent"].tolist() == ["007"]


def test_columns_cannot_be_written_to() -> None:
    values = np.array([1.0, 2.0])
    table = Table({"value": values})
    with pytest.raises(ValueError, match="read-only"):
        table["value"][0] = 3.0
    values[0] = 3.0
    assert table["value"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("columns", "kinds", "message"),
    [
        ({"a": [1], "b": [1, 2]}, {}, "one length"),
        ({"a": ["1"]}, {"a": "real"}, "expected real values, got str"),
        ({"a": [1.5]}, {"a": "integer"}, "expected integer values, got float"),
        ({"a": [True]}, {"a": "integer"}, "expected integer values, got bool"),
        ({"a": [True]}, {"a": "real"}, "expected real values, got bool"),
        ({"a": [2**70]}, {"a": "integer"}, "64 bits"),
        ({"a": [None]}, {"a": "text"}, "expected text values, got NoneType"),
        ({"a": np.zeros((2, 2))}, {}, "1 dimension"),
        ({"a": [1]}, {"a": "complex"}, "expected a kind"),
    ],
)
def test_values_of_another_kind_are_refused(columns: Any, kinds: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Table(columns, kinds)


def test_python_and_numpy_integers_may_be_mixed() -> None:
    assert Table({"a": [1, np.int64(2)]})["a"].dtype == np.int64


def test_unknown_columns_and_rows_with_other_columns_are_named() -> None:
    with pytest.raises(ConfigError, match="no column 'vlaue'; there are value"):
        Table({"value": [1.0]})["vlaue"]
    with pytest.raises(ConfigError, match="row 1: expected the columns"):
        Table.from_rows([{"a": 1}, {"a": 1, "b": 2}], ["a"])
    with pytest.raises(ConfigError, match="expected the columns"):
        Table.concatenate([Table({"a": [1]}), Table({"a": [1.0]})])


def test_concatenated_tables_keep_kinds_even_without_rows() -> None:
    empty = Table.from_rows([], TRIALS)
    full = Table.from_rows([trial("1", 0, 0.5, C=1)], TRIALS)
    assert Table.concatenate([empty, full]) == full
    assert Table.concatenate([empty, empty]).kinds == TRIALS


def test_equality_tells_types_in_configs_apart() -> None:
    assert Table({"config": [{"C": 1}]}) != Table({"config": [{"C": 1.0}]})
    assert Table({"config": [{"C": 1}]}) != Table({"config": [{"C": True}]})
    assert Table({"config": [{"C": None}]}) != Table({"config": [{}]})
    assert Table({"config": [{"a": 1, "b": 2}]}) == Table({"config": [{"b": 2, "a": 1}]})
    assert Table({"value": [math.nan]}) == Table({"value": [math.nan]})


def test_pandas_sees_the_same_columns_or_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ImportError

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'fbo-flower\[pandas\]'"):
        Table({"a": [1]}).to_pandas()
    monkeypatch.undo()
    pytest.importorskip("pandas")
    frame = Table({"agent": ["007"], "config": [{"C": 1}]}).to_pandas()
    assert frame.loc[0, "agent"] == "007"
    assert frame.loc[0, "config"] == {"C": 1}


# CSV


def test_a_table_reads_as_plain_csv(tmp_path: Path) -> None:
    table = Table(
        {"agent": ["007", "2"], "value": [0.1, math.nan], "config": [{"C": 1.0}, {"kernel": "rbf"}]}
    )
    layout = table.write_csv(tmp_path / "t.csv")
    text = "agent,value,config.C,config.kernel\n007,0.1,1.0,\n2,,,rbf\n"
    assert (tmp_path / "t.csv").read_text() == text
    assert layout == {"agent": "text", "value": "real", "config": {"C": "real", "kernel": "text"}}
    assert Table.read_csv(tmp_path / "t.csv")["agent"].tolist() == ["007", "2"]


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.tuples(TEXT, st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans(), CONFIGS), max_size=5
    )
)
def test_every_table_survives_its_csv_file(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.csv"
    kinds = {"text": "text", "real": "real", "integer": "integer", "flag": "boolean", "config": "config"}
    columns = list(zip(*rows, strict=True)) or [()] * 5
    table = Table(dict(zip(kinds, columns, strict=True)), kinds)  # type: ignore[arg-type]
    layout = json.loads(json.dumps(table.write_csv(path)))
    back = Table.read_csv(path, layout)
    assert back == table
    assert list(map(repr, back["real"].tolist())) == list(map(repr, table["real"].tolist()))
    for config, original in zip(back["config"], table["config"], strict=True):
        assert config == original
        assert {name: type(value) for name, value in config.items()} == {
            name: type(value) for name, value in original.items()
        }


def test_numpy_scalars_in_configs_become_python_ones(tmp_path: Path) -> None:
    table = Table({"config": [{"C": np.float64(0.5), "depth": np.int64(3), "on": np.bool_(True)}]})
    back = Table.read_csv(tmp_path / "t.csv", table.write_csv(tmp_path / "t.csv"))
    assert back["config"].tolist() == [{"C": 0.5, "depth": 3, "on": True}]
    assert back == table


def test_config_values_that_have_no_cell_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'layers': expected int, float, bool, str or None, got tuple"):
        Table({"config": [{"layers": (1, 2)}]}).write_csv(tmp_path / "t.csv")
    with pytest.raises(ConfigError, match="distinct CSV columns"):
        Table({"config": [{"C": 1}], "config.C": [2]}).write_csv(tmp_path / "t.csv")
    assert not list(tmp_path.iterdir())


def test_a_long_traceback_can_be_read_again(tmp_path: Path) -> None:
    table = Table({"failure": ["x" * 200_000]})
    assert Table.read_csv(tmp_path / "t.csv", table.write_csv(tmp_path / "t.csv")) == table


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_a_file_reads_the_same_in_blocks_of_any_size(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["plain", "two\nlines", 'say "x"', "a,b", "\r", "", "\r\n\r\n", "\n", "end"]
    table = Table({"text": texts, "value": [0.1, None, 2.0, -0.0, 1e300, 3.0, 4.0, 5.0, math.inf]})
    single = Table({"text": texts})
    monkeypatch.setattr(tables, "CHUNK", chunk)
    for written in (table, single):
        path = tmp_path / "t.csv"
        assert Table.read_csv(path, written.write_csv(path)) == written


@pytest.mark.parametrize("ending", [b"\r\n", b"\n"])
def test_a_file_that_another_program_saved_reads_the_same(ending: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(ending.join([b"agent,value", b"007,0.5", b'"2",']))  # no newline at the end
    table = Table.read_csv(path, {"agent": "text", "value": "real"})
    assert table == Table({"agent": ["007", "2"], "value": [0.5, None]}, {"value": "real"})


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (b"a,b\n1,2\n\n", {"a": "text", "b": "text"}, "row 1: expected 2 cells, got 0"),
        (b"a\n1\n\n", {"a": "text"}, "row 1: expected 1 cells, got 0"),
        (b'a,b\n1,2\n"3",4\n5,6,7\n', {"a": "text", "b": "text"}, "row 2: expected 2 cells, got 3"),
        (b"", {"a": "text"}, "expected the header"),
        (b"b\n1\n", {"a": "text"}, r"expected the header \['a'\], got \['b'\]"),
        (b"a,b\n1\n", {"a": "text", "b": "text"}, "row 0: expected 2 cells, got 1"),
        (b"a\nx\n", {"a": "integer"}, "'a': expected integer cells"),
        (b"a\n99999999999999999999\n", {"a": "integer"}, "integer"),
        (b"a\nx\n", {"a": "real"}, "'a': expected real cells"),
        (b"a\nTrue\n", {"a": "boolean"}, "neither true nor false"),
        (b'a\n"x\n', {"a": "text"}, "unexpected end"),
        (b"a\n\xff\n", {"a": "text"}, "decode"),
        (b"c.x\n[1]\n", {"c": {"x": "json"}}, "not a JSON scalar"),
        (b"c.x\n" + b"[" * 100_000 + b"\n", {"c": {"x": "json"}}, "expected json cells"),
        (b"c.x\n1\n", {"c": {"x": "config"}}, "expected a kind"),
        (b"c.x\n1\n", {"c": {"x": ["text"]}}, "expected a kind"),
        (b"a\n1\n", {"a": "pickle"}, "expected a kind"),
    ],
)
def test_malformed_files_are_refused_by_name(
    tmp_path: Path, content: bytes, layout: dict[str, Any], message: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        Table.read_csv(path, layout)
    assert str(path) in str(caught.value)


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("old")

    def write_half() -> None:
        with atomic_file(path, text=True) as file:
            file.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("t.csv", "old")]


# Studies


def test_trials_are_sorted_by_algorithm_agent_and_trial() -> None:
    study = Study(
        {"schema": 2, "runs": [{"algorithm": "ts"}, {"algorithm": "fts"}]},
        Table.from_rows(
            [trial("10", 1, 0.1), trial("2", 0, 0.2, "fts"), trial("10", 0, 0.3), trial("2", 0, 0.4)], TRIALS
        ),
        Table.from_rows([], ROUNDS),
    )
    order = [(row["algorithm"], row["agent"], row["trial"]) for row in study.trials]
    assert order == [("ts", "2", 0), ("ts", "10", 0), ("ts", "10", 1), ("fts", "2", 0)]
    assert study.algorithms == ["ts", "fts"]


def test_agents_are_in_natural_order() -> None:
    names = ["site-10", "10", "007", "7", "site-2", "b", "", "9" * 5000, "2"]
    expected = ["", "2", "007", "7", "10", "9" * 5000, "b", "site-2", "site-10"]
    assert sorted(names, key=natural_order) == expected


def test_the_best_of_each_agent_is_its_first_best_trial(study: Study) -> None:
    assert study.best["2"] == {"config": {"C": 2.0, "kernel": "1"}, "value": 0.5, "algorithm": "ts"}
    assert list(study.best) == ["2", "007", "10"]
    tied = a_study([trial("1", 1, 0.5, C=2), trial("1", 0, 0.5, C=1), trial("2", 0, math.nan)])
    assert tied.best == {"1": {"config": {"C": 1}, "value": 0.5, "algorithm": "ts"}}


def test_the_best_of_all_agents_is_found_drawn_and_reported(study: Study, tmp_path: Path) -> None:
    entries = list(study.best.values())
    assert study.best_value == max(entry["value"] for entry in entries)
    assert {"config": study.best_config, "value": study.best_value}.items() <= max(
        entries, key=lambda entry: entry["value"]
    ).items()
    pytest.importorskip("matplotlib", reason="needs the extra simulation")
    assert len(study.plot(title="mine").axes) > 1
    study.report(tmp_path / "page.html")
    assert "</html>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_without_a_value_there_is_no_best(study: Study) -> None:
    hidden = Study(study.settings, study.trials.take(study.trials["trial"] < 0), study.rounds)
    with pytest.raises(ConfigError, match="best: expected an agent that has disclosed a finite value"):
        hidden.best_config  # noqa: B018


def test_a_recommendation_may_come_without_trials(tmp_path: Path) -> None:
    recommendations = Table({"algorithm": ["ts"], "agent": ["1"], "value": [0.5], "config": [{"C": 1}]})
    none = Table.from_rows([], TRIALS)
    study = Study({"schema": 2, "runs": []}, none, Table.from_rows([], ROUNDS), None, recommendations)
    study.save(tmp_path)
    assert Study.load(tmp_path).best == {"1": {"config": {"C": 1}, "value": 0.5, "algorithm": "ts"}}


def test_a_saved_study_is_equal_when_loaded(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path / "deep" / "er")
    loaded = Study.load(tmp_path / "deep" / "er")
    assert loaded == study
    assert loaded.best == study.best
    assert loaded.trials["config"].tolist() == study.trials["config"].tolist()
    assert sorted(os.listdir(tmp_path / "deep" / "er")) == [
        "best.json",
        "rounds.csv",
        "study.json",
        "trials.csv",
    ]


def test_equal_studies_are_saved_as_equal_bytes(study: Study, tmp_path: Path) -> None:
    rows = [{**row, "config": dict(reversed(row["config"].items()))} for row in study.trials][::-1]
    settings = dict(reversed(study.settings.items()))
    other = Study(settings, Table.from_rows(rows, TRIALS), study.rounds)
    assert other == study
    study.save(tmp_path / "a")
    other.save(tmp_path / "b")
    Study.load(tmp_path / "a").save(tmp_path / "c")
    for name in os.listdir(tmp_path / "a"):
        content = (tmp_path / "a" / name).read_bytes()
        assert content == (tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(TEXT, TEXT, st.floats(), CONFIGS), max_size=6), name=TEXT)
def test_every_study_survives_its_directory(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], name: str
) -> None:
    directory = tmp_path_factory.getbasetemp() / "every-study"
    trials = [trial(agent, i, value, label, **{}) for i, (agent, label, value, _) in enumerate(rows)]
    for row, (_, _, _, config) in zip(trials, rows, strict=True):
        row["config"] = config
    meta = {"schema": 2, "name": name, "runs": []}
    study = Study(meta, Table.from_rows(trials, TRIALS), Table.from_rows([], ROUNDS))
    study.save(directory)
    loaded = Study.load(directory)
    assert loaded == study
    assert loaded.algorithms == study.algorithms


def test_regret_is_kept_where_it_is_known_and_an_old_file_goes(study: Study, tmp_path: Path) -> None:
    known = {"algorithm": "ts", "agent": "2", "evaluations": 1, "cumulative": 0.5, "simple": 0.25}
    with_regret = Study(study.settings, study.trials, study.rounds, Table.from_rows([known], REGRET))
    with_regret.save(tmp_path)
    assert Study.load(tmp_path) == with_regret
    study.save(tmp_path)
    assert not (tmp_path / "regret.csv").exists()
    assert len(Study.load(tmp_path).regret) == 0


def test_merged_studies_come_apart_again(study: Study) -> None:
    other = a_study([trial("2", 0, 0.75, "fts", C=1.0)], algorithm="fts")
    merged = Study.merge([study, other], name="both")
    assert merged.algorithms == ["ts", "fts"]
    assert merged.settings["name"] == "both"
    assert merged.only("ts") == Study({**study.settings, "name": "both"}, study.trials, study.rounds)
    assert merged.only("fts").trials == other.trials
    assert merged.best["2"]["algorithm"] == "fts"
    assert merged.only("ts").best["2"]["value"] == 0.5
    with pytest.raises(ConfigError, match="expected one of ts, fts, got 'rgpe'"):
        merged.only("rgpe")


def test_two_runs_of_one_algorithm_merge_under_two_labels(study: Study, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got ts in several studies"):
        Study.merge([study, study])
    merged = Study.merge([study, study.relabel("ts", "ts, again")])
    merged.save(tmp_path)
    assert Study.load(tmp_path).algorithms == ["ts", "ts, again"]
    assert merged.run("ts, again")["algorithm"] == "ts"
    assert len(merged.only("ts, again").trials) == len(study.trials)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 1}, "expected schema 2, got 1"),
        ({"schema": True}, "expected schema 2, got True"),
        ({"runs": 3}, "runs: expected a list"),
        ({"runs": [{}]}, r"runs\[0\].algorithm: expected a str"),
        ({"runs": [{"algorithm": "ts", "status": "fine"}]}, "status: expected one of"),
        ({"runs": [{"algorithm": "ts"}, {"algorithm": "ts"}]}, "different labels"),
        ({"tables": {}}, "reserved for the study"),
        ({"options": object()}, "expected plain JSON"),
    ],
)
def test_settings_of_another_form_are_refused(study: Study, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Study({**study.settings, **changes}, study.trials, study.rounds)


def test_a_study_is_read_only(study: Study) -> None:
    with pytest.raises(FrozenInstanceError):
        study.trials = study.rounds  # type: ignore[misc]


def test_tables_with_other_columns_are_refused(study: Study) -> None:
    with pytest.raises(ConfigError, match="rounds: expected the columns"):
        Study(study.settings, study.trials, study.trials)


def test_a_directory_that_cannot_be_written_is_named(study: Study, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file.*cannot be written"):
        study.save(tmp_path / "file")


@pytest.mark.parametrize("name", ["study.json", "trials.csv", "rounds.csv", "best.json"])
def test_a_missing_file_is_named(study: Study, tmp_path: Path, name: str) -> None:
    study.save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=name):
        Study.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("study.json", "{", "expected JSON"),
        ("study.json", "[]", "settings: expected a dict, got list"),
        ("study.json", "\0", "expected JSON"),
        ("study.json", "[" * 100_000, "expected JSON"),
        ("study.json", '{"schema": 7}', "expected schema 2, got 7"),
        ("study.json", '{"schema": 2, "runs": []}', "tables: expected a dict"),
        (
            "study.json",
            '{"schema": 2, "runs": [], "tables": {"trials": 3}}',
            "tables.trials: expected a dict",
        ),
        ("best.json", "[]", "best: expected a dict"),
        ("best.json", "[" * 100_000, "expected JSON"),
        ("best.json", '{"ts": {"1": {"value": "high", "config": {}}}}', "expected real values"),
        ("best.json", '{"ts": {"1": {"value": 1}}}', "expected the columns"),
        ("trials.csv", "algorithm\n", "expected the header"),
    ],
)
def test_a_malformed_study_is_refused_by_name(
    study: Study, tmp_path: Path, name: str, content: str, message: str
) -> None:
    study.save(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        Study.load(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


def test_a_truncated_table_is_noticed(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path)
    lines = (tmp_path / "trials.csv").read_text().splitlines(keepends=True)
    (tmp_path / "trials.csv").write_text("".join(lines[:-1]))
    with pytest.raises(ConfigError, match=r"expected 4 rows as study\.json says, got 3"):
        Study.load(tmp_path)


# Incumbents


def test_incumbents_keep_the_best_through_failures() -> None:
    nan = math.nan
    values = {"2": [nan, 0.3, 0.1, nan, 0.4], "10": [0.2, 0.5], "11": [nan, nan]}
    rows = [trial(agent, 7 + 3 * k, value) for agent, own in values.items() for k, value in enumerate(own)]
    agents, curves = incumbents(Table.from_rows(rows[::-1], TRIALS))  # in any order, trials with gaps
    expected = [[nan, 0.3, 0.3, 0.3, 0.4], [0.2, 0.5, nan, nan, nan], [nan] * 5]
    assert agents == ["2", "10", "11"]
    np.testing.assert_array_equal(curves, expected)


def test_there_are_no_incumbents_without_trials() -> None:
    agents, curves = incumbents(Table.from_rows([], TRIALS))
    assert (agents, curves.shape) == ([], (0, 0))


def test_incumbents_of_two_algorithms_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="got fts, ts"):
        incumbents(Table.from_rows([trial("1", 0, 0.1), trial("1", 0, 0.1, "fts")], TRIALS))


@given(values=st.lists(st.lists(st.floats(-9, 9) | st.just(math.nan), min_size=1, max_size=6), min_size=1))
def test_incumbents_are_running_maxima(values: list[list[float]]) -> None:
    rows = [trial(str(i), k, value) for i, own in enumerate(values) for k, value in enumerate(own)]
    _, curves = incumbents(Table.from_rows(rows, TRIALS))
    for own, curve in zip(values, curves.tolist(), strict=True):
        for k in range(len(curve)):
            known = [value for value in own[: k + 1] if not math.isnan(value)]
            expected = max(known) if known and k < len(own) else math.nan
            assert curve[k] == expected or (math.isnan(curve[k]) and math.isnan(expected))


def test_a_layout_whose_kind_is_no_text_is_a_clear_error(tmp_path):
    path = tmp_path / "t.csv"
    Table({"a": np.array([1, 2])}).write_csv(path)
    with pytest.raises(ConfigError, match="expected a kind among"):
        Table.read_csv(path, {"a": []})
