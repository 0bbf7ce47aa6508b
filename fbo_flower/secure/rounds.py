"""One secure sum: what an agent sends, what it reveals, and how the server takes the masks off.

Notation: an agent has `d` neighbours, in the order in which the server names them; `t` of them can bring back
its own mask. The sum of `size` numbers has a label that is used once.
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
_TRIES = 200  # combinations of shares, where some are wrong
_SHARE_BYTES = 52  # of a seed: an index and three blocks, padded
BOX_BYTES = 164  # of a sealed share


def neighbours(group: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
    """Return agent -> its neighbours: the nearest on a circle, all others where they are few enough.

    Parameters
    ----------
    group : in the order of the circle, drawn at random
    degree : `d`, even
    """
    size = len(group)
    if size - 1 <= degree:
        return {agent: tuple(a for a in group if a != agent) for agent in group}
    steps = [step for k in range(1, degree // 2 + 1) for step in (-k, k)]
    return {a: tuple(group[(i + step) % size] for step in steps) for i, a in enumerate(group)}


def degree(least: int) -> int:
    """Return `d` for sums of at least so many agents, where there are enough."""
    return 2 * least


def threshold(num_neighbours: int) -> int:
    """Return `t`: more than half, so that nobody's own mask and pair masks come out together."""
    return num_neighbours // 2 + 1


@dataclass(frozen=True)
class Masked:
    """What an agent sends.

    Attributes
    ----------
    words : `(size, 2)`
    boxes : `(d, BOX_BYTES)`, a share of its own mask's seed for every neighbour, sealed
    commitment : of that seed
    """

    words: Words
    boxes: Bytes
    commitment: bytes


def mask(words: Words, private: bytes, others: Sequence[bytes], label: bytes) -> Masked:
    """Return numbers under masks, and sealed shares of the mask of one's own.

    Parameters
    ----------
    words : `(size, 2)`
    others : `(d,)`, public keys of the neighbours
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
    """Return, for every neighbour, its share if it has sent its numbers, the pair's seed if it has not.

    A box that its neighbour did not seal gives nothing, and the others what they hold.

    Parameters
    ----------
    there : `(d,)`, who has
    boxes : `(d, BOX_BYTES)`, what each neighbour sealed for this agent; not read where it is not there

    Raises
    ------
    WireError
        If a key is none.
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
    """Return the sum of what was sent, `(size, 2)`; None if too little was revealed, or nonsense.

    Parameters
    ----------
    sent : agent -> what it sent, those who did
    public : agent -> public key, of the whole group
    around : agent -> its neighbours, of the whole group
    revealed : agent -> neighbour -> share or seed, as it said
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
    """Return the seed that its sender is bound to, however many shares are wrong, if enough are right."""
    usable = [share for share in shares if len(share) == _SHARE_BYTES]
    for chosen in islice(combinations(usable, needed), _TRIES):
        seed = keys.join(chosen)
        if seed is not None and keys.commit(seed) == commitment:
            return seed
    return None
