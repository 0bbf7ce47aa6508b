"""Fixed point against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower.errors import ConfigError
from fbo_flower.secure import fixed_point as fp

NUMBERS = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20)


def exact(words):
    """What a row stands for."""
    whole = [int(fraction) + (int(w) << 64) for fraction, w in words]
    return [Fraction(n - (1 << 128) if n >> 127 else n, 1 << 64) for n in whole]


@given(NUMBERS)
def test_an_encoded_number_is_off_by_half_a_unit_at_most(values):
    found = exact(fp.encode(values, 1e12))
    assert all(abs(f - Fraction(v)) <= Fraction(1, 2**65) for f, v in zip(found, values, strict=True))
    assert all(f == Fraction(v) for f, v in zip(found, values, strict=True) if v == 0 or abs(v) >= 2**-12)


@given(NUMBERS)
def test_decoding_is_correct_to_the_last_place(values):
    words = fp.encode(values, 1e12)
    for decoded, number in zip(fp.decode(words), exact(words), strict=True):
        assert abs(Fraction(float(decoded)) - number) <= abs(number) * Fraction(1, 2**52)


@given(NUMBERS, st.randoms())
def test_sums_are_exact_in_any_order(values, order):
    rows = [fp.encode([v], 1e12) for v in values]
    expected = sum((exact(row)[0] for row in rows), Fraction(0))
    order.shuffle(rows)
    total = fp.total(rows, size=1)
    assert exact(total)[0] == expected
    assert not fp.total([total, fp.negate(total)], size=1).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.5, -1.5])
def test_numbers_outside_their_bound_are_refused(bad):
    with pytest.raises(ConfigError, match="between -1 and 1"):
        fp.encode([0.0, bad], 1.0)


def modulo(words):
    return [(int(low) + (int(high) << 64)) % 2**128 for low, high in words]


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_a_total_is_that_of_integers_modulo_2_to_the_128(count):
    rng = np.random.default_rng(count)
    arrays = rng.integers(0, 2**64, (2 * count, 5, 2), dtype=np.uint64)
    arrays[:, 0], arrays[:, 1] = 2**64 - 1, 0
    integers = np.array([modulo(words) for words in arrays], dtype=object).reshape(-1, 5)
    expected = integers[:count].sum(axis=0) - integers[count:].sum(axis=0)
    assert modulo(fp.total(arrays[:count], arrays[count:], size=5)) == [int(e) % 2**128 for e in expected]
    for words, numbers in zip(arrays, integers, strict=True):
        assert modulo(fp.negate(words)) == [-n % 2**128 for n in numbers]
