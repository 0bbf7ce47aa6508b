"""Tables of pulls add up as a dict of lists of values does."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.numerics.bandits import partition
from fbo_flower.numerics.bandits.pulls import CellPulls, Pulls, Survivors, joint_deviations


@pytest.mark.parametrize("seed", range(4))
def test_pulls_of_cells_add_up_as_in_a_dict(seed: int):
    rng = np.random.default_rng(seed)
    table = CellPulls.read({}, "cells.")
    plain: dict[int, tuple[list[float], int]] = {}
    for _ in range(12):
        cells = np.sort(rng.choice(np.arange(1, 30), int(rng.integers(1, 6)), replace=False))
        values = [rng.standard_normal(int(n)).tolist() for n in rng.integers(0, 4, len(cells))]
        failed = rng.integers(0, 3, len(cells))
        total, within = [sum(v) for v in values], [len(v) * float(np.var(v)) if v else np.nan for v in values]
        own = table.of(cells).add(np.arange(len(cells)), [len(v) for v in values], total, within, failed)
        table = table.updated(own)
        for cell, new, fails in zip(cells.tolist(), values, failed.tolist(), strict=True):
            known, before = plain.get(cell, ([], 0))
            plain[cell] = [*known, *new], before + fails
    assert table.cell.tolist() == sorted(plain)
    found = CellPulls.read(table.arrays("cells."), "cells.").of(np.arange(1, 40))
    for row, cell in enumerate(range(1, 40)):
        values, fails = plain.get(cell, ([], 0))
        assert (found.count[row], found.failed[row]) == (len(values), fails)
        assert found.in_vain[row] == (0 if values else fails)
        assert found.means(-7.0)[row] == pytest.approx(np.mean(values) if values else -7.0)
        assert found.within[row] == pytest.approx(len(values) * np.var(values) if values else 0.0)


def test_the_table_before_is_left_as_it_was():
    table = Pulls.read({}, "", 3)
    more = table.add([1], 2, 6.0, 2.0, 1)
    assert not table.count.any()
    assert more.joined(table).count.tolist() == [0, 2, 0, 0, 0, 0]
    assert more.means().tolist() == [0.0, 3.0, 0.0]


def survivors(depths: list[int], indices: list[int], arity: int = 2):
    values = np.arange(len(depths), dtype=np.float64)
    return Survivors(partition.number(depths, indices, arity), values, values)


def test_survivors_are_found_by_depth_and_replaced_by_newer_ones():
    mine = survivors([0, 1, 1], [0, 0, 1]).updated(survivors([1, 2], [1, 3]))
    assert mine.cell.tolist() == [1, 2, 3, 7]
    assert mine.mean.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert mine.at(1, 2).cell.tolist() == [2, 3]
    assert mine.at(2, 2).cell.tolist() == [7]


@pytest.mark.parametrize(("cells", "arity", "sound"), [
    ([1, 8 + 7], 2, True), ([1, 2**9], 2, False), ([0, 1], 2, False), ([3, 2], 2, False), ([2, 2], 2, False),
    ([4 + 3], 4, True), ([4 + 4], 4, False), ([15], 4, False), ([-3, 1], 2, False),
])  # fmt: skip
def test_cells_outside_the_partition_and_in_disorder_are_found(
    cells: list[int], arity: int, sound: bool
) -> None:
    ones = np.ones(len(cells))
    assert Survivors(np.array(cells), ones, ones).are_sound(arity, 8) is sound
    assert not Survivors(np.array([1]), np.array([np.nan]), np.ones(1)).are_sound(arity, 8)
    assert not Survivors(np.array([1]), np.ones(1), -np.ones(1)).are_sound(arity, 8)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_deviations_of_parts_give_those_of_the_whole(offset: float):
    values = offset + np.random.default_rng(0).standard_normal(50)
    parts = [(len(p), p.sum(), ((p - p.mean()) ** 2).sum()) for p in np.split(values, [3, 4, 20])]
    sums = (0, 0.0, 0.0)
    for part in parts:
        sums = sums[0] + part[0], sums[1] + part[1], float(joint_deviations(sums, part))
    np.testing.assert_allclose(sums[2], ((values - values.mean()) ** 2).sum(), rtol=1e-6)
