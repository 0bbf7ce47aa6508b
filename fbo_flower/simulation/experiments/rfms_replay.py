"""Methods of RFMS on a table: the algorithm's own proposals, among tabulated configurations not yet taken.

A replay holds the algorithm's state as the server would, with the table's losses for the sites' answers.
Observations, acquisition, front and the choice of what is shipped are the algorithm's; only the maximisation
of the acquisition is over the table's points instead of the cube. The initial configurations are the same for
all methods of a replication but random search, which draws its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.rfms_methods import Method
from fbo_flower.algorithms.rfms_state import Answer, RFMSState, Trial
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.experiments.cells import Arrays, Cell, load_cell
from fbo_flower.simulation.experiments.rfms_tables import (
    INBAG,
    NUM_CONFIGS,
    Key,
    Table,
    load_table,
    problem_of,
)
from fbo_flower.space import SearchSpace

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


@dataclass(frozen=True)
class Setting:
    """A table with its roles: one openbox, one lockbox, all other sites curators."""

    table: Table
    space: SearchSpace
    openbox: int
    lockbox: int

    @property
    def curators(self) -> list[int]:
        """Return the sites that are neither."""
        return [k for k in range(self.table.wrong.shape[1]) if k not in (self.openbox, self.lockbox)]

    @cached_property
    def answers(self) -> tuple[Array, Array]:
        """Return the openbox's loss `(n,)` and all sites' losses on their inbags `(n, S)`."""
        return self.table.local, self.table.inbag

    @cached_property
    def features(self) -> Array:
        """Return the features of all configurations, `(n, F)`."""
        return np.asarray(self.space.features(self.table.points))

    def state(self, chosen: Sequence[int]) -> RFMSState:
        """Return what the server knows after these configurations."""
        curators = tuple(map(str, self.curators))
        empty = self.table.points[:0]
        state = RFMSState(self.space, str(self.openbox), curators, (str(self.lockbox),), empty)
        for index in chosen:
            state = self.judge(state, index)
        return state

    def judge(self, state: RFMSState, index: int) -> RFMSState:
        """Return the state after one more configuration."""
        local, inbag = self.answers
        rows = self.table.rows[:, INBAG].sum(axis=-1)
        number = len(state.trials)
        failed = not np.isfinite(local[index])
        found = (
            Answer(np.nan, 0, "the fit failed")
            if failed
            else Answer(float(local[index]), int(rows[self.openbox]))
        )
        trial = Trial(number, self.table.points[index], found)
        answers = {str(k): Answer(float(inbag[index, k]), int(rows[k])) for k in self.curators}
        return replace(
            state,
            trials=(*state.trials, trial),
            answers=state.answers if failed else {**state.answers, number: answers},
        )


def replay(
    setting: Setting, method: Method, start: Indices, num_trials: int, seed: int, *keys: str | int
) -> Indices:
    """Return the configurations that a method evaluates, in order, `(num_trials,)`.

    Parameters
    ----------
    start : the initial configurations; "rand_mo" draws its own
    seed, keys : of the generators, one per trial
    """
    num_configs = len(setting.table.points)
    if method.name == "rand_mo":
        return generator(seed, *keys).permutation(num_configs)[:num_trials]
    chosen = [int(index) for index in start[:num_trials]]
    state = setting.state(chosen)
    free = np.ones(num_configs, dtype=bool)
    free[chosen] = False
    while len(chosen) < num_trials:
        index = propose(setting, method, state, np.flatnonzero(free), generator(seed, *keys, len(chosen)))
        chosen.append(index)
        free[index] = False
        state = setting.judge(state, index)
    return np.array(chosen, dtype=np.intp)


def propose(
    setting: Setting, method: Method, state: RFMSState, free: Indices, rng: np.random.Generator
) -> int:
    """Return which of the configurations `free` maximises the method's acquisition."""
    points, losses = method.observations(state)
    if len(points) == 0:
        return int(rng.choice(free))
    function = method.acquisition(setting.space.features(points), losses, rng)
    return int(free[np.argmax(function(setting.features[free]))])


# -- cells -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """How long replays are: `num_initial` configurations, `num_trials` in all, on tables of `num_configs`."""

    num_initial: int = 20
    num_trials: int = 60
    num_configs: int = NUM_CONFIGS


def cells(directory: str | os.PathLike[str], key: Key, replications: Iterable[int], size: Size) -> list[Cell]:
    """Return the replays on one table, which must be in `directory`, a cell a replication."""
    arguments = {"directory": str(directory), "key": key, "size": size}
    return [Cell(cell_name(key, r), replay_table, {**arguments, "replication": r}) for r in replications]


def cell_name(key: Key, replication: int) -> str:
    """Return the name of a cell's file."""
    return f"{key.name}-replication={replication}"


def replay_table(directory: str, key: Key, size: Size, replication: int) -> Arrays:
    """Replay all methods with every lockbox; return `chosen (L, M, num_trials)`, indices."""
    table = load_table(directory, key, size.num_configs)
    space = problem_of(key).space
    boxes = lockboxes(table, key.openbox)
    start = generator(key.seed, key.name, "initial", replication).permutation(size.num_configs)
    start = start[: size.num_initial]
    chosen = np.zeros((len(boxes), len(METHODS), size.num_trials))
    with single_thread():
        for m, (name, method) in enumerate(METHODS.items()):
            for b, lockbox in enumerate(boxes):
                if b and method.name in ("lso", "rand_mo"):  # the same without the curators
                    chosen[b, m] = chosen[0, m]
                    continue
                keys = (key.name, name, replication, lockbox)
                setting = Setting(table, space, key.openbox, lockbox)
                chosen[b, m] = replay(setting, method, start, size.num_trials, key.seed, *keys)
    return {"chosen": chosen}


def load(directory: Path, key: Key, replication: int) -> npt.NDArray[np.intp]:
    """Return `chosen (L, M, num_trials)` of a replication that was computed."""
    return load_cell(directory, cell_name(key, replication))["chosen"].astype(np.intp)


def lockboxes(table: Table, openbox: int) -> list[int]:
    """Return the sites that may be the lockbox."""
    return [k for k in range(table.wrong.shape[1]) if k != openbox]
