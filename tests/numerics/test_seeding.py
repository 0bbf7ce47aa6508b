import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from fbo_flower.numerics.seeding import fresh_entropy, generator

KEYS = st.lists(st.one_of(st.integers(), st.text()), max_size=4)


def draws(seed, *keys):
    return generator(seed, *keys).integers(2**63, size=3).tolist()


@given(KEYS, KEYS)
@example(["a", "bc"], ["ab", "c"])
@example([1], ["1"])
@example(["a", ""], ["a"])
@example([12], [1, 2])
@example(["1:a"], [1, "a"])
def test_generators_are_equal_exactly_when_their_keys_are(first, second):
    assert (draws(7, *first) == draws(7, *second)) == (first == second)


def test_seeds_give_different_draws_also_beyond_64_bits_and_numpy_integers_are_keys_like_their_values():
    assert len({tuple(draws(seed, "a")) for seed in (1, 2, 1 + 2**127)}) == 3
    assert draws(0, np.int64(5)) == draws(0, 5)
    assert draws(fresh_entropy()) != draws(fresh_entropy())


def test_golden_draws():
    assert draws(0, "propose", "agent-1", 3) == [4985150357272015856, 6591491829115610701, 773534576791866108]
    assert draws(2**128 - 1)[:2] == [8402532075814724907, 8052238300932189524]
