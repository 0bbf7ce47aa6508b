"""The table of slots: rows go in, the sum comes out, and nothing is lost but what collided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower.numerics import slots

LOW, HIGH = np.array([0.0, 0.0, -3.5]), np.array([1.0, 1.0, 3.5])


def rows_of(rng, number):
    return slots.rounded(np.column_stack([rng.random((number, 2)), rng.uniform(-3.5, 3.5, number)]))


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 6))
def test_the_sum_gives_every_row_back_but_those_that_share_a_slot(seed, agents, each):
    rng, size = np.random.default_rng(seed), 64
    rows = [rows_of(rng, each) for _ in range(agents)]
    drawn = [rng.integers(size, size=each) for _ in range(agents)]
    total = np.sum([slots.write(r, d, size) for r, d in zip(rows, drawn, strict=True)], axis=0)
    places = np.concatenate(drawn)
    _, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
    alone = counts[inverse] == 1
    order = np.argsort(places[alone])
    found, lost = slots.read(total, LOW, HIGH)
    np.testing.assert_array_equal(found, np.concatenate(rows)[alone][order])
    assert lost == np.count_nonzero(counts > 1)


@pytest.mark.parametrize(
    "entry", [(0.5, 0.5, 7 * slots.MARK), (3.0, 0.5, slots.MARK), (np.nan, 0.5, slots.MARK), (0.5, 0.5, 0.0)]
)
def test_what_no_honest_agent_writes_is_no_row(entry):
    total = slots.write(np.array([[0.25, 0.75, 1.0]]), np.array([3]), 64)
    total[9] = entry
    found, lost = slots.read(total, LOW, HIGH)
    np.testing.assert_array_equal(found, [[0.25, 0.75, 1.0]])
    assert lost == 1


@pytest.mark.parametrize(("rows", "size"), [(0, 64), (8, 64), (9, 128)])
def test_a_table_has_a_power_of_two_of_slots_and_eight_for_each_row(rows, size):
    assert slots.num_slots(rows) == size
    assert slots.is_size(size)
    assert not [other for other in (0, 1, 32, 65, 96, 2**21) if slots.is_size(other)]


def test_own_rows_are_found_again_after_a_sum():
    every, own = np.split(rows_of(np.random.default_rng(1), 13), [9])
    mixed = np.concatenate([every[:3], own[1:3], every[3:]])
    np.testing.assert_array_equal(mixed[slots.others(mixed, own)], every)
    assert slots.others(every, own[:0]).tolist() == list(range(9))
