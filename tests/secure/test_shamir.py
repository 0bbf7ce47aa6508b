"""Shares: against Flower's functions and those of the library behind them, and what is not a sharing."""

from __future__ import annotations

import contextlib
import secrets
from itertools import combinations

import numpy as np
import pytest
from Crypto.Protocol.SecretSharing import _Element
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares

from fbo_flower.secure import shamir


@pytest.mark.parametrize(("threshold", "number"), [(1, 1), (2, 2), (3, 5), (7, 11), (2, 300)])
@pytest.mark.parametrize("size", [1, 16, 32, 47])
def test_flower_joins_our_shares_and_we_join_those_of_flower(threshold, number, size):
    secret = secrets.token_bytes(size)
    for shares in (shamir.split(secret, threshold, number), create_shares(secret, threshold, number)):
        assert len(shares) == number
        chosen = secrets.SystemRandom().sample(shares, threshold)
        assert shamir.join(chosen) == combine_shares(chosen) == secret


def test_any_shares_of_the_threshold_recover_the_secret_and_fewer_do_not():
    secret = secrets.token_bytes(32)
    shares = shamir.split(secret, 3, 5)
    assert all(shamir.join(chosen) == secret for chosen in combinations(shares, 3))
    assert shamir.join(shares) == secret  # more than needed
    for chosen in combinations(shares, 2):
        with contextlib.suppress(ValueError):
            assert shamir.join(chosen) != secret


def test_two_sharings_of_a_secret_have_no_share_in_common():
    first, second = (shamir.split(bytes(32), 3, 5) for _ in range(2))
    assert set(first).isdisjoint(second)


def test_the_field_is_that_of_the_library():
    for _ in range(50):
        first, second = (1 + secrets.randbelow(2**128 - 1) for _ in range(2))
        product = _Element(first) * _Element(second)
        assert shamir._times(first, second) == int.from_bytes(product.encode())
        assert shamir._times(first, shamir._inverse(first)) == 1
    assert shamir._inverse(1) == 1


def test_what_is_no_sharing_is_refused():
    shares = shamir.split(b"secret", 2, 3)
    for wrong in (
        [],
        [shares[0], shares[0]],
        [shares[0], shares[1] + b"x"],
        [bytes(4) + shares[0][4:], shares[1]],
        [b"\xff" * 20, shares[1]],
        [share[:4] for share in shares],
    ):
        with pytest.raises(ValueError, match="expected"):
            shamir.join(wrong)
    for threshold, number in ((0, 3), (4, 3), (1, 2**31)):
        with pytest.raises(ValueError, match="threshold"):
            shamir.split(b"secret", threshold, number)


def test_shares_of_any_content_give_another_secret_or_none_and_no_other_error():
    good, rng = shamir.split(bytes(32), 3, 5), np.random.default_rng(0)
    made = [[index.to_bytes(4, "little") + rng.bytes(48), *good[1:3]] for index in (0, 1, 2, 9, 2**32 - 1)]
    made += [[bytes(52)] * 3, [good[0], good[0], good[1]], [good[0][:20], *good[1:3]], [b"", b"", b""]]
    assert shamir.join(good[1:4]) == bytes(32)
    for shares in made:
        with contextlib.suppress(ValueError):
            assert shamir.join(shares) != bytes(32)
