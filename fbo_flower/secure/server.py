"""The server's half of secure sums: it learns sums over agents, and no single summand.

The server divides the agents into groups, and each round has three half-rounds. In TRAIN, members of a group
send their summands under random masks (`secure.rounds`). In EVALUATE they sign who of the group has sent
numbers (`secure.keys`). In REVEAL, members that see enough signatures of the same list reveal the shares that
remove the masks. Then the algorithm is told the reports of TRAIN, and the sums of all good groups with the
names of the agents in them; every agent in a sum adds something to it.

A group's sum fails when too many members leave, or when a member lies. A failed sum is never repeated,
because an agent masks the report of one piece of work once (`secure.member`). After a failure groups are
halved, so a misbehaving agent spoils a smaller sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms import messages
from fbo_flower.algorithms.messages import MEMBERS, SUM, ArraySpec, Replies, Schema, Summand
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import Federation, Phase, Report, ServerResults, Task, natural_key
from fbo_flower.algorithms.server import Server
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.arrays import AnyArray, Array
from fbo_flower.secure import fixed_point, keys, member, rounds
from fbo_flower.secure.member import MASKED, REVEALED, SIGNATURE, UNMASKING, check_summable

PATIENCE = 5  # the study ends after this many failed sums in a row, if the algorithm needs them
MAX_NUMBERS = 2**22  # masked numbers in one report


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
        if len(words) != sum(summand.size for summand in self.layout.values()):
            return None
        return rounds.Masked(words.view(np.uint64), boxes.astype(np.uint8), commitment.tobytes())

    def shares(self, group: Sequence[str], agent: str) -> dict[str, AnyArray]:
        """Return the shares that the other members sealed for an agent, and their signatures."""
        others = [other for other in group if other != agent]
        boxes = np.zeros((len(others), rounds.BOX_BYTES), dtype=np.uint8)
        for row, other in zip(boxes, others, strict=True):
            if other in self.sent:
                place = [one for one in group if one != other].index(agent)
                row[:] = self.sent[other].boxes[place]
        none = bytes(keys.SIGNATURE_BYTES)
        signatures = [self.signatures.get(other, none) for other in others]
        return {"secure.boxes": boxes, "secure.signatures": member.to_rows(signatures, keys.SIGNATURE_BYTES)}

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
        return decoded if (np.abs(decoded) <= len(there) * member.bounds_of(self.layout)).all() else None

    def named(self, total: Array) -> dict[str, Array]:
        """Return a flat sum as the arrays of the layout."""
        ends = np.cumsum([summand.size for summand in self.layout.values()])[:-1]
        parts = np.split(total, ends)
        return {n: part.reshape(s.shape) for (n, s), part in zip(self.layout.items(), parts, strict=True)}


class SecureServer(Server):
    """A server whose algorithm receives sums over `secure_sums` agents or more, and no summand.

    Parameters
    ----------
    study : id of the study, which members sign
    cards : agent -> its card (`secure.keys`)
    num_asked : sums asked for so far; the number of the last one
    open_sum : the sum that is not finished; None: there is none
    reports : of TRAIN, which the algorithm is told with the sums
    failures : sums with a failed group, minus later sums without one (at least 0): groups are halved this
        many times
    failures_in_a_row : consecutive sums without any result
    asked : agents that have a task in the open half-round
    silent : agents that did not answer their last task; sums leave them out until they answer one
    num_completed : sums that the algorithm received
    groups : of the last sum
    bound : groups whose members have signed a sum over all their observations: they sum again as a whole, or
        not at all, see `secure.member`
    """

    def __init__(self, algorithm: Algorithm[Any], federation: Federation, rng: Generator) -> None:
        check_summable(algorithm)
        super().__init__(algorithm, federation, rng)
        self.least, self.study, self.phases = algorithm.secure_sums, "", (Phase.TRAIN, *UNMASKING)
        self.cards: Mapping[str, bytes] = {}
        self.reports: Mapping[str, Report] = {}
        self.open_sum: OpenSum | None = None
        self.num_asked = self.num_completed = self.failures = self.failures_in_a_row = 0
        self.asked, self.silent = frozenset[str](), frozenset[str]()
        self.groups: tuple[tuple[str, ...], ...] = ()
        self.bound: tuple[tuple[str, ...], ...] = ()

    @property
    def finished(self) -> bool:
        needed = any(spec.needed for spec in messages.summable_of(self.algorithm.report_content).values())
        return (needed and self.failures_in_a_row >= PATIENCE) or super().finished

    def register_cards(self, study: str, cards: Mapping[str, bytes]) -> None:
        valid: dict[str, bytes] = {}
        used: set[bytes] = set()
        for agent in sorted(cards, key=natural_key):
            card = cards[agent]
            own = {keys.identity_of(card), keys.agreement_of(card)}
            is_known = self.cards.get(agent) == card or keys.is_card(card)
            if is_known and used.isdisjoint(own):  # of agents with a copied key only the first takes part
                valid[agent] = card
                used |= own
        self.study, self.cards = study, valid

    # -- asking ----------------------------------------------------------------------------------

    def ask(self, phase: Phase, server_round: int, present: Sequence[str], rng: Generator) -> dict[str, Task]:
        if phase in UNMASKING:
            tasks = self._ask_to_unmask(phase, server_round, present)
            if not tasks:
                self._close([])  # the sum has failed
            self.asked = frozenset(tasks)
            return tasks
        self._close([])  # if it is still open
        tasks = super().ask(phase, server_round, present, rng)
        self.asked = frozenset(tasks)
        algorithm, space = self.algorithm, self.space
        layouts = {a: messages.summands_of(algorithm, space, task) for a, task in tasks.items()}
        summing = [agent for agent, layout in layouts.items() if layout]
        if not summing:
            return tasks
        content = self._content_of({agent: tasks[agent] for agent in summing}, layouts)
        candidates = [agent for agent in summing if agent in self.cards and agent not in self.silent]
        self.groups = self._groups(candidates, rng)
        cards = {agent: self.cards[agent] for group in self.groups for agent in group}
        self.num_asked += 1
        layout = layouts[summing[0]]
        self.open_sum = OpenSum(self.num_asked, self.study, self.least, self.groups, cards, layout, content)
        for group in self.groups:
            for agent in group:
                others = member.to_rows([cards[a] for a in group if a != agent], keys.CARD_BYTES)
                task = tasks[agent]
                values = {**task.values, SUM: self.num_asked}
                tasks[agent] = replace(task, arrays={**task.arrays, MEMBERS: others}, values=values)
        return tasks

    def _content_of(self, tasks: Mapping[str, Task], layouts: Mapping[str, Mapping[str, Summand]]) -> bytes:
        """Return the digest of what these tasks have in common; ConfigError if they cannot be one sum."""
        (first, task), *others = tasks.items()
        if task.phase is not Phase.TRAIN:
            raise ConfigError(
                f"{self.algorithm.name}: expected tasks that ask for a sum in train only, got one in "
                f"{task.phase}; let `asks_for_sum` return False there"
            )
        content = member.content_of(self.algorithm, task)
        for agent, task in others:
            if layouts[agent] != layouts[first]:
                raise ConfigError(
                    f"{self.algorithm.name}: expected summable arrays of one shape from {first} and {agent}, "
                    f"got {_shapes(layouts[first])} and {_shapes(layouts[agent])}; let their shapes depend "
                    "on what all tasks of a round share"
                )
            if member.content_of(self.algorithm, task) != content:
                raise ConfigError(
                    f"{self.algorithm.name}: expected the same content for all members of a sum, got another "
                    f"one in the task of agent {agent} than of {first}; override `sum_content`, to return "
                    "only what the summed numbers depend on"
                )
        return content

    def _groups(self, candidates: Sequence[str], rng: Generator) -> tuple[tuple[str, ...], ...]:
        """Divide the candidates at random into groups of at most `4 least`, halved `failures` times.

        When there are several groups, each has at least `1.5 least` agents, so that some may leave before the
        reveal. Fewer candidates than `least` give no group.

        While nothing fails and nobody comes or goes, groups stay: their members have agreed on keys, and sums
        over ever other agents would tell more about each. Bound groups always stay, and wait for each other.
        """
        taken = {agent for group in self.bound for agent in group}
        whole = tuple(group for group in self.bound if set(group) <= set(candidates))
        candidates = [agent for agent in candidates if agent not in taken]
        if len(candidates) < max(self.least, 2):
            return whole
        fewest = -(-len(candidates) // keys.largest_group(self.least))  # rounded up
        most = len(candidates) // (self.least + max(1, self.least // 2))
        number = max(1, min(fewest * 2**self.failures, most))
        groups = tuple(group for group in self.groups if group not in self.bound)
        last = {agent for group in groups for agent in group}
        stays = number == len(groups) and last == set(candidates) and not self.failures
        if stays:
            return whole + groups
        order = [candidates[i] for i in rng.permutation(len(candidates))]
        return whole + tuple(tuple(order[i::number]) for i in range(number))

    def _ask_to_unmask(self, phase: Phase, server_round: int, present: Sequence[str]) -> dict[str, Task]:
        """Return the tasks to sign or to reveal."""
        tasks: dict[str, Task] = {}
        if (open_sum := self.open_sum) is None:
            return tasks
        for group in open_sum.groups:
            there, signs = open_sum.there(group), phase is Phase.EVALUATE
            speakers = there if signs else [agent for agent in there if agent in open_sum.signatures]
            if len(speakers) < keys.threshold(len(group), self.least):
                continue
            for agent in speakers:
                if agent in present:
                    arrays = open_sum.shares(group, agent)
                    if signs:
                        others = [other in there for other in group if other != agent]
                        arrays = {"secure.there": np.array(others, dtype=np.uint8)}
                    tasks[agent] = Task(phase, server_round, 0, 0, arrays, {SUM: self.num_asked})
        return tasks

    # -- telling ---------------------------------------------------------------------------------

    def tell(self, phase: Phase, reports: Mapping[str, Report]) -> None:
        open_sum = self.open_sum
        if phase is Phase.EVALUATE:
            self._read_signatures(reports)
        elif phase is Phase.REVEAL:
            self._close([] if open_sum is None else open_sum.opened(reports))
        else:
            self.silent = (self.silent | self.asked) - reports.keys()
            self.reports = {agent: _without_masks(report) for agent, report in reports.items()}
            if open_sum is None:
                self._tell(phase, Replies(self.reports, self.algorithm.report_content))
            else:
                found = {agent: open_sum.masked(report) for agent, report in reports.items()}
                sent = {agent: masked for agent, masked in found.items() if masked is not None}
                self.open_sum = replace(open_sum, sent=sent)

    def _read_signatures(self, reports: Mapping[str, Report]) -> None:
        """Store the valid signatures; an agent without one counts as silent."""
        open_sum = self.open_sum
        if open_sum is None:
            return
        signatures = open_sum.valid_signatures(reports)
        self.silent |= self.asked - signatures.keys()
        if member.repeats(self.algorithm):
            signed = (tuple(open_sum.there(g)) for g in open_sum.groups if set(g) & signatures.keys())
            self.bound = tuple(dict.fromkeys((*self.bound, *signed)))
        self.open_sum = replace(open_sum, signatures=signatures)

    def _close(self, good: Sequence[tuple[Sequence[str], Array]]) -> None:
        """Tell the algorithm the reports of TRAIN, and the sums of the good groups, if a sum is open.

        If no group is good, it learns that the sum failed, unless no agent was asked to mask any report.

        Parameters
        ----------
        good : agents and sum of each group that succeeded
        """
        open_sum, reports = self.open_sum, self.reports
        if open_sum is None:
            return
        self.open_sum, self.reports = None, {}
        any_failed = len(good) < len(open_sum.groups)
        self.failures = self.failures + 1 if any_failed else max(0, self.failures - 1)
        sums = [(sorted(there, key=natural_key), open_sum.named(total)) for there, total in good]
        if good:
            self.failures_in_a_row = 0
            self.num_completed += 1
        else:
            waits = bool(self.bound) and not open_sum.groups  # for a member that is silent
            self.failures_in_a_row += not waits
        content = self.algorithm.report_content
        self._tell(Phase.TRAIN, Replies(reports, content, sums if open_sum.groups else None))

    def results(self) -> ServerResults | None:
        found = super().results() or ServerResults()
        sums = {
            "sums_of_at_least": self.least,
            "sums_made": self.num_completed,
            "sums_asked_for": self.num_asked,
        }
        return replace(found, privacy={**found.privacy, **sums})

    # -- what may cross the wire -----------------------------------------------------------------

    def report_schema(self) -> Schema:
        most = keys.largest_group(self.least) - 1
        own = {
            "secure.words": ArraySpec((None, 2), "int64", -np.inf, np.inf, MAX_NUMBERS),
            "secure.boxes": ArraySpec((None, rounds.BOX_BYTES), "uint8", max_length=most),
            "secure.commitment": ArraySpec((keys.SEED_BYTES,), "uint8"),
        }
        plain = super().report_schema()
        return Schema({**plain.arrays, **own}, {**plain.values, SIGNATURE: str, REVEALED: str})

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if a report lacks a part of the sum, or holds one that the task did not ask for."""
        received = [name for name in MASKED if name in report.arrays]
        asked = SUM in task.values and task.phase not in UNMASKING
        if received and (not asked or len(received) < len(MASKED)):
            expected = ", ".join(MASKED) if asked else "none of a secure sum's arrays"
            raise WireError(f"names: expected {expected}, got {', '.join(received)}")
        if received and len(report.arrays["secure.boxes"]) != len(task.arrays[MEMBERS]):
            raise WireError(
                f"secure.boxes: expected one for each of {len(task.arrays['secure.members'])} other members, "
                f"got {len(report.arrays['secure.boxes'])}",
                "shape",
            )
        for name, phase in ((SIGNATURE, Phase.EVALUATE), (REVEALED, Phase.REVEAL)):
            if (name in report.values) != (task.phase is phase):
                raise WireError(f"values: expected {name} in half-round {phase} and in no other", "values")
        if task.phase not in UNMASKING:
            super().check_report(task, _without_masks(report))


def _without_masks(report: Report) -> Report:
    """Return the report that the algorithm is told."""
    return replace(report, arrays={n: array for n, array in report.arrays.items() if n not in MASKED})


def _shapes(layout: Mapping[str, Summand]) -> str:
    return ", ".join(f"{name} {summand.shape}" for name, summand in layout.items())


def _parts(report: Report, name: str) -> list[bytes]:
    """Return the parts of a text between commas; empty bytes for a part that is not hexadecimal."""
    found = []
    for part in str(report.values.get(name, "")).split(","):
        try:
            found.append(bytes.fromhex(part))
        except ValueError:
            found.append(b"")
    return found
