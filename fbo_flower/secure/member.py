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
from typing import Any

import numpy as np

from fbo_flower.algorithms import messages
from fbo_flower.algorithms.messages import MEMBERS, SUM, ArraySpec, Summand
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Phase, Report, Task, floats
from fbo_flower.errors import ConfigError, HookError, WireError, kind_of
from fbo_flower.secure import fixed_point, keys, rounds
from fbo_flower.secure.fixed_point import Words
from fbo_flower.space.checks import show

UNMASKING = (Phase.EVALUATE, Phase.REVEAL)  # half-rounds within a sum, of which no algorithm knows
SIGNATURE, REVEALED = "secure.signature", "secure.revealed"  # values of a report
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
        private, identity, study = (arrays[f"secure.{n}"].tobytes() for n in ("private", "identity", "study"))
        if "secure.numbers" not in arrays:
            return Member(private, identity, study)
        masked, signed, revealed, masks = arrays["secure.numbers"].tolist()
        works, partners = (_rows(arrays, f"secure.{n}", _DIGEST_BYTES) for n in ("works", "partners"))
        return Member(
            private, identity, study, masked, signed, revealed, bool(masks),
            cards=_rows(arrays, MEMBERS, keys.CARD_BYTES), there=_there(arrays),
            content=arrays["secure.content"].tobytes(), works=frozenset(works), partners=frozenset(partners),
        )  # fmt: skip

    def write(self, agent_state: AgentState) -> AgentState:
        """Return the agent's state with this member stored."""
        return agent_state.write(
            **{
                "secure.numbers": np.array([self.masked, self.signed, self.revealed, self.masks], np.int64),
                MEMBERS: to_rows(self.cards, keys.CARD_BYTES),
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


# -- the guard of an agent's reports -------------------------------------------------------------------


@dataclass(frozen=True)
class SumGuard:
    """Lets a report of an algorithm with secure sums leave its agent under masks only.

    Parameters
    ----------
    algorithm : its option `secure_sums` is the smallest number of agents in a sum
    """

    algorithm: Algorithm[Any]

    @property
    def least(self) -> int:
        """The smallest number of agents in a sum."""
        return self.algorithm.secure_sums

    def task_arrays(self) -> dict[str, ArraySpec]:
        """Return the arrays that a task may hold besides those of the algorithm; its value is `SUM`."""
        widths = {
            MEMBERS: (keys.CARD_BYTES,), "secure.there": (), "secure.boxes": (rounds.BOX_BYTES,),
            "secure.signatures": (keys.SIGNATURE_BYTES,),
        }  # fmt: skip
        most = keys.largest_group(self.least) - 1
        return {n: ArraySpec((None, *width), "uint8", max_length=most) for n, width in widths.items()}

    def peers(self, task: Task) -> list[bytes]:
        """Return the public identity keys of the other members of the sum that a task asks for."""
        return [keys.identity_of(card) for card in _rows(task.arrays, MEMBERS, keys.CARD_BYTES)]

    def admit(self, task: Task, agent_state: AgentState) -> AgentState:
        """Return the agent's state before a task; WireError if its sum could reveal the agent's report."""
        member, algorithm = Member.read(agent_state), self.algorithm
        if task.phase is Phase.EVALUATE:
            member = accept_signing(task, member, self.least, repeats(algorithm))
        elif task.phase is Phase.REVEAL:
            member = accept_reveal(task, member, self.least)
        elif SUM not in task.values or not messages.summands_of(algorithm, agent_state.space, task):
            member = replace(member, masks=False)
        else:
            work, content = algorithm.report_content.sum_name(task, agent_state), content_of(algorithm, task)
            if not isinstance(work, str):
                raise HookError(
                    f"{algorithm.name}: sum_name: expected a text, got {kind_of(work)}; return the name"
                )
            member = accept_masking(task, member, self.least, work, content, repeats(algorithm))
        return member.write(agent_state)

    def answer(self, task: Task, agent_state: AgentState) -> Report | None:
        """Return what an agent sends in the half-rounds `UNMASKING`; None in others."""
        if task.phase not in UNMASKING:
            return None
        member = Member.read(agent_state)
        if task.phase is Phase.EVALUATE:
            return Report(task.trial, 0, values={SIGNATURE: signature(member)})
        return Report(task.trial, 0, values={REVEALED: revealed(task, member)})

    def release(self, task: Task, agent_state: AgentState, report: Report) -> Report:
        """Return the report with masked words in place of the summands."""
        algorithm, arrays = self.algorithm, dict(report.arrays)
        layout = messages.summands_of(algorithm, agent_state.space, task)
        for name in arrays.keys() & messages.summable_of(algorithm.report_content).keys() - layout.keys():
            raise HookError(
                f"{algorithm.name}: summarise: {name}: expected it in reports to tasks that ask for a sum "
                "only, got it for another one; leave it out there, or let `asks_for_sum` return True"
            )
        clear = {name: floats(arrays.pop(name, np.zeros(s.shape))) for name, s in layout.items()}
        for name, summand in layout.items():
            if clear[name].shape != summand.shape:
                raise HookError(
                    f"{algorithm.name}: summarise: {name}: expected an array {summand.shape}, as `summable` "
                    f"says, got {clear[name].shape}"
                )
            if not (np.abs(clear[name]) <= summand.bound).all():  # the text leaves the agent: no number
                raise HookError(
                    f"{algorithm.name}: summarise: {name}: expected finite numbers between "
                    f"-{summand.bound:g} and {summand.bound:g}; let the objective return smaller values"
                )
        rest = replace(report, arrays=arrays)  # summands never leave the agent without a mask
        member = Member.read(agent_state)
        # it was masked before; or the agent has nothing to add, and would not hide the others' reports
        if SUM not in task.values or not member.masks or not any(np.any(array) for array in clear.values()):
            return rest
        flat = np.concatenate([np.ravel(clear[name]) for name in layout])
        words = fixed_point.encode(flat, bounds_of(layout))
        return replace(rest, arrays=arrays | masked_arrays(words, member, self.least))


def check_summable(algorithm: Algorithm[Any]) -> None:
    """Raise ConfigError if an algorithm cannot have secure sums."""
    if not messages.summable_of(algorithm.report_content):
        raise ConfigError(
            f"secure_sums: expected an algorithm whose server needs only sums, got {algorithm.name}; "
            "set secure_sums=0"
        )
    if algorithm.phases != (Phase.TRAIN,):
        raise ConfigError(
            f"phases: expected (Phase.TRAIN,) of {algorithm.name} with secure_sums, because sums "
            f"need the other half-rounds, got {', '.join(algorithm.phases)}; set secure_sums=0"
        )


def repeats(algorithm: Algorithm[Any]) -> bool:
    """Return whether a report may be made from observations that an earlier sum held."""
    return any(spec.repeats for spec in messages.summable_of(algorithm.report_content).values())


def bounds_of(layout: Mapping[str, Summand]) -> Array:
    """Return the largest absolute value of each number that is summed, flat."""
    return np.concatenate([np.full(summand.size, summand.bound) for summand in layout.values()])


def content_of(algorithm: Algorithm[Any], task: Task) -> bytes:
    """Return the digest of what must be the same for all members: parts of the task, and the options."""
    options = np.frombuffer(canonical_json(algorithm.options()).encode(), dtype=np.uint8)
    parts = algorithm.report_content.sum_content(messages.without_sum(task))
    if not isinstance(parts, Mapping) or not all(isinstance(part, np.ndarray) for part in parts.values()):
        raise HookError(
            f"{algorithm.name}: sum_content: expected a dict of arrays, got {show(parts)}; return one by name"
        )
    content = {**parts, "secure.options": options}
    digest = hashlib.sha256()
    for name, array in sorted(content.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


# -- what a member accepts -----------------------------------------------------------------------------


def accept_masking(
    task: Task, member: Member, least: int, work: str, content: bytes, repeats: bool
) -> Member:
    """Return the member with a new sum entered; WireError if the sum could reveal its report.

    If the report of this piece of work was masked before, the member answers without masked numbers: the
    difference of two sums over different members would be a report. That is no error, because a server whose
    first request or its answer was lost asks again. The same goes for a sum with other partners than before.

    Parameters
    ----------
    work : name of the piece of work
    content : see `content_of`
    repeats : whether the report may be made from observations that an earlier sum held
    """
    cards, number = _rows(task.arrays, MEMBERS, keys.CARD_BYTES), int(task.values[SUM])
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
    works = member.works | {digest}
    return replace(member, masked=number, masks=True, cards=cards, there=(), content=content, works=works)


def accept_signing(task: Task, member: Member, least: int, repeats: bool) -> Member:
    """Return the member with the list of who has sent numbers.

    WireError if the list is a second or a short one, or lacks a partner of the sums before.
    """
    number, there = int(task.values.get(SUM, 0)), _there(task.arrays)
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
    boxes = task.arrays.get("secure.boxes", ())
    signatures = _rows(task.arrays, "secure.signatures", keys.SIGNATURE_BYTES)
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


def _rows(arrays: Mapping[str, AnyArray], name: str, length: int) -> tuple[bytes, ...]:
    """Return the rows of an array that `to_rows` made; none without it."""
    data = np.asarray(arrays.get(name, ()), dtype=np.uint8).tobytes()
    return tuple(data[i : i + length] for i in range(0, len(data), length))


def _there(arrays: Mapping[str, AnyArray]) -> tuple[bool, ...]:
    return tuple(np.asarray(arrays.get("secure.there", ()), dtype=np.bool_).tolist())
