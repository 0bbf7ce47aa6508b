"""Studies: sorted, checked, equal after a save, and named in the error where a file is damaged."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_study import USUAL, changed, made_study
from test_table import CONFIGS, TEXT

from fbo_flower.errors import ConfigError
from fbo_flower.study import Study
from fbo_flower.study.ranking import incumbents, natural_order
from fbo_flower.study.schema import REGRET, ROUNDS, TRIALS
from fbo_flower.study.table import Table

NAN = math.nan


def trial(agent, number, value, algorithm="ts", **config):
    key = {"algorithm": algorithm, "agent": agent, "round": number + 1, "trial": number}
    failure = "diverged" if math.isnan(value) else ""
    return USUAL["trials"] | key | {"config": config, "value": value, "failure": failure}


def a_study(trials, *, algorithm="ts"):
    rounds = [{"algorithm": algorithm, "round": k, "bytes_up": 50, "floats_up": 4.5} for k in (1, 2)]
    return made_study([{"algorithm": algorithm, "status": "finished"}], trials=trials, rounds=rounds)


TRIALS_OF_THREE = [
    trial("10", 0, 0.1, C=1.0, kernel="rbf"), trial("2", 1, 0.5, C=2.0, kernel="1"),
    trial("2", 0, NAN, C=3, kernel=""), trial("007", 0, 1 / 3, kernel=None, shrink=True),
]  # fmt: skip


@pytest.fixture
def study():
    return a_study(TRIALS_OF_THREE)


def test_rows_are_sorted_by_algorithm_agent_and_trial():
    rows = [trial("10", 1, 0.1), trial("2", 0, 0.2, "fts"), trial("10", 0, 0.3), trial("2", 0, 0.4)]
    study = made_study([{"algorithm": "ts"}, {"algorithm": "fts"}], trials=rows)
    order = [(row["algorithm"], row["agent"], row["trial"]) for row in study.trials]
    assert order == [("ts", "2", 0), ("ts", "10", 0), ("ts", "10", 1), ("fts", "2", 0)]
    assert study.algorithms == ["ts", "fts"]
    names = ["site-10", "10", "007", "7", "site-2", "b", "", "9" * 5000, "2"]
    expected = ["", "2", "007", "7", "10", "9" * 5000, "b", "site-2", "site-10"]
    assert sorted(names, key=natural_order) == expected


def test_the_best_of_each_agent_is_its_first_best_trial(study):
    assert study.best["2"] == {"config": {"C": 2.0, "kernel": "1"}, "value": 0.5, "algorithm": "ts"}
    assert list(study.best) == ["2", "007", "10"]
    assert (study.best_value, study.best_config) == (0.5, {"C": 2.0, "kernel": "1"})
    tied = a_study([trial("1", 1, 0.5, C=2), trial("1", 0, 0.5, C=1), trial("2", 0, NAN)])
    assert tied.best == {"1": {"config": {"C": 1}, "value": 0.5, "algorithm": "ts"}}
    runs = [{"algorithm": name} for name in ("ts", "fts")]
    both = made_study(runs, trials=[trial("1", 0, 0.5, "fts", C=2), trial("1", 0, 0.5, C=1)])
    assert both.best == tied.best, "of equal ones that of the first run"
    losses = made_study([{"algorithm": "ts", "minimize": True}], trials=TRIALS_OF_THREE)
    assert (losses.best_value, losses.best_config) == (0.1, {"C": 1.0, "kernel": "rbf"})
    with pytest.raises(ConfigError, match="best: expected an agent that has disclosed a finite value"):
        changed(study, trials=[]).best_config  # noqa: B018
    with pytest.raises(AttributeError, match="a Study has no best_params; here that is best_config, or best"):
        study.best_params  # noqa: B018


def test_equal_studies_are_saved_as_equal_bytes_and_are_equal_when_loaded(study, tmp_path):
    rows = [{**row, "config": dict(reversed(row["config"].items()))} for row in study.trials][::-1]
    other = Study(dict(reversed(study.settings.items())), Table.from_rows(rows, TRIALS), study.rounds)
    assert other == study
    known = {"algorithm": "ts", "agent": "2", "evaluations": 1, "cumulative": 0.5, "simple": 0.25}
    regret = Table.from_rows([known], REGRET)
    with_regret = Study(study.settings, study.trials, study.rounds, regret)
    with_regret.save(tmp_path / "deep" / "er")
    assert Study.load(tmp_path / "deep" / "er") == with_regret
    study.save(tmp_path / "deep" / "er")
    other.save(tmp_path / "b")
    loaded = Study.load(tmp_path / "deep" / "er")
    assert loaded == study
    assert loaded.best == study.best
    files = {path.name: path.read_bytes() for path in (tmp_path / "deep" / "er").iterdir()}
    assert files.keys() == {"best.json", "rounds.csv", "study.json", "trials.csv"}, "regret.csv is gone"
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    with pytest.raises(ConfigError, match=r"best\.json.*cannot be written"):
        study.save(tmp_path / "b" / "best.json")


@given(rows=st.lists(st.tuples(TEXT, TEXT, st.floats(), CONFIGS), max_size=6), name=TEXT)
def test_every_study_survives_its_directory(tmp_path_factory, rows, name):
    directory = tmp_path_factory.getbasetemp() / "every-study"
    trials = [trial(*(row[0], i, row[2], row[1])) | {"config": row[3]} for i, row in enumerate(rows)]
    meta = {"schema": 2, "name": name, "runs": []}
    study = Study(meta, Table.from_rows(trials, TRIALS), Table.from_rows([], ROUNDS))
    study.save(directory)
    loaded = Study.load(directory)
    assert loaded == study
    assert loaded.algorithms == study.algorithms


def test_merged_studies_come_apart_again_and_two_runs_of_one_algorithm_need_two_labels(study, tmp_path):
    other = a_study([trial("2", 0, 0.75, "fts", C=1.0)], algorithm="fts")
    later = {"created": "2026-01-02T00:00:00+00:00", "versions": {"numpy": "3"}}
    other = replace(other, settings={**other.settings, **later})
    merged = Study.merge([study, other], name="both")
    assert merged.algorithms == ["ts", "fts"]
    told = {"name": "both", "created": "2026-01-02T00:00:00+00:00"}
    assert merged.only("ts") == Study({**study.settings, **told}, study.trials, study.rounds)
    assert [run.get("versions") for run in merged.settings["runs"]] == [None, {"numpy": "3"}]
    assert merged.only("fts").trials == other.trials
    with pytest.raises(ConfigError, match="expected one of ts, fts, got 'rgpe'"):
        merged.only("rgpe")
    with pytest.raises(ConfigError, match="got ts in several studies"):
        Study.merge([study, study])
    Study.merge([study, study.relabel("ts", "ts, again")]).save(tmp_path)
    assert Study.load(tmp_path).algorithms == ["ts", "ts, again"]
    with pytest.raises(ConfigError, match="expected a known name and a new one"):
        merged.relabel("ts", "fts")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": True}, "expected schema 2, got True"),
        ({"runs": 3}, "runs: expected a list"),
        ({"runs": [{}]}, r"runs\[0\].algorithm: expected a str"),
        ({"runs": [{"algorithm": "ts", "status": "fine"}]}, "status: expected one of"),
        ({"runs": [{"algorithm": "ts"}, {"algorithm": "ts"}]}, "different labels"),
        ({"tables": {}}, "reserved for the study"),
        ({"options": object()}, "expected plain JSON"),
    ],
)
def test_settings_of_another_form_are_refused(study, changes, message):
    with pytest.raises(ConfigError, match=message):
        Study({**study.settings, **changes}, study.trials, study.rounds)


def test_a_study_is_read_only_and_refuses_tables_with_other_columns(study):
    with pytest.raises(FrozenInstanceError):
        study.trials = study.rounds
    with pytest.raises(ConfigError, match="rounds: expected the columns"):
        Study(study.settings, study.trials, study.trials)


MISSING = None
NESTED = "[" * 100_000
EMPTY_ROUNDS = ",".join(ROUNDS) + "\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("study.json", MISSING, "no such file"),
        ("rounds.csv", MISSING, "cannot be read"),
        ("best.json", MISSING, "no such file"),
        ("study.json", "[]", "settings: expected a dict, got list"),
        ("study.json", "\0", "expected JSON"),
        ("study.json", NESTED, "expected JSON"),
        ("study.json", '{"schema": 2, "runs": []}', "tables: expected a dict"),
        ("study.json", '{"schema": 2, "tables": {"trials": 3}}', "tables.trials: expected a dict"),
        ("best.json", "[]", "best: expected a dict"),
        ("best.json", '{"ts": {"1": {"value": "high", "config": {}}}}', "expected real values"),
        ("best.json", '{"ts": {"1": {"value": 1}}}', "expected the columns"),
        ("trials.csv", "algorithm\n", "expected the header"),
        ("rounds.csv", EMPTY_ROUNDS, r"expected 2 rows as study\.json says, got 0"),
    ],
)
def test_a_missing_or_malformed_file_is_named(study, tmp_path, name, content, message):
    study.save(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        Study.load(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


def test_incumbents_keep_the_best_through_failures():
    values = {"2": [NAN, 0.3, 0.1, NAN, 0.4], "10": [0.2, 0.5], "11": [NAN, NAN]}
    rows = [trial(agent, 7 + 3 * k, value) for agent, own in values.items() for k, value in enumerate(own)]
    agents, curves = incumbents(Table.from_rows(rows[::-1], TRIALS))  # in any order, trials with gaps
    expected = [[NAN, 0.3, 0.3, 0.3, 0.4], [0.2, 0.5, NAN, NAN, NAN], [NAN] * 5]
    assert agents == ["2", "10", "11"]
    np.testing.assert_array_equal(curves, expected)
    agents, curves = incumbents(Table.from_rows([], TRIALS))
    assert (agents, curves.shape) == ([], (0, 0))
    with pytest.raises(ConfigError, match="got fts, ts"):
        incumbents(Table.from_rows([trial("1", 0, 0.1), trial("1", 0, 0.1, "fts")], TRIALS))


def test_a_trial_is_a_row_of_the_data_frame_and_a_parameter_is_a_column():
    pandas = pytest.importorskip("pandas")
    times = [{"algorithm": "ts", "agent": "007", "trial": 0, "started": 1.7e9, "ended": 1.7e9 + 90.5}]
    configs = {"C": 1.0, "value": 3, "depth": 1, "on": True}, {"value": 4, "depth": "deep", "on": False}
    rows = [trial("007", k, value) | {"config": configs[k]} for k, value in enumerate((0.5, NAN))]
    study = made_study([{"algorithm": "ts"}], trials=rows, times=times)
    frame = study.to_dataframe()
    assert frame["started"][0] == pandas.Timestamp(1.7e9, unit="s", tz="UTC")
    assert frame["started"].isna().tolist() == [False, True]
    assert (frame["ended"] - frame["started"]).dt.total_seconds()[0] == 90.5
    names = "algorithm agent round trial value state started ended config.C config.value config.depth"
    assert list(frame.columns) == [*names.split(), "config.on", "pulls", "regret", "failure"]
    assert frame["config.on"].dtype == np.bool_
    assert frame["agent"].tolist() == ["007", "007"]
    assert frame["config.C"].isna().tolist() == [False, True]
    assert frame["config.depth"].tolist() == [1, "deep"]
    assert frame["state"].tolist() == ["succeeded", "failed"]
    assert frame["failure"].tolist() == ["", "diverged"]
    frame.loc[0, "value"] = 7.0
    assert study.trials["value"][0] == 0.5, "a copy"
