"""One secure sum: an agent masks its numbers, neighbours reveal seeds, the server removes the masks.

Notation: an agent has `d` neighbours, in the order in which the server lists them; the shares of any `t` of
them recover the agent's private mask. Each sum is of `size` numbers and has a label that is used only once.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import WireError
from fbo_flower.secure import fixed_point, keys
from fbo_flower.secure.fixed_point import Words

Bytes = npt.NDArray[np.uint8]
_TRIES = 200  # combinations of shares to try if some shares are wrong
_SHARE_BYTES = 52  # size of a share of a seed: an index and three blocks, padded
BOX_BYTES = 164  # size of a sealed share


def neighbours(group: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
    """Return agent -> its neighbours: the `degree` nearest on a circle, or all others in a small group.

    Parameters
    ----------
    group : agents in the order of the circle, which the caller draws at random
    degree : `d`, an even number
    """
    size = len(group)
    if size - 1 <= degree:
        return {agent: tuple(a for a in group if a != agent) for agent in group}
    steps = [step for k in range(1, degree // 2 + 1) for step in (-k, k)]
    return {a: tuple(group[(i + step) % size] for step in steps) for i, a in enumerate(group)}


def degree(least: int) -> int:
    """Return the number of neighbours `d` for sums of at least `least` agents."""
    return 2 * least


def threshold(num_neighbours: int) -> int:
    """Return `t`, more than half, so that a private mask and pairwise masks cannot both be recovered."""
    return num_neighbours // 2 + 1


@dataclass(frozen=True)
class Masked:
    """The message of one agent: masked numbers and sealed shares.

    Attributes
    ----------
    words : `(size, 2)`, the masked numbers
    boxes : `(d, BOX_BYTES)`, for each neighbour a sealed share of the seed of the agent's private mask
    commitment : commitment to that seed
    """

    words: Words
    boxes: Bytes
    commitment: bytes


def mask(words: Words, private: bytes, others: Sequence[bytes], label: bytes) -> Masked:
    """Return the numbers masked, with sealed shares of the private mask's seed.

    Parameters
    ----------
    words : `(size, 2)`
    private : the agent's private key
    others : `(d,)`, public keys of the neighbours
    label : name of the sum, used only once
    """
    own, public = secrets.token_bytes(keys.SEED_BYTES), keys.public_key(private)
    total = fixed_point.add(words, keys.expand(own, len(words)))
    shares = keys.split(own, threshold(len(others)), len(others))
    boxes = []
    for other, share in zip(others, shares, strict=True):
        shared = keys.agree(private, other)
        pair = keys.expand(keys.derive(shared, b"mask", label), len(words))
        total = fixed_point.add(total, pair if public < other else fixed_point.negate(pair))
        boxes.append(keys.seal(keys.derive(shared, b"box", label), share))
    return Masked(total, np.array([np.frombuffer(box, dtype=np.uint8) for box in boxes]), keys.commit(own))


def reveal(
    private: bytes, others: Sequence[bytes], there: Sequence[bool], boxes: Bytes, label: bytes
) -> list[bytes]:
    """Return for each neighbour its share if it sent its numbers, or else the seed of the pairwise mask.

    A box that cannot be opened with the neighbour's key gives `b""`; the other boxes are not affected.

    Parameters
    ----------
    there : `(d,)`, whether each neighbour sent its numbers
    boxes : `(d, BOX_BYTES)`, the share each neighbour sealed for this agent; ignored if it sent none

    Raises
    ------
    WireError
        If a public key is invalid.
    """
    found = []
    for other, is_there, box in zip(others, there, boxes, strict=True):
        shared = keys.agree(private, other)
        if is_there:
            found.append(_opened(keys.derive(shared, b"box", label), box.tobytes()))
        else:
            found.append(keys.derive(shared, b"mask", label))
    return found


def _opened(key: bytes, box: bytes) -> bytes:
    try:
        return keys.unseal(key, box)
    except WireError:
        return b""


def unmask(
    sent: Mapping[str, Masked],
    public: Mapping[str, bytes],
    around: Mapping[str, Sequence[str]],
    revealed: Mapping[str, Mapping[str, bytes]],
) -> Words | None:
    """Return the sum of the agents' numbers, `(size, 2)`; None if too few shares or seeds are valid.

    Parameters
    ----------
    sent : agent -> its message, for the agents that sent one
    public : agent -> public key, for the whole group
    around : agent -> its neighbours, for the whole group
    revealed : agent -> neighbour -> the share or seed that the agent revealed
    """
    total: Words | None = None
    for agent, masked in sent.items():
        shares = [revealed[other][agent] for other in around[agent] if other in sent and other in revealed]
        own = _seed(shares, threshold(len(around[agent])), masked.commitment)
        if own is None:
            return None
        words = fixed_point.add(masked.words, fixed_point.negate(keys.expand(own, len(masked.words))))
        for other in _gone(around[agent], sent):
            seed = revealed.get(agent, {}).get(other, b"")
            if len(seed) != keys.SEED_BYTES:
                return None
            pair = keys.expand(seed, len(words))
            words = fixed_point.add(
                words, fixed_point.negate(pair) if public[agent] < public[other] else pair
            )
        total = words if total is None else fixed_point.add(total, words)
    return total


def _gone(others: Sequence[str], sent: Collection[str]) -> list[str]:
    return [other for other in others if other not in sent]


def _seed(shares: Sequence[bytes], needed: int, commitment: bytes) -> bytes | None:
    """Return the seed that matches the commitment, trying up to `_TRIES` subsets of the shares; else None."""
    usable = [share for share in shares if len(share) == _SHARE_BYTES]
    for chosen in islice(combinations(usable, needed), _TRIES):
        seed = keys.join(chosen)
        if seed is not None and keys.commit(seed) == commitment:
            return seed
    return None
