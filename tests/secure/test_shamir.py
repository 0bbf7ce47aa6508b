"""Shares of a secret: enough of them recover it, fewer fit every secret, and no sharing is refused."""

from __future__ import annotations

import contextlib
import secrets
from itertools import combinations, product

import numpy as np
import pytest

from fbo_flower.secure import shamir


@pytest.mark.parametrize(("threshold", "number"), [(1, 1), (2, 2), (3, 5), (7, 11), (2, 300)])
@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32, secrets.token_bytes(32)])
def test_any_shares_of_the_threshold_recover_the_secret_and_two_sharings_differ(secret, threshold, number):
    shares = shamir.split(secret, threshold, number)
    assert len(shares) == number
    assert {len(share) for share in shares} == {shamir.SHARE_BYTES}
    for chosen in list(combinations(shares, threshold))[:20]:
        assert shamir.join(chosen[::-1]) == secret
    assert shamir.join(shares) == secret  # more than needed
    if threshold > 1:
        assert set(shares).isdisjoint(shamir.split(secret, threshold, number))


def test_the_field_has_a_prime_number_of_elements():
    """Miller and Rabin's test for 40 bases; a composite number passes one in four at most."""
    odd, twos = shamir.PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        powers = [pow(base, odd * 2**k, shamir.PRIME) for k in range(twos)]
        assert powers[0] == 1 or shamir.PRIME - 1 in powers


def test_fewer_shares_fit_every_secret_equally_often(monkeypatch):
    """In a small field by enumeration: a share of two is the same number of times that of each secret."""
    monkeypatch.setattr(shamir, "PRIME", 7)
    seen = np.zeros((7, 3, 7), dtype=int)  # of secret, share, value
    for secret, slope in product(range(7), repeat=2):
        monkeypatch.setattr(shamir.secrets, "randbelow", lambda prime, slope=slope: slope)
        for share, data in enumerate(shamir.split(secret.to_bytes(32), 2, 3)):
            seen[secret, share, data[-1]] += 1
    assert (seen == 1).all()


def test_what_is_no_sharing_is_refused():
    shares = shamir.split(bytes(32), 2, 3)
    for wrong in (
        [],
        [shares[0], shares[0]],
        [shares[0], shares[1] + b"x"],
        [bytes(4) + shares[0][4:], shares[1]],
        [b"\xff" * 20, shares[1]],
        [share[:4] for share in shares],
        [b"", b""],
    ):
        with pytest.raises(ValueError, match="different shares"):
            shamir.join(wrong)
    with pytest.raises(ValueError, match="of one secret"):
        shamir.join(
            [shares[0], (2).to_bytes(4) + (2 * int.from_bytes(shares[0][4:]) - 2**256).to_bytes(34)[-33:]]
        )
    for secret, threshold, number in (
        (bytes(32), 0, 3),
        (bytes(32), 4, 3),
        (bytes(32), 1, 2**32),
        (b"x", 1, 1),
    ):
        with pytest.raises(ValueError, match="threshold"):
            shamir.split(secret, threshold, number)


def test_shares_of_any_content_give_another_secret_or_none_and_no_other_error():
    good, rng = shamir.split(bytes(32), 3, 5), np.random.default_rng(0)
    made = [[index.to_bytes(4) + rng.bytes(33), *good[1:3]] for index in (1, 3, 9, 2**32 - 1)]
    for shares in [*made, [index.to_bytes(4) + b"\xff" * 33 for index in (1, 2, 3)]]:
        with contextlib.suppress(ValueError):
            assert shamir.join(shares) != bytes(32)
