"""The experiments on privacy end to end, in a size that takes seconds."""

from __future__ import annotations

import numpy as np
from real_data import needs_data

from studies.jobs import open_directory, run_jobs
from studies.papers import warm_start
from studies.papers.fts import private as dp_fts


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
