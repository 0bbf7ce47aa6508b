"""The FTS experiments end to end, in a size that takes seconds: every job, every table, every picture."""

from __future__ import annotations

import numpy as np
from real_data import needs_data

from studies.jobs import open_directory, run_jobs, stack
from studies.papers import warm_start
from studies.papers.fts import landmine as fts_landmine
from studies.papers.fts import private as dp_fts
from studies.papers.fts import synthetic as fts_synthetic


@needs_data
def test_landmine_compares_variants_from_the_same_starting_points(tmp_path, monkeypatch):
    chosen = ("random", "ts", "ts clip", "fts single", "fts portfolio clip", "control portfolio clip")
    few = {name: fts_landmine.VARIANTS[name] for name in chosen}
    nothing = {name: fts_landmine.FROM_NOTHING[name] for name in ("ts", "ts clip", "fts portfolio clip")}
    monkeypatch.setattr(fts_landmine, "PRIOR_OBSERVATIONS", 8)
    monkeypatch.setattr(fts_landmine, "SCALES", ("log",))
    monkeypatch.setattr(fts_landmine, "VARIANTS", few)
    monkeypatch.setattr(fts_landmine, "FROM_NOTHING", nothing)
    directory = open_directory(tmp_path, {})
    for stage in fts_landmine.jobs(directory, 1, 1, 5, 2):
        run_jobs(stage, directory, 1)
    files = fts_landmine.report(directory, 1, 1, 5, 2)
    found = {v: stack(directory, "curves", [0], fts_landmine.run_targets, v, "log") for v in few}
    for curves in found.values():
        assert curves.shape == (1, 2, 6)
        np.testing.assert_array_equal(curves[:, :, 0], found["ts"][:, :, 0])
        assert (np.diff(curves, axis=2) >= 0).all()
    # other points are tried afterwards, so the variants are not one and the same
    assert len({curves.tobytes() for curves in found.values()}) > len(found) // 2
    text = files[0].read_text(encoding="utf-8")
    assert all(f"| {name} |" in text for name in few)
    assert [file.read_bytes()[:4] for file in files[1:]] == [b"\x89PNG"] * 2


@needs_data
def test_landmine_gives_the_target_nothing_and_the_others_fifty_observations():
    prior = fts_landmine.observe("log", 0, 2)
    assert [int(np.sum(prior["agent"] == agent)) for agent in (0, 1)] == [50, 50]
    assert np.isfinite(prior["values"]).all()
    assert ((prior["points"] >= 0) & (prior["points"] <= 1)).all()


def test_synthetic_measures_regret_of_the_target_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(fts_synthetic, "NUM_AGENTS", 4)
    monkeypatch.setattr(fts_synthetic, "NUM_OBSERVATIONS", (6, 8))
    held = {"observations": 8, "num_features": 100}
    some = {f"fts t={t} M={m}": {"observations": t, "num_features": m} for t in (6, 8) for m in (30, 50, 100)}
    some["fts t=100 M=100"] = held
    some[f"fts t=100 M=100 {fts_synthetic.FASTER[0]}"] = {**held, "schedule": "1-1/t"}
    some["fts t=100 portfolio"] = {"observations": 8, "advice": "portfolio", "schedule": "first-2"}
    some["control t=100"] = {"observations": 8, "advice": "random"}
    monkeypatch.setattr(fts_synthetic, "variants", lambda: {"ts": {}, **some})
    directory = open_directory(tmp_path, {})
    for stage in fts_synthetic.jobs(directory, 1, 1, 3):
        run_jobs(stage, directory, 1)
    files = fts_synthetic.report(directory, 1, 1, 3)
    ts = stack(directory, "ts", [0], fts_synthetic.run_function, 0.02)
    assert ts.shape == (1, 1, 4)
    for name in fts_synthetic.variants():
        regret = stack(directory, name, [0], fts_synthetic.run_function, 0.02)
        np.testing.assert_array_equal(regret[:, :, 0], ts[:, :, 0])
        assert (np.diff(regret, axis=2) <= 0).all()
        assert (regret >= 0).all()
    assert "d_n = 1.2" in files[0].read_text(encoding="utf-8")
    assert files[1].read_bytes()[:4] == b"\x89PNG"


# -- the experiments on privacy end to end, in a size that takes seconds -------------------------


@needs_data
def test_differential_privacy_compares_all_noises_with_a_control(tmp_path):
    directory = open_directory(tmp_path, {})
    run_jobs(dp_fts.jobs(1, 2, 2), directory, 1)
    results, picture = dp_fts.report(directory, 1, 2, 2)
    rows = {line.split(" | ")[0].strip("| "): line for line in results.read_text().splitlines()[2:]}
    assert set(dp_fts.VARIANTS) <= set(rows)
    epsilons = [float(rows[f"dp-fts z={z}"].split(" | ")[1]) for z in (1, 2, 4, 8)]
    assert epsilons == sorted(epsilons, reverse=True)
    assert rows["dp-fts no noise"].split(" | ")[1] == "no bound"
    assert rows["dp-fts control"].split(" | ")[1] == "0"
    assert picture.read_bytes()[:4] == b"\x89PNG"


@needs_data
def test_fields_that_are_held_out_never_tune_before(tmp_path, monkeypatch):
    groups = warm_start.groups()
    assert len({field for group in groups for field in group}) == 25
    assert [len(group) for group in groups] == [5] * 5
    tuned = []
    original = warm_start.SomeFields.true_value

    def record(self, config, partition):
        fields = [int(field) for field in self.fields.split(",")]
        tuned.append((fields, fields[partition]))
        return original(self, config, partition)

    monkeypatch.setattr(warm_start.SomeFields, "true_value", record)
    directory = open_directory(tmp_path, {})
    for group, cell in enumerate(warm_start.jobs(1, 3, 2)):
        tuned.clear()
        run_jobs([cell], directory, 1)
        earlier = {field for fields, field in tuned if len(fields) == 3}
        held_out = {field for fields, field in tuned if len(fields) == 5}
        assert held_out == set(groups[group])
        assert earlier
        assert not earlier & held_out
    results, picture = warm_start.report(directory, 1, 3, 2)
    text = results.read_text()
    assert all(f"| {variant} |" in text for variant in warm_start.VARIANTS)
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_saved_evaluations_are_counted_field_by_field():
    cold = np.array([[[0.1, 0.2, 0.3, 0.3], [0.5, 0.5, 0.5, 0.6]]])
    warm = np.array([[[0.1, 0.3, 0.3, 0.3], [0.1, 0.1, 0.1, 0.1]]])
    # field 1: after 1 instead of 2; field 2: never (4) instead of 3
    assert warm_start.saved(warm, cold, "a", "b").startswith(
        "Evaluations that a saves on b's last value: +0.0000"
    )
