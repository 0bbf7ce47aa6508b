"""Tables of losses, and RFMS replayed on them with the tabulated losses as the sites' answers [Sun2019].

A table belongs to a problem with its options, a seed (of the sites and their bags) and an openbox. It holds
what the sites answer about every configuration of a design (`SiteObjective`), so it serves every choice of
the lockbox. In a replay observations, acquisition, front and the choice of the shipped configuration are the
algorithm's code; only the acquisition is maximised over the table's points that have not been taken instead
of the cube. All methods of a replication start from the same configurations, except random search, which
draws others.

Volumes are those of `reports.selection`: (openbox outbag, curators' outbag, lockbox) against (1, 1, 1), for
the paper's protocol and the fair one. The loss at the lockbox is that on all its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.rfms.state import Method, ModelTrial, RFMSState, SiteReply, shipped
from fbo_flower.clients import ObjectiveContext
from fbo_flower.errors import ObjectiveError
from fbo_flower.numerics.acquisition.hypervolume import hypervolume
from fbo_flower.numerics.acquisition.proposals import KERNEL
from fbo_flower.numerics.arrays import Array, BoolArray
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import limit_new_libraries, single_thread
from fbo_flower.reports.selection import PROTOCOLS, win_matrix
from fbo_flower.simulation.problems import SitesProblem, make_problem
from fbo_flower.space import SearchSpace
from studies.experiment import Arrays, Job, job, load

Indices = npt.NDArray[np.intp]

METHODS: dict[str, Method] = {
    "lso": Method("lso", 0.5),
    "fso 0.2": Method("fso", 0.2),
    "fso 0.5": Method("fso", 0.5),
    "fso 0.8": Method("fso", 0.8),
    "fmo": Method("fmo", 0.5),
    "ehvi": Method("ehvi", 0.5),
    "rand_mo": Method("rand_mo", 0.5),
}
SINGLE = ("lso", "fso")  # methods that return one configuration
BLIND = ("lso", "rand_mo")  # methods whose search does not depend on who is the lockbox
COMPARED = ("fmo", "ehvi", "rand_mo")  # methods that choose by the mean of both losses
CRITERIA = {"mean": "mean", "local": "own", "max": "max", "guarded max": "guarded"}  # label -> option `ship`
CHUNK = 40  # configurations of a job


@dataclass(frozen=True)
class Size:
    """The size of replays: `num_initial` of `num_trials` configurations, on tables of `num_configs`."""

    num_initial: int = 20
    num_trials: int = 60
    num_configs: int = 320


# -- tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """The identity of a table: problem, seed and openbox, and the problem's options without its roles."""

    problem: str
    seed: int
    openbox: int
    options: Mapping[str, Any]

    def __str__(self) -> str:
        options = "-".join(f"{name}={value}" for name, value in sorted(self.options.items()))
        return f"{self.problem}-{options}-seed={self.seed}-openbox={self.openbox}"

    def make(self) -> SitesProblem:
        """Return the problem."""
        problem = make_problem(self.problem, None, self.seed, self.options)
        assert isinstance(problem, SitesProblem), self.problem
        return problem


def keys(
    problem: str, seeds: Iterable[int], options: Mapping[str, Any], openboxes: Iterable[int] = range(5)
) -> list[Key]:
    """Return the tables of a problem, one for each openbox that has rows of two classes."""
    found = [Key(problem, seed, k, options) for seed in seeds for k in openboxes]
    return [
        key for key in found if (made := key.make()).num_agents > key.openbox and made.can_train(key.openbox)
    ]


def jobs(key: Key, size: Size) -> list[Job]:
    """Return the jobs of a table, each with `CHUNK` configurations."""
    return [
        job(tabulate, key, start, num_configs=size.num_configs) for start in range(0, size.num_configs, CHUNK)
    ]


def tabulate(key: Key, start: int, num_configs: int) -> Arrays:
    """Return what the sites answer about `CHUNK` configurations, by the names of `LossTable`."""
    problem = key.make()
    site, sites = problem.site_objective(), range(problem.num_agents)
    points = problem.space.snap(sobol(num_configs, problem.space.dimension, generator(0, "rfms-tables")))
    points = points[start : start + CHUNK]
    local, losses = np.full(len(points), np.nan), np.full((2, len(points), len(sites)), np.nan)

    def at(k: int) -> ObjectiveContext:
        return ObjectiveContext(str(k), k, 0, 1, generator(0))

    with single_thread():
        import sklearn.linear_model
        import sklearn.svm  # noqa: F401  # load libraries that are limited below

        limit_new_libraries()
        for i, point in enumerate(points):
            try:
                shipment = site.train(problem.space.decode(point), at(key.openbox))
            except ObjectiveError:  # this configuration counts as failed
                continue
            local[i] = shipment.loss
            for bag, name in enumerate(("inbag", "outbag")):
                losses[bag, i] = [site.judge(shipment.model.predict, name, at(k)).loss for k in sites]
    rows = np.array([[len(bag.y) for bag in problem.site(k)] for k in sites], dtype=np.float64)
    return {"points": points, "local": local, "inbag": losses[0], "outbag": losses[1], "rows": rows}


@dataclass(frozen=True)
class LossTable:
    """Losses of n configurations at S sites; NaN for a configuration that failed.

    Parameters
    ----------
    points : `(n, D)`, in the unit cube of the problem's space
    local : `(n,)`, `J_l`, the cross-validated loss at the openbox
    inbag, outbag : `(n, S)`, loss on every site's bags
    rows : `(S, 2)`, number of rows by site and bag
    """

    points: Array
    local: Array
    inbag: Array
    outbag: Array
    rows: Array

    @property
    def whole(self) -> Array:
        """Return the loss on all rows of every site, `(n, S)`, which a lockbox answers."""
        wrong = self.inbag * self.rows[:, 0] + self.outbag * self.rows[:, 1]
        return np.asarray(wrong / self.rows.sum(axis=1))


def load_table(directory: str, key: Key, size: Size) -> LossTable:
    """Return a table whose jobs are all finished."""
    parts = [load(Path(directory), tabulate, key, start) for start in range(0, size.num_configs, CHUNK)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "rows"}
    return LossTable(rows=parts[0]["rows"], **columns)


# -- replays -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A table with its roles: one openbox, one lockbox, all other sites curators."""

    table: LossTable
    space: SearchSpace
    openbox: int
    lockbox: int

    @property
    def curators(self) -> list[int]:
        """Return the sites that are neither openbox nor lockbox."""
        return [k for k in range(len(self.table.rows)) if k not in (self.openbox, self.lockbox)]

    @cached_property
    def known(self) -> tuple[Array, BoolArray]:
        """Return `(J_l, J_r)` of all configurations as the server knows them, `(n, 2)`, and which failed."""
        state = self.state(range(len(self.table.points)))
        return state.losses(), state.failed()

    @cached_property
    def features(self) -> Array:
        """Return the features of all configurations, `(n, F)`."""
        return np.asarray(self.space.features(self.table.points))

    def state(self, chosen: Iterable[int]) -> RFMSState:
        """Return the server's state after these configurations."""
        table, rows = self.table, self.table.rows[:, 0].astype(int).tolist()
        trials, replies = [], {}
        for number, i in enumerate(chosen):
            found = SiteReply(np.nan, 0, "the fit failed")
            if np.isfinite(table.local[i]):
                found = SiteReply(float(table.local[i]), rows[self.openbox])
                replies[number] = {
                    str(k): SiteReply(float(table.inbag[i, k]), rows[k]) for k in self.curators
                }
            trials.append(ModelTrial(number, table.points[i], found))
        names = str(self.openbox), tuple(map(str, self.curators)), (str(self.lockbox),)
        return RFMSState(self.space, *names, table.points[:0], tuple(trials), replies)

    def replay(self, method: Method, start: Indices, num_trials: int, seed: int, *keys: str | int) -> Indices:
        """Return the configurations that a method evaluates, in order, `(num_trials,)`.

        Parameters
        ----------
        start : the initial configurations; "rand_mo" draws others
        seed, keys : seed and keys of the generators, one per trial
        """
        every = np.arange(len(self.table.points))
        if method.name == "rand_mo":
            return generator(seed, *keys).permutation(every)[:num_trials]
        chosen = start
        while len(chosen) < num_trials:
            rng, free = generator(seed, *keys, len(chosen)), np.delete(every, chosen)
            losses, failed = self.known
            kept, losses = method.observed(losses[chosen], failed[chosen])
            if kept.any():
                function = method.plan(self.features[chosen][kept], losses, rng).fitted(KERNEL)
                following = free[np.argmax(function(self.features[free]))]
            else:
                following = rng.choice(free)
            chosen = np.append(chosen, following)
        return chosen

    def final_losses(self, models: Sequence[int]) -> Array:
        """Return (openbox outbag, curators' outbag, lockbox) of models, `(k, 3)`, as at the end of a run."""
        table, index = self.table, list(models)
        weights = table.rows[self.curators, 1]
        curators = table.outbag[index][:, self.curators] @ weights / weights.sum()
        return np.stack(
            [table.outbag[index, self.openbox], curators, table.whole[index, self.lockbox]], axis=1
        )

    def outcome(self, method: Method, taken: Indices) -> tuple[list[float], float, list[float]]:
        """Return a run's volume by each protocol, its shipped loss, and those by `CRITERIA`."""
        state, lockbox = self.state(taken), self.table.whole[taken, self.lockbox]
        best, front = shipped(state, "own", method), state.front()
        if best is None:
            return [0.0] * len(PROTOCOLS), np.nan, [np.nan] * len(CRITERIA)
        returned = [best] if method.name in SINGLE else front
        sets = (self.final_losses(taken[trials].tolist()) for trials in (returned, front))
        volumes = [hypervolume(-losses, -np.ones(3)) for losses in sets]
        alone = METHODS["lso"]  # whose own choice is the least J_l
        others = [shipped(state, ship, alone) for ship in CRITERIA.values()]
        return volumes, float(lockbox[best]), [float(lockbox[trial]) for trial in others if trial is not None]


def settings_of(directory: str, key: Key, size: Size) -> list[Setting]:
    """Return the settings of a table: every site but the openbox is the lockbox in turn."""
    table, space = load_table(directory, key, size), key.make().space
    return [Setting(table, space, key.openbox, k) for k in range(len(table.rows)) if k != key.openbox]


def measure(settings: Sequence[Setting], key: Key, num_replications: int, size: Size) -> Arrays:
    """Replay and measure all methods in the settings of a table.

    Returns
    -------
    `method/volume, paper`, `method/volume, fair`, `method/shipped loss` : `(R L,)`
    `method/PROTOCOL: wins over other` : share of replications with the larger volume, ties count half
    `criterion/loss` : `(R L M',)`, loss at the lockbox of what the methods of `COMPARED` choose by it
    """
    volumes, own, losses = [], [], []
    with single_thread():
        for replication in range(math.ceil(num_replications / len(settings))):  # for each lockbox as many
            start = generator(key.seed, str(key), "initial", replication).permutation(size.num_configs)
            blind: dict[str, Indices] = {}
            for setting in settings:
                found = []
                for name, method in METHODS.items():
                    taken = blind.get(name)
                    if taken is None:
                        names = str(key), name, replication, setting.lockbox
                        first = start[: size.num_initial]
                        taken = setting.replay(method, first, size.num_trials, key.seed, *names)
                    if method.name in BLIND:
                        blind[name] = taken
                    found.append(setting.outcome(method, taken))
                volumes.append([each[0] for each in found])
                own.append([each[1] for each in found])
                losses += [each[2] for name, each in zip(METHODS, found, strict=True) if name in COMPARED]
    arrays = {f"{name}/loss": column for name, column in zip(CRITERIA, np.array(losses).T, strict=True)}
    for m, name in enumerate(METHODS):
        arrays[f"{name}/shipped loss"] = np.array(own)[:, m]
        for p, protocol in enumerate(PROTOCOLS):
            mine = np.array(volumes)[..., p]
            arrays[f"{name}/volume, {protocol}"] = mine[:, m]
            for other, share in zip(METHODS, win_matrix(mine)[m], strict=True):
                arrays[f"{name}/{protocol}: wins over {other}"] = np.array(share)
    return arrays
