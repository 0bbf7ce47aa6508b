"""One secure sum: right whoever leaves, and nothing but a sum to be had from what the server sees."""

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower.errors import ConfigError
from fbo_flower.secure import fixed_point, keys, rounds

SIZE, LABEL = 5, b"study 1"
NAMES = [str(i) for i in range(9)]
PRIVATE = {name: keys.new_private_key() for name in NAMES}
PUBLIC = {name: keys.public_key(key) for name, key in PRIVATE.items()}


class Sum:
    """A group that goes through one sum."""

    def __init__(self, group, seed=0):
        self.group = group
        self.needed = keys.threshold(len(group), 2) - 1
        rng = np.random.default_rng(seed)
        self.values = {a: rng.standard_normal(SIZE) * 10.0 ** rng.integers(-6, 7, SIZE) for a in group}
        self.words = {a: fixed_point.encode(v, 1e9) for a, v in self.values.items()}
        publics = {a: [PUBLIC[o] for o in self.others(a)] for a in group}
        self.sent = {
            a: rounds.mask(words, PRIVATE[a], publics[a], LABEL, self.needed)
            for a, words in self.words.items()
        }

    def others(self, agent):
        return [a for a in self.group if a != agent]

    def revealed(self, sent, speakers):
        found = {}
        for a in speakers:
            others = self.others(a)
            boxes = np.array([self.sent[o].boxes[self.others(o).index(a)] for o in others])
            there = [o in sent for o in others]
            parts = rounds.reveal(PRIVATE[a], [PUBLIC[o] for o in others], there, boxes, LABEL)
            found[a] = dict(zip(others, parts, strict=True))
        return found

    def total(self, sent, revealed):
        public = {a: PUBLIC[a] for a in self.group}
        return rounds.unmask({a: self.sent[a] for a in sent}, public, revealed, self.needed)

    def expected(self, sent):
        return fixed_point.total((self.words[a] for a in sent), size=SIZE)


def test_whoever_leaves_before_sending_only_leaves_out_itself_and_later_it_is_still_in_the_sum():
    for group, gone in ((NAMES[:2], ()), (NAMES, ("4",)), (NAMES, ("2", "8"))):
        run, left = Sum(group), [a for a in group if a not in gone]
        for sent in (left, group):
            np.testing.assert_array_equal(run.total(sent, run.revealed(sent, left)), run.expected(sent))


def test_too_many_that_left_give_no_sum_instead_of_a_wrong_one():
    run = Sum(NAMES)
    assert run.needed == 6
    assert run.total(NAMES, run.revealed(NAMES, NAMES[:6])) is None
    sent = NAMES[1:]  # "0" never sent; "1" says nothing of the mask they share
    assert run.total(sent, run.revealed(sent, NAMES[2:])) is None


def test_wrong_shares_are_found_out():
    run = Sum(NAMES)
    revealed = run.revealed(NAMES, NAMES)
    for liar in NAMES[:2]:
        revealed[liar] = {other: bytes(len(share)) for other, share in revealed[liar].items()}
    np.testing.assert_array_equal(run.total(NAMES, revealed), run.expected(NAMES))
    for liar in NAMES[:5]:
        revealed[liar] = dict.fromkeys(revealed[liar], b"nonsense")
    assert run.total(NAMES, revealed) is None


def test_a_box_that_cannot_be_opened_costs_its_own_share_alone():
    run = Sum(NAMES)
    spoilt = run.sent["0"].boxes.copy()
    spoilt[:2] = 0
    run.sent["0"] = replace(run.sent["0"], boxes=spoilt)
    assert run.sent["1"].boxes.shape == (8, rounds.BOX_BYTES)
    revealed = run.revealed(NAMES, NAMES)
    assert sum(said.get("0") == b"" for said in revealed.values()) == 2
    np.testing.assert_array_equal(run.total(NAMES, revealed), run.expected(NAMES))


# -- what the server can know ------------------------------------------------------------------------


def test_the_own_mask_needs_enough_shares_and_without_it_the_report_is_still_hidden():
    run = Sum(NAMES[:7])
    revealed = run.revealed(NAMES[:7], NAMES[:7])
    shares = [revealed[other]["0"] for other in run.others("0")]
    assert run.needed == 4
    for chosen in combinations(shares, run.needed - 1):
        with suppress(ValueError):
            assert keys.commit(rounds.join(chosen)) != run.sent["0"].commitment
    own = rounds.join(shares[: run.needed])
    words = fixed_point.total([run.sent["0"].words], [keys.expand(own, SIZE)], size=SIZE)
    assert (np.abs(fixed_point.decode(words) - run.values["0"]) > 1e9).all()


