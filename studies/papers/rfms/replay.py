"""Replay the methods of RFMS on a table, with the tabulated losses as the sites' answers.

A replay keeps the algorithm's state as the server does. Observations, acquisition, front and the choice of
the shipped configuration are the algorithm's code; only the acquisition is maximised over the table's points
that have not been taken instead of the cube. All methods of a replication start from the same configurations,
except random search, which draws others.

All replays of a table advance together, so that their surrogates can be fitted in one batch, which takes less
than half of the time. Each equals the algorithm's surrogate bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.rfms.state import Method, ModelTrial, RFMSState, SiteReply
from fbo_flower.numerics.acquisition.proposals import KERNEL, ProposalPlan
from fbo_flower.numerics.arrays import Array, BoolArray
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting
from fbo_flower.numerics.surrogates.gp import Hyperparameters
from fbo_flower.space import SearchSpace
from studies.papers.rfms.tables import INBAG, NUM_CONFIGS, Key, LossTable, load_table, problem_of

Indices = npt.NDArray[np.intp]
IndexTable = npt.NDArray[np.intp]

METHODS: dict[str, Method] = {
    "lso": Method("lso", 0.5),
    "fso 0.2": Method("fso", 0.2),
    "fso 0.5": Method("fso", 0.5),
    "fso 0.8": Method("fso", 0.8),
    "fmo": Method("fmo", 0.5),
    "ehvi": Method("ehvi", 0.5),
    "rand_mo": Method("rand_mo", 0.5),
}


@dataclass(frozen=True)
class ReplaySetting:
    """A table with its roles: one openbox, one lockbox, all other sites curators."""

    table: LossTable
    space: SearchSpace
    openbox: int
    lockbox: int

    @property
    def curators(self) -> list[int]:
        """Return the sites that are neither openbox nor lockbox."""
        return [k for k in range(self.table.wrong.shape[1]) if k not in (self.openbox, self.lockbox)]

    @cached_property
    def answers(self) -> tuple[Array, Array]:
        """Return the openbox's loss `(n,)` and all sites' losses on their inbags `(n, S)`."""
        return self.table.local, self.table.inbag

    @cached_property
    def told(self) -> tuple[Array, BoolArray]:
        """Return `(J_l, J_r)` of all configurations as the server knows them, `(n, 2)`, and which failed."""
        state = self.state(range(len(self.table.points)))
        return state.losses(), state.failed()

    @cached_property
    def features(self) -> Array:
        """Return the features of all configurations, `(n, F)`."""
        return np.asarray(self.space.features(self.table.points))

    def state(self, chosen: Sequence[int]) -> RFMSState:
        """Return the server's state after these configurations."""
        curators = tuple(map(str, self.curators))
        empty = self.table.points[:0]
        state = RFMSState(self.space, str(self.openbox), curators, (str(self.lockbox),), empty)
        for index in chosen:
            state = self.judge(state, index)
        return state

    def judge(self, state: RFMSState, index: int) -> RFMSState:
        """Return the state after one more configuration is judged."""
        local, inbag = self.answers
        rows = self.table.rows[:, INBAG].sum(axis=-1)
        number = len(state.trials)
        failed = not np.isfinite(local[index])
        found = (
            SiteReply(np.nan, 0, "the fit failed")
            if failed
            else SiteReply(float(local[index]), int(rows[self.openbox]))
        )
        trial = ModelTrial(number, self.table.points[index], found)
        answers = {str(k): SiteReply(float(inbag[index, k]), int(rows[k])) for k in self.curators}
        return replace(
            state,
            trials=(*state.trials, trial),
            replies=state.replies if failed else {**state.replies, number: answers},
        )


