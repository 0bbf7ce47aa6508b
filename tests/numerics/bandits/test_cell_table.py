"""Tables of cells find and add rows as a dict from (depth, index) does."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.numerics.bandits.cell_table import CellPulls, Survivors


@pytest.mark.parametrize("seed", range(4))
def test_pulls_add_up_as_in_a_dict(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, plain = CellPulls.read({}, "cells."), {}
    for _ in range(12):
        depth, size = int(rng.integers(4)), int(rng.integers(1, 6))
        index = np.sort(rng.choice(8, size, replace=False))
        count, failed = rng.integers(0, 4, size), rng.integers(0, 3, size)
        total = rng.standard_normal(size)
        table = table.add(depth, index, count, total, failed)
        for row, cell in enumerate(index.tolist()):
            before = plain.get((depth, cell), (0, 0.0, 0))
            plain[depth, cell] = before[0] + count[row], before[1] + total[row], before[2] + failed[row]
    assert list(zip(table.depth.tolist(), table.index.tolist(), strict=True)) == sorted(plain)
    back = CellPulls.read(table.arrays("cells."), "cells.")
    for depth in range(4):
        found = back.of(depth, np.arange(8))
        expected = np.array([plain.get((depth, cell), (0, 0.0, 0)) for cell in range(8)])
        np.testing.assert_array_equal(np.column_stack([found.count, found.total, found.failed]), expected)
        mean = expected[:, 1] / np.maximum(expected[:, 0], 1)
        np.testing.assert_array_equal(found.mean(), mean)


def survivors(depths: list[int], indices: list[int]) -> Survivors:
    values = np.arange(len(depths), dtype=np.float64)
    return Survivors(np.array(depths), np.array(indices), values, values)


def test_only_new_depths_are_received() -> None:
    mine = survivors([0, 1, 1], [0, 0, 1]).received(survivors([1, 2], [0, 3]))
    assert mine.depth.tolist() == [0, 1, 1, 2]
    assert mine.at(2).index.tolist() == [3]


@pytest.mark.parametrize(("depth", "index", "sound"), [
    (3, 7, True), (3, 8, False), (3, -1, False), (9, 0, False), (-1, 0, False),
])  # fmt: skip
def test_cells_outside_the_partition_are_found(depth: int, index: int, sound: bool) -> None:
    assert survivors([0, depth], [0, index]).are_sound(2, 8) is sound
