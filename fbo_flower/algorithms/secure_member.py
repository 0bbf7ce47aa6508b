"""The agent's half of secure sums: what a member accepts, masks, signs and reveals.

A member masks the report of one piece of work once. For each sum it signs one statement about who has sent
numbers, and it reveals once, only if enough members have signed the same statement. The agent's state keeps
the books, so they survive wherever the agent's journal does.

Some algorithms sum reports that are made anew from all observations. If an agent is in one of two such sums
and not in the other, their difference holds all its observations, although it is not asked about the second.
So a member that has signed such a sum takes part in further ones with the same members only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fbo_flower.algorithms.records import AgentState, AnyArray, Task
from fbo_flower.errors import WireError
from fbo_flower.secure import keys, rounds
from fbo_flower.secure.fixed_point import Words

SUM = "secure.sum"  # value of a task: the number of the sum
MASKED = ("secure.words", "secure.boxes", "secure.commitment")  # arrays of a report
_LARGEST_NUMBER = 2**62
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class Member:
    """What a member stores about secure sums.

    Parameters
    ----------
    private, identity : private keys, for key agreement and for signatures
    study : id of the study
    masked, signed, revealed : number of the last sum for which the member masked numbers, signed a statement
        and revealed shares
    masks : whether the present task is to be answered with masked numbers
    cards : of the other members of the last sum
    there : which of these members have sent numbers, in the statement that the member signed
    content : digest of the parts of the last sum's task that are the same for all members
    works : digests of the pieces of work whose reports were masked, `_DIGEST_BYTES` bytes each
    partners : digests of the cards of those with whom the member has signed a sum over all its observations;
        empty before the first one
    """

    private: bytes
    identity: bytes
    study: bytes
    masked: int = 0
    signed: int = 0
    revealed: int = 0
    masks: bool = False
    cards: tuple[bytes, ...] = ()
    there: tuple[bool, ...] = ()
    content: bytes = b""
    works: frozenset[bytes] = frozenset()
    partners: frozenset[bytes] = frozenset()

    @staticmethod
    def read(agent_state: AgentState) -> Member:
        """Return the member that `write` stored."""
        arrays = agent_state.arrays
        numbers = np.asarray(arrays.get("secure.numbers", np.zeros(4)), dtype=np.int64)
        masked, signed, revealed, masks = map(int, numbers)
        return Member(
            private=_bytes(arrays, "private"),
            identity=_bytes(arrays, "identity"),
            study=_bytes(arrays, "study"),
            masked=masked,
            signed=signed,
            revealed=revealed,
            masks=bool(masks),
            cards=_rows(arrays.get("secure.members", np.empty((0, keys.CARD_BYTES)))),
            there=tuple(np.asarray(arrays.get("secure.there", np.empty(0)), dtype=np.bool_).tolist()),
            content=np.asarray(arrays.get("secure.content", np.empty(0)), dtype=np.uint8).tobytes(),
            works=_digests(arrays, "works"),
            partners=_digests(arrays, "partners"),
        )

    def write(self, agent_state: AgentState) -> AgentState:
        """Return the agent's state with this member stored."""
        return agent_state.write(
            **{
                "secure.numbers": np.array([self.masked, self.signed, self.revealed, self.masks], np.int64),
                "secure.members": to_rows(self.cards, keys.CARD_BYTES),
                "secure.there": np.array(self.there, dtype=np.uint8),
                "secure.content": np.frombuffer(self.content, dtype=np.uint8),
                "secure.works": to_rows(sorted(self.works), _DIGEST_BYTES),
                "secure.partners": to_rows(sorted(self.partners), _DIGEST_BYTES),
            }
        )

    @property
    def size(self) -> int:
        """Number of members of the group, this one included."""
        return len(self.cards) + 1

    @property
    def public(self) -> list[bytes]:
        """Public agreement keys of the other members."""
        return [keys.agreement_of(card) for card in self.cards]

    def card(self) -> bytes:
        """Return this member's card."""
        return keys.make_card(self.identity, self.private)

    def label(self) -> bytes:
        """Return the label of the last sum."""
        return keys.label(self.study, self.masked, (*self.cards, self.card()), self.content)

    def statement(self) -> bytes:
        """Return the statement about who has sent numbers for the last sum."""
        there = [card for card, is_there in zip(self.cards, self.there, strict=True) if is_there]
        return keys.statement(self.label(), (*there, self.card()))


def identity_arrays(private: bytes, identity: bytes, study: str) -> dict[str, AnyArray]:
    """Return the arrays that an agent's state needs for secure sums: its private keys and the study's id."""
    named = {"private": private, "identity": identity, "study": study.encode()}
    return {f"secure.{name}": np.frombuffer(data, dtype=np.uint8) for name, data in named.items()}


# -- what a member accepts -----------------------------------------------------------------------------


