import numpy as np
import pytest

from studies.papers.compare import clearly_worse, draw, gain, iterations_to, markdown_table
from studies.report import clustered


def test_repetitions_on_one_target_do_not_shrink_the_standard_error():
    rng = np.random.default_rng(0)
    targets = rng.standard_normal(20)
    once = clustered(targets[None, :])
    often = clustered(np.repeat(targets[None, :], 50, axis=0))
    assert often.stderr == pytest.approx(once.stderr)
    assert once.stderr == pytest.approx(targets.std(ddof=1) / np.sqrt(20))
    naive = targets.std(ddof=1) / np.sqrt(20 * 50)
    assert often.stderr > 5 * naive


def test_gain_is_paired_by_repetition_and_target():
    rng = np.random.default_rng(1)
    base = rng.standard_normal((4, 6, 3)) * 100
    assert gain(base + 0.5, base, 2).mean == pytest.approx(0.5)
    assert gain(base + 0.5, base, 2).stderr == pytest.approx(0.0, abs=1e-12)


def test_iterations_to_a_level_count_from_the_starting_points():
    curves = np.array([[[0.1, 0.2, 0.5, 0.6]]])
    assert iterations_to(curves, 0.5) == 2
    assert iterations_to(curves, 0.1) == 0
    assert iterations_to(curves, 0.7) is None


def test_clearly_worse_counts_targets_that_lose_beyond_two_standard_errors():
    base = np.zeros((4, 3, 2))
    mine = base.copy()
    mine[:, 0, 1] = [-1.0, -1.1, -0.9, -1.0]  # clearly worse
    mine[:, 1, 1] = [-1.0, 1.0, -1.0, 1.0]  # noise
    mine[:, 2, 1] = 1.0
    assert clearly_worse(mine, base, 1) == pytest.approx(1 / 3)


def test_table_has_a_row_per_variant_and_pairs_with_the_baseline_it_names():
    ts = np.zeros((2, 3, 6))
    curves = {"ts": ts, "a": ts + 1.0, "ts clip": ts + 0.5, "a clip": ts + 0.75}
    table = markdown_table(curves, {"a clip": "ts clip"}, checkpoints=(2, 5))
    rows = {line.split("|")[1].strip(): line for line in table.splitlines()[2:]}
    assert set(rows) == set(curves)
    assert "+0.2500" in rows["a clip"]
    assert "+1.0000" in rows["a"]


def test_picture_has_a_panel_per_setting(tmp_path):
    rng = np.random.default_rng(2)
    ts = np.maximum.accumulate(rng.random((3, 4, 11)), axis=2)
    draw({"one": {"ts": ts, "a": ts + 0.1}, "two": {"ts": ts}}, {}, tmp_path / "x.png", ylabel="gain")
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