@dataclass(frozen=True)
class ReplayRun:
    """One replay: a method in a setting.

    Parameters
    ----------
    start : the initial configurations; "rand_mo" draws others
    seed, keys : seed and keys of the generators, one per trial
    """

    setting: ReplaySetting
    method: Method
    start: Indices
    seed: int
    keys: tuple[str | int, ...]

    def plan(self, chosen: Indices, rng: np.random.Generator) -> ProposalPlan | None:
        """Return the surrogates to fit after the configurations so far; None if all have failed."""
        losses, failed = self.setting.told
        kept, losses = self.method.observed(losses[chosen], failed[chosen])
        return self.method.plan(self.setting.features[chosen][kept], losses, rng) if kept.any() else None


def together(plans: Sequence[ProposalPlan]) -> list[list[Hyperparameters]]:
    """Fit the surrogates of all plans together; those with equally many points form a batch."""
    found: list[list[Hyperparameters]] = [[] for _ in plans]
    for size in sorted({plan.x.shape for plan in plans}):
        places = [(i, y) for i, plan in enumerate(plans) if plan.x.shape == size for y in plan.targets]
        modes = fitting.fit(
            np.stack([plans[i].x for i, _ in places]), np.stack([y for _, y in places]), KERNEL
        )
        for (i, _), theta in zip(places, modes.theta, strict=True):
            found[i].append(Hyperparameters.from_array(KERNEL, theta))
    return found


def replay(runs: Sequence[ReplayRun], num_trials: int) -> list[Indices]:
    """Return the configurations that every run evaluates, in order, `(num_trials,)` each.

    Parameters
    ----------
    runs : replays with equally many initial configurations, except "rand_mo"
    """
    chosen = [np.zeros(num_trials, dtype=np.intp) for _ in runs]
    searches = []
    for run, mine in zip(runs, chosen, strict=True):
        if run.method.name == "rand_mo":
            mine[:] = generator(run.seed, *run.keys).permutation(len(run.setting.table.points))[:num_trials]
        else:
            mine[: len(run.start)] = run.start[:num_trials]
            searches.append((run, mine))
    for trial in range(len(searches[0][0].start) if searches else num_trials, num_trials):
        rngs = [generator(run.seed, *run.keys, trial) for run, _ in searches]
        plans = [run.plan(mine[:trial], g) for (run, mine), g in zip(searches, rngs, strict=True)]
        fitted = iter(together([plan for plan in plans if plan is not None]))
        for (run, mine), plan, rng in zip(searches, plans, rngs, strict=True):
            free = np.delete(np.arange(len(run.setting.table.points)), mine[:trial])
            if plan is None:
                mine[trial] = rng.choice(free)
            else:
                function = plan.given(next(fitted))
                mine[trial] = free[np.argmax(function(run.setting.features[free]))]
    return chosen


@dataclass(frozen=True)
class Size:
    """The size of replays: `num_initial` of `num_trials` configurations, on tables of `num_configs`."""

    num_initial: int = 20
    num_trials: int = 60
    num_configs: int = NUM_CONFIGS


def replay_table(key: Key, settings: Sequence[ReplaySetting], replication: int, size: Size) -> IndexTable:
    """Replay all methods in the settings of a table; return the evaluated indices, `(L, M, num_trials)`."""
    start = generator(key.seed, str(key), "initial", replication).permutation(size.num_configs)
    start = start[: size.num_initial]
    runs = {
        (b, m): ReplayRun(setting, method, start, key.seed, (str(key), name, replication, setting.lockbox))
        for b, setting in enumerate(settings)
        for m, (name, method) in enumerate(METHODS.items())
        if b == 0 or method.name not in ("lso", "rand_mo")  # these do not depend on the lockbox
    }
    found = dict(zip(runs, replay(list(runs.values()), size.num_trials), strict=True))
    return np.array(
        [[found.get((b, m), found.get((0, m))) for m in range(len(METHODS))] for b in range(len(settings))]
    )


def settings_of(directory: str, key: Key, size: Size) -> list[ReplaySetting]:
    """Return the settings of a table: every site but the openbox is the lockbox in turn."""
    table, space = load_table(directory, key, size.num_configs), problem_of(key).space
    boxes = [k for k in range(table.wrong.shape[1]) if k != key.openbox]
    return [ReplaySetting(table, space, key.openbox, lockbox) for lockbox in boxes]