@pytest.mark.parametrize(("threshold", "number"), [(1, 1), (3, 5), (2, 300)])
@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32], ids=["zeros", "ones"])
def test_any_shares_of_the_threshold_recover_the_secret_and_two_sharings_differ(secret, threshold, number):
    shares = rounds.split(secret, threshold, number)
    assert len(shares) == number
    assert {len(share) for share in shares} == {rounds.SHARE_BYTES}
    for chosen in (*list(combinations(shares, threshold))[:20], shares):  # or more than needed
        assert rounds.join(chosen[::-1]) == secret
    if threshold > 1:
        assert set(shares).isdisjoint(rounds.split(secret, threshold, number))


def test_the_field_has_a_prime_number_of_elements():
    """Miller and Rabin's test for 40 bases; a composite number passes one in four at most."""
    odd, twos = rounds.PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        powers = [pow(base, odd * 2**k, rounds.PRIME) for k in range(twos)]
        assert powers[0] == 1 or rounds.PRIME - 1 in powers


def test_fewer_shares_fit_every_secret_equally_often(monkeypatch):
    """In a small field by enumeration: a share of two is the same number of times that of each secret."""
    monkeypatch.setattr(rounds, "PRIME", 7)
    seen = np.zeros((7, 3, 7), dtype=int)  # of secret, share, value
    for secret, slope in product(range(7), repeat=2):
        monkeypatch.setattr(rounds.secrets, "randbelow", lambda prime, slope=slope: slope)
        for share, data in enumerate(rounds.split(secret.to_bytes(32), 2, 3)):
            seen[secret, share, data[-1]] += 1
    assert (seen == 1).all()


def test_what_is_no_sharing_is_refused():
    shares = rounds.split(bytes(32), 2, 3)
    outside, longer = bytes(4) + shares[0][4:], shares[1] + b"x"
    for wrong in ([], [shares[0], shares[0]], [shares[0], longer], [outside, shares[1]]):
        with pytest.raises(ValueError, match="different shares"):
            rounds.join(wrong)
    beyond = (2 * int.from_bytes(shares[0][4:]) - 2**256) % rounds.PRIME  # the secret is 2 y1 - y2
    with pytest.raises(ValueError, match="of one secret"):
        rounds.join([shares[0], (2).to_bytes(4) + beyond.to_bytes(33)])
    for wrong in ((bytes(32), 0, 3), (bytes(32), 4, 3), (bytes(32), 1, 2**32), (b"x", 1, 1)):
        with pytest.raises(ValueError, match="threshold"):
            rounds.split(*wrong)


NUMBERS = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20)


def exact(words):
    """What a row stands for."""
    whole = [int(fraction) + (int(w) << 64) for fraction, w in words]
    return [Fraction(n - (1 << 128) if n >> 127 else n, 1 << 64) for n in whole]


@given(NUMBERS)
def test_encoding_is_off_by_half_a_unit_and_decoding_by_one_in_the_last_place_at_most(values):
    words = fixed_point.encode(values, 1e12)
    for value, number, decoded in zip(values, exact(words), fixed_point.decode(words), strict=True):
        assert abs(number - Fraction(value)) <= Fraction(1, 2**65)
        assert number == Fraction(value) or 0 < abs(value) < 2**-12
        assert abs(Fraction(float(decoded)) - number) <= abs(number) * Fraction(1, 2**52)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.5])
def test_numbers_outside_their_bound_are_refused(bad):
    with pytest.raises(ConfigError, match="between -1 and 1"):
        fixed_point.encode([0.0, bad], 1.0)


def modulo(words):
    return [(int(low) + (int(high) << 64)) % 2**128 for low, high in words]


@pytest.mark.parametrize("count", [0, 2])
def test_a_total_is_that_of_integers_modulo_2_to_the_128(count):
    rng = np.random.default_rng(count)
    arrays = rng.integers(0, 2**64, (2 * count, 5, 2), dtype=np.uint64)
    arrays[:, 0], arrays[:, 1] = 2**64 - 1, 0
    integers = np.array([modulo(words) for words in arrays], dtype=object).reshape(-1, 5)
    expected = integers[:count].sum(axis=0) - integers[count:].sum(axis=0)
    total = fixed_point.total(arrays[:count], arrays[count:], size=5)
    assert modulo(total) == [int(number) % 2**128 for number in expected]
    for words, numbers in zip(arrays, integers, strict=True):
        assert modulo(fixed_point.negate(words)) == [-n % 2**128 for n in numbers]
