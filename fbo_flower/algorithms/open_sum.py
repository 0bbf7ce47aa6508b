"""The server's books of one secure sum: who sent masked numbers, who signed, and how the masks come off.

`secure_aggregation` keeps at most one open sum. Every group of agents in it has a sum of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fbo_flower.algorithms import secure_member
from fbo_flower.algorithms.messages import Summand
from fbo_flower.algorithms.records import AnyArray, Array, Report, natural_key
from fbo_flower.algorithms.secure_member import MASKED
from fbo_flower.secure import fixed_point, keys, rounds

SIGNATURE, REVEALED = "secure.signature", "secure.revealed"  # values of a report


@dataclass(frozen=True)
class OpenSum:
    """A sum that was asked for and is not finished.

    Parameters
    ----------
    number : the sum's number
    study : id of the study, which members sign
    least : smallest number of agents in a sum
    groups : the members of each group; each group has its own sum
    cards : agent -> its card, for the members of all groups
    layout : name of each array that is summed -> its shape and bound
    content : digest of the parts of the task that are the same for all members
    sent : agent -> the masked numbers that it sent
    signatures : agent -> its signature of who has sent numbers
    """

    number: int
    study: str
    least: int
    groups: tuple[tuple[str, ...], ...]
    cards: Mapping[str, bytes]
    layout: Mapping[str, Summand]
    content: bytes
    sent: Mapping[str, rounds.Masked] = field(default_factory=dict)
    signatures: Mapping[str, bytes] = field(default_factory=dict)

    def there(self, group: Sequence[str]) -> list[str]:
        """Return the members of a group that sent numbers, in the group's order."""
        return [agent for agent in group if agent in self.sent]

    def masked(self, report: Report) -> rounds.Masked | None:
        """Return the masked numbers of a report; None if there are none, or not as many as are summed."""
        if MASKED[0] not in report.arrays:
            return None
        words, boxes, commitment = (np.asarray(report.arrays[name]) for name in MASKED)
        if len(words) != sum(_length(summand) for summand in self.layout.values()):
            return None
        return rounds.Masked(words.view(np.uint64), boxes.astype(np.uint8), commitment.tobytes())

    def shares(self, group: Sequence[str], agent: str) -> dict[str, AnyArray]:
        """Return the shares that the other members sealed for an agent, and their signatures."""
        others = [other for other in group if other != agent]
        boxes = np.zeros((len(others), rounds.BOX_BYTES), dtype=np.uint8)
        for row, other in zip(boxes, others, strict=True):
            if other in self.sent:
                place = [member for member in group if member != other].index(agent)
                row[:] = self.sent[other].boxes[place]
        none = bytes(keys.SIGNATURE_BYTES)
        signatures = [self.signatures.get(other, none) for other in others]
        return {
            "secure.boxes": boxes,
            "secure.signatures": secure_member.to_rows(signatures, keys.SIGNATURE_BYTES),
        }

    def valid_signatures(self, reports: Mapping[str, Report]) -> dict[str, bytes]:
        """Return the signatures in reports that sign who of the signer's group has sent numbers."""
        signatures: dict[str, bytes] = {}
        for group in self.groups:
            cards = {agent: self.cards[agent] for agent in group}
            label = keys.label(self.study.encode(), self.number, cards.values(), self.content)
            there = self.there(group)
            statement = keys.statement(label, [cards[agent] for agent in there])
            for agent in there:
                if agent in reports:
                    signature = _parts(reports[agent], SIGNATURE)[0]
                    if keys.is_signed(keys.identity_of(cards[agent]), statement, signature):
                        signatures[agent] = signature
        return signatures

    def opened(self, reports: Mapping[str, Report]) -> list[tuple[list[str], Array]]:
        """Return the agents and the flat sum of each group that did not fail, see `sum_of`."""
        sums = ((self.there(group), self.sum_of(group, reports)) for group in self.groups)
        return [(there, total) for there, total in sums if total is not None]

    def sum_of(self, group: Sequence[str], reports: Mapping[str, Report]) -> Array | None:
        """Return the sum over the members of one group, flat, from the shares in reports.

        It is None if the group failed: if too few members signed, if their masks cannot be removed, or if an
        entry of the sum exceeds what honest agents can send.
        """
        revealed = {
            agent: dict(zip((o for o in group if o != agent), _parts(reports[agent], REVEALED), strict=False))
            for agent in group
            if agent in reports and agent in self.signatures
        }
        there = sorted(self.there(group), key=natural_key)
        needed = keys.threshold(len(group), self.least)
        if len(revealed) < needed - 1 or len(there) < needed:
            return None
        sent = {agent: self.sent[agent] for agent in there}
        public = {agent: keys.agreement_of(self.cards[agent]) for agent in group}
        words = rounds.unmask(sent, public, revealed, needed - 1)
        if words is None:
            return None
        decoded = fixed_point.decode(words)
        return decoded if (np.abs(decoded) <= len(there) * bounds_of(self.layout)).all() else None

    def named(self, total: Array) -> dict[str, Array]:
        """Return a flat sum as the arrays of the layout."""
        ends = np.cumsum([_length(summand) for summand in self.layout.values()])[:-1]
        parts = np.split(total, ends)
        return {n: part.reshape(s.shape) for (n, s), part in zip(self.layout.items(), parts, strict=True)}


def bounds_of(layout: Mapping[str, Summand]) -> Array:
    """Return the largest absolute value of each number that is summed, flat."""
    return np.concatenate([np.full(_length(summand), summand.bound) for summand in layout.values()])


def _length(summand: Summand) -> int:
    return int(np.prod(summand.shape))


def _parts(report: Report, name: str) -> list[bytes]:
    """Return the parts of a text between commas; empty bytes for a part that is not hexadecimal."""
    found = []
    for part in str(report.values.get(name, "")).split(","):
        try:
            found.append(bytes.fromhex(part))
        except ValueError:
            found.append(b"")
    return found