def digest_of(content: Mapping[str, AnyArray]) -> bytes:
    """Return the digest of the parts of a task that must be the same for all members."""
    digest = hashlib.sha256()
    for name, array in sorted(content.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def accept_masking(
    task: Task, member: Member, least: int, work: str, content: Mapping[str, AnyArray], repeats: bool
) -> Member:
    """Return the member with a new sum entered; WireError if the sum could reveal its report.

    If the report of this piece of work was masked before, the member answers without masked numbers: the
    difference of two sums over different members would be a report. That is no error, because a server whose
    first request or its answer was lost asks again. The same goes for a sum with other partners than before.

    Parameters
    ----------
    work : name of the piece of work
    content : parts of the task that must be the same for all members
    repeats : whether the report may be made from observations that an earlier sum held
    """
    cards = _rows(task.arrays.get("secure.members", np.empty((0, keys.CARD_BYTES))))
    number = int(task.values[SUM])
    if not max(least - 1, 1) <= len(cards) < keys.largest_group(least):
        raise WireError(
            f"secure.members: expected {max(least - 1, 1)} to {keys.largest_group(least) - 1} other "
            f"members, got {len(cards)}",
            "shape",
        )
    if not all(map(keys.is_card, cards)):
        raise WireError("secure.members: expected keys that their agents signed, got others", "content")
    if not keys.are_distinct((*cards, member.card())):
        raise WireError(
            "secure.members: expected one of every other agent, got a key twice or the agent's own", "content"
        )
    digest = _digest(work.encode())
    others = repeats and member.partners and member.partners != frozenset(map(_digest, cards))
    if digest in member.works or others:
        return replace(member, masks=False)
    if not member.masked < number < _LARGEST_NUMBER:
        raise WireError(f"secure.sum: expected more than {member.masked}, got {number}", "values")
    return replace(
        member,
        masked=number,
        masks=True,
        cards=cards,
        there=(),
        content=digest_of(content),
        works=member.works | {digest},
    )


def accept_signing(task: Task, member: Member, least: int, repeats: bool) -> Member:
    """Return the member with the list of who has sent numbers.

    WireError if the list is a second or a short one, or lacks a partner of the sums before.
    """
    number = int(task.values.get(SUM, 0))
    there = tuple(np.asarray(task.arrays.get("secure.there", np.empty(0)), dtype=np.bool_).tolist())
    needed = keys.threshold(member.size, least) - 1
    if number != member.masked or number <= member.signed:
        raise WireError(f"secure.sum: expected {member.masked}, once, got {number}", "values")
    if len(there) != len(member.cards):
        raise WireError(
            f"secure.there: expected an entry for each of {len(member.cards)} members, got {len(there)}",
            "shape",
        )
    if sum(there) < needed:
        raise WireError(
            f"secure.there: expected at least {needed} other members that have sent numbers, "
            f"got {sum(there)}",
            "values",
        )
    member = replace(member, signed=number, there=there, masks=False)
    if not repeats:
        return member
    if member.partners and not all(there):
        raise WireError(
            f"secure.there: expected all {len(there)} members of the sum before, got {sum(there)}; the "
            "difference of the two sums would be the observations of those who are missing",
            "values",
        )
    cards = (card for card, is_there in zip(member.cards, there, strict=True) if is_there)
    return replace(member, partners=frozenset(map(_digest, cards)))


def accept_reveal(task: Task, member: Member, least: int) -> Member:
    """Return the member after its reveal; WireError unless `t` members signed what it signed itself."""
    number, count = int(task.values.get(SUM, 0)), len(member.cards)
    boxes = task.arrays.get("secure.boxes", np.empty((0, rounds.BOX_BYTES)))
    signatures = _rows(task.arrays.get("secure.signatures", np.empty((0, keys.SIGNATURE_BYTES))))
    if not number == member.masked == member.signed or number <= member.revealed:
        raise WireError(f"secure.sum: expected {member.signed}, once, got {number}", "values")
    if not len(boxes) == len(signatures) == count:
        raise WireError(
            f"secure.boxes: expected a box and a signature for each of {count} members, got {len(boxes)} and "
            f"{len(signatures)}",
            "shape",
        )
    statement, needed = member.statement(), keys.threshold(member.size, least)
    valid = 1 + sum(
        is_there and keys.is_signed(keys.identity_of(card), statement, signature)
        for card, is_there, signature in zip(member.cards, member.there, signatures, strict=True)
    )
    if valid < needed:
        raise WireError(
            f"secure.signatures: expected {needed} members that signed the same list of members, got {valid}",
            "content",
        )
    return replace(member, revealed=number, masks=False)


# -- what a member sends -------------------------------------------------------------------------------


def masked_arrays(words: Words, member: Member, least: int) -> dict[str, AnyArray]:
    """Return the arrays of a report with masked numbers `(size, 2)`."""
    needed = keys.threshold(member.size, least) - 1
    masked = rounds.mask(words, member.private, member.public, member.label(), needed)
    commitment = np.frombuffer(masked.commitment, dtype=np.uint8)
    return dict(zip(MASKED, (masked.words.view(np.int64), masked.boxes, commitment), strict=True))


def signature(member: Member) -> str:
    """Return the member's signature of its statement, in hexadecimal digits."""
    return keys.sign(member.identity, member.statement()).hex()


def revealed(task: Task, member: Member) -> str:
    """Return the shares and seeds that remove the masks from the sum: hexadecimal parts, by commas."""
    boxes = np.asarray(task.arrays["secure.boxes"], dtype=np.uint8)
    parts = rounds.reveal(member.private, member.public, member.there, boxes, member.label())
    return ",".join(part.hex() for part in parts)


def to_rows(parts: Sequence[bytes], length: int) -> AnyArray:
    """Return parts of equal length as a uint8 array, a row for each."""
    return np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(-1, length)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]


def _digests(arrays: Mapping[str, AnyArray], name: str) -> frozenset[bytes]:
    return frozenset(_rows(arrays.get(f"secure.{name}", np.empty((0, _DIGEST_BYTES)))))


def _rows(array: AnyArray) -> tuple[bytes, ...]:
    data, length = np.asarray(array, dtype=np.uint8).tobytes(), array.shape[-1]
    return tuple(data[i : i + length] for i in range(0, len(data), length)) if length else ()


def _bytes(arrays: Mapping[str, AnyArray], name: str) -> bytes:
    return np.asarray(arrays[f"secure.{name}"], dtype=np.uint8).tobytes()
