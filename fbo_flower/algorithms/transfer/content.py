"""The posteriors that travel in tasks, as arrays that many tasks share.

With many agents each target would get, encode, decode and store posteriors of its own, 40 kB each. Here the
targets of a group get the same arrays. They are encoded once, decoded once, and in a simulation all targets
of a process keep one copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fbo_flower.algorithms.ei.memo import kept_with
from fbo_flower.algorithms.records import AnyArray, Array, natural_key
from fbo_flower.algorithms.transfer.options import WeightPosterior
from fbo_flower.numerics.seeding import generator

STORED = ("means", "inverses", "incumbents")
NO_INCUMBENTS = np.empty(0)
SHARED_FROM = 16  # posteriors in a task from which a target's own one is sent along, so that tasks are equal


class Outgoing:
    """The posteriors that a half-round's tasks carry; equal arrays of several tasks are one object."""

    def __init__(
        self, posteriors: Mapping[str, WeightPosterior], max_members: int, with_incumbents: bool
    ) -> None:
        self._limit, self._with_incumbents = max_members, with_incumbents
        self._posteriors = {agent: posteriors[agent] for agent in sorted(posteriors, key=natural_key)}
        self._samples: dict[int, list[str]] = {}
        self._made: dict[tuple[int, ...], dict[str, AnyArray]] = {}

    def arrays(self, agent: str, stored: Mapping[str, frozenset[int]]) -> dict[str, AnyArray]:
        """Return the digests of the posteriors for a target, and the content of those it does not store."""
        sample = self._sample(agent)
        digests = {a: self._posteriors[a].digest for a in sample}
        others = [a for a in sample if a != agent][: self._limit]
        wanted = tuple(dict.fromkeys(digests[a] for a in others))  # equal posteriors of two agents count once
        if not wanted:
            return {}
        has = stored.get(agent, frozenset())
        missing = [a for a in others if digests[a] not in has]
        arrays: dict[str, AnyArray] = {"members": np.array(wanted, dtype=np.int64)}
        if len(missing) >= SHARED_FROM:
            missing = [a for a in sample if digests[a] not in has]
        if missing:
            content = {digests[a]: self._posteriors[a] for a in missing}
            arrays |= self._content(tuple(content), list(content.values()))
        return arrays

    def _sample(self, agent: str) -> list[str]:
        """Return the agents whose posteriors a target is sent: perhaps itself too, and perhaps one too many.

        If there are many, each group of targets has its own sample, the same in every round, so that a
        posterior is sent once.
        """
        everyone = list(self._posteriors)
        if len(everyone) - (agent in self._posteriors) <= self._limit:
            return everyone
        num_groups = -(-len(everyone) // self._limit)
        group = int(generator(0, "group", agent).integers(num_groups))
        if group not in self._samples:
            rng = generator(0, "members", group)
            chosen = rng.choice(len(everyone), self._limit + 1, replace=False)
            chosen[:-1].sort()  # the last one is for the targets that are in the sample themselves
            self._samples[group] = [everyone[i] for i in chosen]
        return self._samples[group]

    def _content(
        self, digests: tuple[int, ...], posteriors: Sequence[WeightPosterior]
    ) -> dict[str, AnyArray]:
        if digests not in self._made:
            arrays: dict[str, AnyArray] = {
                "means": np.array([p.mean for p in posteriors]),
                "inverses": np.array([p.inverse for p in posteriors]),
            }
            if self._with_incumbents:
                arrays["incumbents"] = np.concatenate([p.incumbent for p in posteriors])
            self._made[digests] = arrays
        return self._made[digests]


def received(arrays: Mapping[str, Array]) -> tuple[list[int], dict[str, Array]]:
    """Return the digests of the posteriors in a task, and arrays of them that a state can keep.

    All targets that share the arrays `STORED` of their tasks share what is returned.
    """
    kept = kept_with(arrays["means"])
    rest, found = kept.get("received", ((), None))
    if found is None or any(rest[i] is not arrays[name] for i, name in enumerate(STORED[1:])):
        means, inverses, incumbents = (arrays[name] for name in STORED)
        best = incumbents.reshape(-1, 1) if len(incumbents) else np.empty((len(means), 0))
        rows = zip(means, inverses, best, strict=True)
        found = [WeightPosterior(*row).digest for row in rows], {n: _own(arrays[n]) for n in STORED}
        kept["received"] = (inverses, incumbents), found
    digests: list[int]
    digests, settled = found
    return digests, settled


def _own(array: Array) -> Array:
    """Return a copy that cannot be written, which a state keeps as it is."""
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy
