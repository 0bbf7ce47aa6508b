"""Replay the methods of RFMS on a table, with the tabulated losses as the sites' answers.

A replay keeps the algorithm's state as the server does. Observations, acquisition, front and the choice of
the shipped configuration are the algorithm's code; only the acquisition is maximised over the table's points
that have not been taken instead of the cube. All methods of a replication start from the same configurations,
except random search, which draws others.

All replays of a table advance together, so that their surrogates can be fitted in one batch, which takes less
than half of the time. Each equals the algorithm's surrogate bit for bit.

What is measured of them: dominated volumes, and the shipped configuration's loss at the lockbox.

Volumes are those of `reports.selection`: (openbox outbag, curators' outbag, lockbox) against (1, 1, 1), for
the paper's protocol and the fair one. The loss at the lockbox is that on all its rows.

Notation: `n` configurations, losses `J_l (n,)` at the openbox and `J_i (n,)` at curator `i`. A criterion
returns `n` values, and the configuration with the smallest value is chosen (the first of equal ones). "mean",
"max" and "guarded max" are options `ship` of the algorithm. No criterion uses the lockbox. Criteria called
balanced need curators that weight both classes equally; the others need only what the paper's protocol sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.rfms.state import GUESSING, Method, ModelTrial, RFMSState, SiteReply, shipped
from fbo_flower.numerics.acquisition.hypervolume import hypervolume
from fbo_flower.numerics.acquisition.proposals import KERNEL, ProposalPlan
from fbo_flower.numerics.arrays import Array, BoolArray
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp
from fbo_flower.numerics.surrogates.gp import Hyperparameters
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.numerics.threads import single_thread
from fbo_flower.reports.selection import PROTOCOLS, win_matrix
from fbo_flower.space import SearchSpace
from studies.experiment import Arrays
from studies.papers.rfms.tables import INBAG, NUM_CONFIGS, OUTBAG, Key, LossTable, load_table, problem_of

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


# -- what is measured ----------------------------------------


@dataclass(frozen=True)
class ServerView:
    """What the server knows at the end of a run.

    Parameters
    ----------
    features : `(n, F)`, features of the configurations
    local : `(n,)`, `J_l`
    curators : `(n, C)`, `J_i`
    balanced : `(n, C)`, the curators' losses with both classes weighted equally
    rows : `(1 + C,)`, number of rows behind each loss, the openbox first
    """

    features: Array
    local: Array
    curators: Array
    balanced: Array
    rows: Array

    @property
    def remote(self) -> Array:
        """Return `J_r`, `(n,)`."""
        return np.asarray(self.curators @ self.rows[1:] / self.rows[1:].sum())

    @property
    def mean(self) -> Array:
        """Return `(J_l + J_r) / 2`, `(n,)`."""
        return 0.5 * (self.local + self.remote)

    @property
    def sites(self) -> Array:
        """Return the losses at all sites, the openbox first, `(n, 1 + C)`."""
        return np.column_stack([self.local, self.curators])


def shrunken(features: Array, losses: Array) -> Array:
    """Return the posterior mean of losses `(n,)` at the points where they were measured.

    A Gaussian process with fitted noise attributes part of a small loss to luck.
    """
    if np.ptp(losses) <= 1e-12:
        return losses
    y = standardise(-losses)
    fitted = fitting.fit_one(features, y, KERNEL)
    mean, _ = gp.posterior(features, y, fitted).predict(features)
    return np.asarray(losses.mean() - losses.std() * mean)


def one_standard_error(seen: ServerView) -> Array:
    """Return the largest loss at any site, for configurations whose mean is close to the best mean.

    Close means within one standard error, computed for a proportion of all rows.
    """
    mean, num_rows = seen.mean, seen.rows.sum()
    best = mean.min()
    allowed = best + np.sqrt(best * (1.0 - best) / num_rows)
    return np.where(mean <= allowed, seen.sites.max(axis=1), np.inf)


def guarded_max(seen: ServerView) -> Array:
    """Return the largest loss at any site if a configuration beats guessing at every site; else the mean.

    If none does, no configuration helps the worst site, and its losses say little about other sites.
    """
    worst = seen.sites.max(axis=1)
    return worst if worst.min() < GUESSING else seen.mean


def regret(seen: ServerView) -> Array:
    """Return the largest excess over any site's best configuration."""
    sites = seen.sites
    return np.asarray((sites - sites.min(axis=0)).max(axis=1))


CRITERIA: dict[str, Callable[[ServerView], Array]] = {
    "mean": lambda seen: seen.mean,
    "local": lambda seen: seen.local,
    "remote": lambda seen: seen.remote,
    "max": lambda seen: seen.sites.max(axis=1),
    "guarded max": guarded_max,
    "worst two": lambda seen: np.sort(seen.sites, axis=1)[:, -2:].mean(axis=1),
    "regret": regret,
    "rows": lambda seen: seen.sites @ seen.rows / seen.rows.sum(),
    "sites alike": lambda seen: seen.sites.mean(axis=1),
    "sites + max": lambda seen: 0.5 * (seen.sites.mean(axis=1) + seen.sites.max(axis=1)),
    "mean + s.d.": lambda seen: seen.sites.mean(axis=1) + seen.sites.std(axis=1),
    "shrunken mean": lambda seen: shrunken(seen.features, seen.mean),
    "shrunken sites": lambda seen: shrunken(seen.features, seen.sites.mean(axis=1)),
    "one s.e., max": one_standard_error,
    "balanced mean": lambda seen: 0.5 * (seen.local + seen.balanced.mean(axis=1)),
    "balanced + sites": lambda seen: 0.5 * (seen.sites.mean(axis=1) + seen.balanced.mean(axis=1)),
}


# -- outcomes ----------------------------------------------------------------------------------

REFERENCE = np.ones(3)
CHANCE, HINDSIGHT = "any", "best of the run"
CHOICES = (*CRITERIA, CHANCE, HINDSIGHT)
COMPARED = ("fmo", "ehvi", "rand_mo")  # methods that choose by the mean of both losses
NUM_DRAWS = 10  # random searches on a table with class weights, and on the one without


def measure(key: Key, directory: str, num_replications: int, size: Size) -> Arrays:
    """Replay and measure all methods on a table.

    Returns
    -------
    `method/volume, paper`, `method/volume, fair`, `method/shipped loss` : `(R L,)`
    `method/PROTOCOL: wins over other` : share of replications with the larger volume, ties count half
    `criterion/loss` : `(R L M',)`, loss at the lockbox of what the methods of `COMPARED` choose by it
    """
    settings = settings_of(directory, key, size)
    repeats = range(math.ceil(num_replications / len(settings)))  # each lockbox gets equally many
    volumes, own, losses = [], [], []
    with single_thread():
        for replication in repeats:
            chosen = replay_table(key, settings, replication, size)
            for setting, taken in zip(settings, chosen, strict=True):
                pairs = list(zip(METHODS.values(), taken, strict=True))
                volumes.append([dominated(setting, *pair) for pair in pairs])
                found = [chosen_losses(setting, *pair) for pair in pairs]
                own.append([each[0] for each in found])
                losses += [each for name, (_, each) in zip(METHODS, found, strict=True) if name in COMPARED]
    arrays = by_choice(losses)
    for m, name in enumerate(METHODS):
        arrays[f"{name}/shipped loss"] = np.array(own)[:, m]
        for p, protocol in enumerate(PROTOCOLS):
            mine = np.array(volumes)[..., p]
            arrays[f"{name}/volume, {protocol}"] = mine[:, m]
            for other, share in zip(METHODS, win_matrix(mine)[m], strict=True):
                arrays[f"{name}/{protocol}: wins over {other}"] = np.array(share)
    return arrays


def draw(key: Key, directory: str, size: Size) -> Arrays:
    """Measure random searches on a table; return `criterion/loss (L R,)`, as `measure` does."""
    method, losses = METHODS["rand_mo"], []
    with single_thread():
        for setting in settings_of(directory, key, size):
            runs = [
                ReplayRun(setting, method, np.arange(0), key.seed, (str(key), "draw", r))
                for r in range(NUM_DRAWS)
            ]
            for taken in replay(runs, size.num_trials):
                losses.append(chosen_losses(setting, method, taken)[1])
    return by_choice(losses)


def by_choice(losses: Sequence[Array]) -> Arrays:
    """Return `criterion/loss (n,)` from losses by `CHOICES`."""
    return {f"{name}/loss": values for name, values in zip(CHOICES, np.array(losses).T, strict=True)}


def final_losses(setting: ReplaySetting, models: Sequence[int]) -> Array:
    """Return (openbox outbag, curators' outbag, lockbox) of models, `(k, 3)`, as at the end of a run."""
    table, index = setting.table, list(models)
    rows = table.rows[setting.curators, OUTBAG].sum()
    wrong = table.wrong[index][:, setting.curators, OUTBAG].sum(axis=(1, 2))
    columns = [table.outbag[index, setting.openbox], wrong / rows, table.lockbox[index, setting.lockbox]]
    return np.stack(columns, axis=1)


def dominated(setting: ReplaySetting, method: Method, taken: Indices) -> tuple[float, float]:
    """Return a run's volumes under the paper's protocol and under the fair one."""
    state = setting.state([int(i) for i in taken])
    best = shipped(state, "own", method)
    front = [int(taken[trial]) for trial in state.front()]
    if best is None or not front:
        return 0.0, 0.0
    paper = [int(taken[best])] if method.name in ("lso", "fso") else front
    first, second = (final_losses(setting, models) for models in (paper, front))
    return (
        hypervolume(-first, -REFERENCE),
        hypervolume(-second, -REFERENCE),
    )


def seen(setting: ReplaySetting, taken: Indices) -> ServerView:
    """Return what the server knows of the configurations `taken`, none of which failed."""
    table = setting.table
    curators = setting.curators
    rows = table.rows[:, INBAG]
    with np.errstate(invalid="ignore", divide="ignore"):  # a curator may have a single class
        shares = table.wrong[taken][:, curators, INBAG] / rows[curators]
    balanced = np.nanmean(shares, axis=2)
    answered = rows[[setting.openbox, *curators]].sum(axis=1)
    return ServerView(
        setting.features[taken], table.local[taken], table.inbag[taken][:, curators], balanced, answered
    )


def chosen_losses(setting: ReplaySetting, method: Method, taken: Indices) -> tuple[float, Array]:
    """Return the lockbox's loss of the method's own choice and of each in `CHOICES`."""
    table = setting.table
    done = taken[np.isfinite(table.local[taken])]
    if len(done) == 0:
        return np.nan, np.full(len(CHOICES), np.nan)
    told, lockbox = seen(setting, done), table.lockbox[done, setting.lockbox]
    own = int(np.argmin(method.combined(np.column_stack([told.local, told.remote]))))
    chosen = [lockbox[int(np.argmin(criterion(told)))] for criterion in CRITERIA.values()]
    return lockbox[own], np.array([*chosen, lockbox.mean(), lockbox.min()])
