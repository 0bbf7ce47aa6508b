"""One secure sum: members mask their numbers, reveal seeds, and the server removes the masks.

Notation: a group has `n` members, and the shares of any `needed` of the `n - 1` others recover a member's
private mask. Each sum is of `size` numbers and has a label that is used only once. `keys.py` says when a
member may reveal anything; the functions here do not check it.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import WireError
from fbo_flower.secure import fixed_point, keys
from fbo_flower.secure.fixed_point import Words

Bytes = npt.NDArray[np.uint8]
_TRIES = 200  # combinations of shares to try if some shares are wrong


@dataclass(frozen=True)
class Masked:
    """The message of one agent: masked numbers and sealed shares.

    Attributes
    ----------
    words : `(size, 2)`, the masked numbers
    boxes : `(n - 1, BOX_BYTES)`, for each other member a sealed share of the seed of the agent's private mask
    commitment : commitment to that seed
    """

    words: Words
    boxes: Bytes
    commitment: bytes


def mask(words: Words, private: bytes, others: Sequence[bytes], label: bytes, needed: int) -> Masked:
    """Return numbers `(size, 2)` masked, with sealed shares of the private mask's seed.

    Parameters
    ----------
    others : `(n - 1,)`, public keys of the other members
    label : name of the sum, used only once
    """
    own, public = secrets.token_bytes(keys.SEED_BYTES), keys.public_key(private)
    added: list[Words] = [words, keys.expand(own, len(words))]
    subtracted: list[Words] = []
    shares = split(own, needed, len(others))
    boxes = []
    for other, share in zip(others, shares, strict=True):
        shared = keys.agree(private, other)
        pair = keys.pair_mask(shared, label, len(words))
        (added if public < other else subtracted).append(pair)
        boxes.append(keys.seal(keys.derive(shared, b"box", label), share))
    total = fixed_point.total(added, subtracted, size=len(words))
    return Masked(total, np.array([np.frombuffer(box, dtype=np.uint8) for box in boxes]), keys.commit(own))


def reveal(
    private: bytes, others: Sequence[bytes], there: Sequence[bool], boxes: Bytes, label: bytes
) -> list[bytes]:
    """Return for each other member its share if it sent its numbers, or else the seed of the pairwise mask.

    A box that cannot be opened with the member's key gives `b""`; the other boxes are not affected.

    Parameters
    ----------
    there : `(n - 1,)`, whether each member sent its numbers
    boxes : `(n - 1, BOX_BYTES)`, the share each member sealed for this agent; ignored if it sent none

    Raises
    ------
    WireError
        If a public key is invalid.
    """
    found = []
    for other, is_there, box in zip(others, there, boxes, strict=True):
        shared = keys.agree(private, other)
        if not is_there:
            found.append(keys.derive(shared, b"mask", label))
            continue
        try:
            found.append(keys.unseal(keys.derive(shared, b"box", label), box.tobytes()))
        except WireError:
            found.append(b"")
    return found


def unmask(
    sent: Mapping[str, Masked],
    public: Mapping[str, bytes],
    revealed: Mapping[str, Mapping[str, bytes]],
    needed: int,
) -> Words | None:
    """Return the sum of the members' numbers, `(size, 2)`; None if too few shares or seeds are valid.

    Parameters
    ----------
    sent : agent -> its message, for the members that sent one
    public : agent -> public key, for all members of the group
    revealed : agent -> other member -> the share or seed that the agent revealed
    needed : number of shares that recover a seed
    """
    size = len(next(iter(sent.values())).words) if sent else 0
    removed: list[tuple[bytes, bool]] = []  # seeds of masks, and whether the mask was subtracted
    gone = [agent for agent in public if agent not in sent]
    for agent, masked in sent.items():
        shares = [found.get(agent, b"") for other, found in revealed.items() if other != agent]
        own = _seed(shares, needed, masked.commitment)
        if own is None:
            return None
        removed.append((own, False))
        for other in gone:
            seed = revealed.get(agent, {}).get(other, b"")
            if len(seed) != keys.SEED_BYTES:
                return None
            removed.append((seed, public[agent] > public[other]))
    if not sent:
        return None
    added = (keys.expand(seed, size) for seed, was_subtracted in removed if was_subtracted)
    masks = (keys.expand(seed, size) for seed, was_subtracted in removed if not was_subtracted)
    words = [masked.words for masked in sent.values()]
    return fixed_point.total(itertools.chain(words, added), masks, size=size)


def _seed(shares: Sequence[bytes], needed: int, commitment: bytes) -> bytes | None:
    """Return the seed that matches the commitment, trying up to `_TRIES` subsets of the shares; else None."""
    usable = [share for share in shares if len(share) == SHARE_BYTES]
    for chosen in itertools.islice(itertools.combinations(usable, needed), _TRIES):
        with suppress(ValueError):  # shares that do not belong together
            if keys.commit(seed := join(chosen)) == commitment:
                return seed
    return None


# -- Shamir's shares of a seed: an index `x` in four bytes, and in 33 the value at `x` of a polynomial of
# degree `threshold - 1` with random coefficients, modulo the first prime above `2^256`

PRIME = 2**256 + 297
SECRET_BYTES = 32
_INDEX, _VALUE = 4, 33  # bytes
SHARE_BYTES = _INDEX + _VALUE
BOX_BYTES = SHARE_BYTES + keys.SEAL_BYTES  # size of a sealed share


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Return `number` shares of a secret; any `threshold` of them recover it, and fewer say nothing.

    ValueError if there is no such sharing.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= number < 2 ** (8 * _INDEX):
        raise ValueError(
            f"expected {SECRET_BYTES} bytes and a threshold from 1 to {number} shares, got {len(secret)} "
            f"bytes and {threshold}"
        )
    coefficients = [*(secrets.randbelow(PRIME) for _ in range(threshold - 1)), int.from_bytes(secret)]
    shares = []
    for x in range(1, number + 1):
        value = 0
        for coefficient in coefficients:  # Horner's rule
            value = (value * x + coefficient) % PRIME
        shares.append(x.to_bytes(_INDEX) + value.to_bytes(_VALUE))
    return shares


def join(shares: Sequence[bytes]) -> bytes:
    """Return the secret of `threshold` shares; ValueError if these cannot be shares of one secret."""
    points = {int.from_bytes(share[:_INDEX]): int.from_bytes(share[_INDEX:]) for share in shares}
    if not points or len(points) < len(shares) or 0 in points or {*map(len, shares)} != {SHARE_BYTES}:
        raise ValueError(f"expected different shares of {SHARE_BYTES} bytes")
    secret = 0
    for x, value in points.items():  # Lagrange's polynomial at 0
        others = [other for other in points if other != x]
        factor = math.prod(others) * pow(math.prod(other - x for other in others), -1, PRIME)
        secret = (secret + value * factor) % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise ValueError("expected shares of one secret")
    return secret.to_bytes(SECRET_BYTES)
