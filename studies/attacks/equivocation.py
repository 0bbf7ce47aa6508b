"""Attack secure sums as a server that lies, under the rules that agents follow now and under earlier ones.

Three attacks recover a report exactly if agents let them:

- Equivocation. The server tells agents different things about who has sent numbers. Under the earlier rules
  agents revealed as soon as half of their neighbours were said to have sent theirs. Now they first sign what
  they were told, and reveal only if more than two thirds of the group signed the same.
- The difference of two sums of the same work over different agents. Under the earlier rules an agent masked
  its report as often as it was asked. Now it masks the report of one piece of work once.
- The difference of nested sums: of reports over all observations, of which one sum lacks an agent. Under the
  earlier rules a name for each number of observations was enough. Now agents sum with the same partners only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fbo_flower.algorithms.messages import SUM
from fbo_flower.algorithms.records import AnyArray, Array, Phase, Task
from fbo_flower.errors import WireError
from fbo_flower.secure import fixed_point, keys, rounds
from fbo_flower.secure import member as secure_member
from fbo_flower.secure.member import Member
from studies.attacks.harness import AttackResult, rms

LEAST = 2
SIZE = 100  # numbers in a report
BOUND = 1e6
VICTIM, TRUSTING, MISLED, HELPER = "victim", "trusting", "misled", "helper"
# what the lying server tells agents about who has sent numbers; HELPER works for the server
LIES = {VICTIM: (MISLED, HELPER), TRUSTING: (VICTIM, MISLED, HELPER), MISLED: (TRUSTING, HELPER)}


@dataclass(frozen=True)
class Group:
    """Agents of one secure sum: what each stores about sums, its report, and the smallest sum for them."""

    agents: Mapping[str, Member]
    reports: Mapping[str, Array]
    least: int = LEAST

    @staticmethod
    def draw(names: Sequence[str], rng: np.random.Generator, size: int = SIZE, least: int = LEAST) -> Group:
        """Return agents with new keys and standard normal reports."""
        made = {n: Member(keys.new_private_key(), keys.new_identity(), b"study") for n in names}
        return Group(made, {name: rng.standard_normal(size) for name in names}, least)

    @property
    def needed(self) -> int:
        """Return how many shares of the others join to a seed."""
        return keys.threshold(len(self.agents), self.least) - 1

    def others(self, agent: str) -> list[str]:
        """Return the other agents of the group."""
        return [name for name in self.agents if name != agent]

    def boxes(self, agent: str, sent: Mapping[str, rounds.Masked]) -> rounds.Bytes:
        """Return the shares that the other agents sealed for this one."""
        return np.array([sent[other].boxes[self.others(other).index(agent)] for other in self.others(agent)])

    def without(self, agent: str) -> Group:
        """Return the group without an agent."""
        names = self.others(agent)
        return Group({n: self.agents[n] for n in names}, {n: self.reports[n] for n in names}, self.least)


def attack(seed: int) -> Iterator[AttackResult]:
    """Run the attacks under the earlier rules and under those of now."""
    for name, run, how in ATTACKS:
        for rules in ("earlier", "present"):
            error, guess = run(np.random.default_rng(seed), rules == "earlier")
            error = guess if error is None else error  # agents refuse
            yield AttackResult(f"{name}, {rules} rules", error, guess, "s.d. of reports", SIZE, how)


# -- equivocation --------------------------------------------------------------------------------------


def equivocate(rng: np.random.Generator, earlier: bool) -> tuple[float | None, float]:
    """Tell agents different things about who has sent numbers, and unmask one report.

    Returns the error, None if agents refuse, and the error of a guess. Earlier, agents revealed without
    signatures.
    """
    group = Group.draw([VICTIM, TRUSTING, MISLED, HELPER], rng)
    guess = rms(group.reports[VICTIM])
    size = len(group.agents)
    needed = (size - 1) // 2 + 1 if earlier else keys.threshold(size, LEAST) - 1
    group, sent = mask(group, 1, "work", needed)
    revealed: dict[str, dict[str, bytes]] = {}
    signatures = {} if earlier else _signatures(group)
    for agent, there in LIES.items():
        member, boxes = group.agents[agent], group.boxes(agent, sent)
        told = [other in there for other in group.others(agent)]
        if not earlier:
            task = _task(Phase.REVEAL, 1, boxes=boxes, signatures=signatures[agent])
            try:
                member = secure_member.accept_reveal(task, _signed(member, told), LEAST)
            except WireError:
                return None, guess
        parts = rounds.reveal(member.private, member.public, told, boxes, member.label())
        revealed[agent] = dict(zip(group.others(agent), parts, strict=True))
    return rms(_unmasked(group, sent, revealed, needed) - group.reports[VICTIM]), guess


def _signatures(group: Group) -> dict[str, AnyArray]:
    """Return, for each agent, the signatures that the server has of the others: the helper signs any list."""
    own = {
        agent: _signed(group.agents[agent], [other in there for other in group.others(agent)])
        for agent, there in LIES.items()
    }
    found = {}
    for agent, told in own.items():
        helper = keys.sign(group.agents[HELPER].identity, told.statement())
        rows = [
            helper if other == HELPER else bytes.fromhex(secure_member.signature(own[other]))
            for other in group.others(agent)
        ]
        found[agent] = secure_member.to_rows(rows, keys.SIGNATURE_BYTES)
    return found


def _signed(member: Member, told: Sequence[bool]) -> Member:
    task = _task(Phase.EVALUATE, 1, there=np.array(told))
    return secure_member.accept_signing(task, member, LEAST, repeats=False)


def _unmasked(
    group: Group, sent: Mapping[str, rounds.Masked], revealed: Mapping[str, Mapping[str, bytes]], needed: int
) -> Array:
    """Return the victim's numbers, from its own mask's shares and the seeds of all its pairwise masks."""
    helper = group.agents[HELPER]
    place = group.others(VICTIM).index(HELPER)
    box = sent[VICTIM].boxes[place][None]
    victim = keys.agreement_of(group.agents[VICTIM].card())
    own_share = rounds.reveal(helper.private, [victim], [True], box, helper.label())[0]
    shares = [own_share, revealed[TRUSTING][VICTIM]]
    own = rounds.join(shares[:needed])
    shared = keys.agree(helper.private, victim)
    seeds = {
        TRUSTING: revealed[VICTIM][TRUSTING],
        MISLED: revealed[MISLED][VICTIM],
        HELPER: keys.derive(shared, b"mask", helper.label()),
    }
    added, subtracted = [sent[VICTIM].words], [keys.expand(own, SIZE)]
    for other, seed in seeds.items():
        public = keys.agreement_of(group.agents[other].card())
        (subtracted if victim < public else added).append(keys.expand(seed, SIZE))
    return fixed_point.decode(fixed_point.total(added, subtracted, size=SIZE))


# -- the difference of two sums ------------------------------------------------------------------------


def subtract(
    rng: np.random.Generator, earlier: bool, other: str, repeats: bool = False
) -> tuple[float | None, float]:
    """Subtract the sum over agents 1 to 4 from an earlier sum over agents 0 to 4: the report of agent 0.

    Returns the error, None if agents refuse, and the error of a guess. Earlier, agents took `other` for other
    work, and with `repeats`, reports over all observations, summed with any partners.
    """
    group = Group.draw(list("01234"), rng)
    report = group.reports["0"]
    done = exchanged(group, 1, "work", repeats and not earlier)
    assert done is not None
    whole = total(group, done)
    guess = rms(whole / len(group.agents) - report)
    rest = replace(group, agents=done.after).without("0")
    again = exchanged(rest, 2, other if earlier or repeats else "work", repeats and not earlier)
    return None if again is None else rms(whole - total(rest, again) - report), guess


class Exchanged(NamedTuple):
    """What agents sent in the three exchanges of a sum, and what they store afterwards."""

    sent: Mapping[str, rounds.Masked]
    signatures: Mapping[str, bytes]
    revealed: Mapping[str, str]
    after: Mapping[str, Member]


def exchanged(group: Group, number: int, work: str, repeats: bool = False) -> Exchanged | None:
    """Return the three exchanges of an honest sum; None if an agent does not mask its report."""
    group, sent = mask(group, number, work, group.needed, repeats)
    if len(sent) < len(group.agents):
        return None
    everybody = np.ones(len(group.agents) - 1, dtype=np.uint8)
    task = _task(Phase.EVALUATE, number, there=everybody)
    signed = {n: secure_member.accept_signing(task, m, group.least, repeats) for n, m in group.agents.items()}
    signatures = {name: bytes.fromhex(secure_member.signature(m)) for name, m in signed.items()}
    revealed, after = {}, {}
    for name, member in signed.items():
        rows = [signatures[other] for other in group.others(name)]
        task = _task(
            Phase.REVEAL, number, boxes=group.boxes(name, sent),
            signatures=secure_member.to_rows(rows, keys.SIGNATURE_BYTES),
        )  # fmt: skip
        after[name] = secure_member.accept_reveal(task, member, group.least)
        revealed[name] = secure_member.revealed(task, after[name])
    return Exchanged(sent, signatures, revealed, after)


def total(group: Group, done: Exchanged) -> Array:
    """Return the sum of all reports."""
    parts = {
        name: dict(zip(group.others(name), map(bytes.fromhex, text.split(",")), strict=True))
        for name, text in done.revealed.items()
    }
    public = {name: keys.agreement_of(m.card()) for name, m in group.agents.items()}
    words = rounds.unmask(done.sent, public, parts, group.needed)
    assert words is not None
    return fixed_point.decode(words)


# -- both ----------------------------------------------------------------------------------------------


def mask(
    group: Group, number: int, work: str, needed: int, repeats: bool = False
) -> tuple[Group, dict[str, rounds.Masked]]:
    """Return the group after every agent was asked to mask its report, and what the agents sent."""
    cards = {name: member.card() for name, member in group.agents.items()}
    asked, sent = {}, {}
    for name, member in group.agents.items():
        rows = secure_member.to_rows([cards[other] for other in group.others(name)], keys.CARD_BYTES)
        task = _task(Phase.TRAIN, number, members=rows)
        asked[name] = after = secure_member.accept_masking(task, member, group.least, work, b"", repeats)
        if after.masks:
            words = fixed_point.encode(group.reports[name], BOUND)
            sent[name] = rounds.mask(words, after.private, after.public, after.label(), needed)
    return replace(group, agents=asked), sent


def _task(phase: Phase, number: int, **arrays: AnyArray) -> Task:
    named = {f"secure.{name}": np.asarray(array, dtype=np.uint8) for name, array in arrays.items()}
    return Task(phase, 1, 0, 0, named, {SUM: number})


ATTACKS = (
    ("a report, from lies to 3 of 4 agents; the 4th works for the server", equivocate, "zero"),
    ("a report, from two sums of the same work, over 5 and 4 agents",
     partial(subtract, other="work, by another name"), "the mean over all 5"),
    ("a report over all observations, from nested sums over 5 and 4 agents",
     partial(subtract, other="work after one more trial", repeats=True), "the mean over all 5"),
)  # fmt: skip
