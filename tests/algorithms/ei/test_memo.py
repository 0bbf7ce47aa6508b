"""What an agent needs twice for a task is kept no longer than the task's arrays."""

from __future__ import annotations

import gc

import numpy as np

from fbo_flower.algorithms.ei import memo


def test_results_are_kept_with_an_array_and_not_with_an_equal_one() -> None:
    one, two = np.zeros(3), np.zeros(3)
    memo.kept_with(one)["answer"] = 42
    assert memo.kept_with(one) == {"answer": 42}
    assert memo.kept_with(two) == {}


def test_results_go_with_their_array() -> None:
    gc.collect()
    before = len(memo._KEPT)
    arrays = [np.full(3, float(i)) for i in range(10)]
    for array in arrays:
        memo.kept_with(array)["x"] = array.sum()
    assert len(memo._KEPT) == before + 10
    del array, arrays
    gc.collect()
    assert len(memo._KEPT) == before
