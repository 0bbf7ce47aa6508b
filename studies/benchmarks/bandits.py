"""Measure the time per pull of the X-armed bandits, beside PyXAB. Run with `OPENBLAS_NUM_THREADS=1`.

The time of the objective is left out: its values at the centres of cells and, if few pulls are made at a time
(`racing`), their noise. What remains is the work of the algorithms, the noise of many pulls at once (it has a
column of its own) and the driver's record. `session` is HCT as it runs at an agent, which learns one value at
a time; the agent's evaluation of the objective is left out there too.
PyXAB (MIT, `pip install fbo-flower[bench]`) is optional; without it, its columns are left out. Its binary
partition splits a random axis. Here it gets our partition, and an `expand` that keeps subtrees, so that both
make the same pulls, which is checked. Its other algorithms are unchanged and get few pulls, because their
time per pull grows.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from fbo_flower.algorithms.bandits.hct import HCT
from fbo_flower.algorithms.records import AgentState, Phase, Task, Trials
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import hct, partition
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.problems import DoubleSine, Garland, Himmelblau, XArmed
from studies.papers.pne import reference
from studies.papers.pne.client import BanditRun, Client, Shifted
from studies.papers.pne.reference import pull_many
from studies.problems.synthetic import Ackley, Rastrigin10D

PROBLEMS = (Garland, DoubleSine, Himmelblau, Ackley, Rastrigin10D)
BUDGETS, NUM_CLIENTS, SEED = (20_000, 100_000), 10, 0
OTHER_PULLS = 4000
ALGORITHMS = ("pf-pne", "fed-pne", "local-pne", "racing", "hct")


class Watch:
    """The CPU time that methods of `Client` spend on the objective."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    @contextmanager
    def watching(self, *names: str) -> Iterator[None]:
        """Measure the time in these methods; calls between them count once."""
        plain = {name: getattr(Client, name) for name in names}
        for name, method in plain.items():
            setattr(Client, name, self._timed(method))
        try:
            yield
        finally:
            for name, method in plain.items():
                setattr(Client, name, method)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begin = time.process_time()
            self._depth += 1
            try:
                return method(*arguments)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.process_time() - begin

        return timed


def own_microseconds(run: Callable[[], BanditRun], pulls: int) -> float:
    """Return the CPU time of a run per pull, without the objective."""
    watch = Watch()
    with watch.watching("cell_values", "observe"):
        begin = time.process_time()
        run()
        return 1e6 * (time.process_time() - begin - watch.seconds) / pulls


def noise_microseconds(budget: int) -> float:
    """Return the CPU time of drawing one client's noise, per pull."""
    rng = np.random.default_rng(SEED)
    begin = time.process_time()
    for _ in range(NUM_CLIENTS):
        rng.uniform(-0.1, 0.1, budget)
    return 1e6 * (time.process_time() - begin) / (NUM_CLIENTS * budget)


def pyxab_hct(dim: int) -> Any:
    """Return PyXAB's HCT on our partition, expanding leaves only; None if PyXAB is not installed."""
    try:
        from PyXAB.algos.HCT import HCT  # type: ignore[import-not-found]  # optional, without types
        from PyXAB.partition.BinaryPartition import (  # type: ignore[import-not-found]
            BinaryPartition,
        )
    except ImportError:
        return None

    class CyclicPartition(BinaryPartition):  # type: ignore[misc]  # PyXAB has no types
        def make_children(self, parent: Any, newlayer: bool = False) -> None:
            axis = parent.get_depth() % dim
            children = []
            for j in (0, 1):
                domain = copy.deepcopy(parent.get_domain())
                low, high = domain[axis]
                domain[axis] = [(low + high) / 2, high] if j else [low, (low + high) / 2]
                depth, index = parent.get_depth() + 1, 2 * parent.get_index() - 1 + j
                children.append(self.node(depth=depth, index=index, parent=parent, domain=domain))
            parent.update_children(children)
            if newlayer:
                self.node_list.append(list(children))  # a copy, because it grows
                self.depth += 1
            else:
                self.node_list[parent.get_depth() + 1] += children

    class LeafOnlyHCT(HCT):  # type: ignore[misc]  # PyXAB has no types
        def expand(self, parent: Any) -> None:
            if parent.get_children() is None:
                super().expand(parent)

    return LeafOnlyHCT(domain=[[0, 1]] * dim, partition=CyclicPartition)


def peer_microseconds(algorithm: Any, problem: XArmed, noise: Array) -> tuple[float, float]:
    """Return the CPU time per pull of one of PyXAB's algorithms, and its regret over the pulls of `noise`."""
    known: dict[tuple[float, ...], float] = {}
    elapsed, regret = 0.0, 0.0
    for t, e in enumerate(noise.tolist(), start=1):
        begin = time.process_time()
        point = algorithm.pull(t)
        elapsed += time.process_time() - begin
        key = tuple(point)
        if key not in known:
            known[key] = float(problem.values(np.array([point]), 0)[0])
        regret += problem.optimum(0) - known[key]
        begin = time.process_time()
        algorithm.receive_reward(t, known[key] + e)
        elapsed += time.process_time() - begin
    return 1e6 * elapsed / len(noise), regret


def own_regret(problem: XArmed, noise: Array) -> float:
    """Return the regret of our HCT over the same pulls."""

    def value(depth: int, index: int) -> float:
        return float(problem.values(partition.centre(depth, [index], problem.dimension), 0)[0])

    tree = hct.Tree(hct.HCTOptions(problem.dimension))
    cells = pull_many(tree, len(noise), value, noise)
    values = np.array([value(h, i) for h, i in zip(tree.depth, tree.index, strict=True)])
    return float((problem.optimum(0) - values[cells]).sum())


def session_microseconds(problem: XArmed, budget: int) -> float:
    """Return the CPU time per pull of HCT's session, which is given one value at a time."""
    algorithm, space = HCT(budget=budget), problem.space
    agent_state = AgentState(space, Trials.empty(space.dimension))
    noise = np.random.default_rng(SEED).uniform(-0.1, 0.1, budget)
    known: dict[bytes, float] = {}
    elapsed, first, ones, zeros = 0.0, 0, np.ones(1, dtype=np.int64), np.zeros(1)

    def evaluate(query: Trials) -> Trials:
        nonlocal begin, elapsed, first
        key = query.points.tobytes()
        if key not in known:
            elapsed += time.process_time() - begin
            known[key] = float(problem.values(query.points, 0)[0])
            begin = time.process_time()
        trial = np.array([first])
        first += 1
        return Trials(query.points, known[key] + noise[trial], trial, None, ones, ones, zeros)

    begin = 0.0
    while agent_state.next_trial < budget:
        first = agent_state.next_trial
        task = Task(Phase.TRAIN, 1, first, min(algorithm.max_evaluations_per_round, budget - first))
        begin = time.process_time()
        agent_state = algorithm.session(task, agent_state, partial(generator, SEED), evaluate)
        elapsed += time.process_time() - begin
    return 1e6 * elapsed / budget


def print_others() -> None:
    """Print the time per pull of PyXAB's other algorithms for noisy objectives."""
    from PyXAB.algos.HOO import T_HOO  # type: ignore[import-not-found]  # optional, without types
    from PyXAB.algos.StoSOO import StoSOO  # type: ignore[import-not-found]
    from PyXAB.algos.VHCT import VHCT  # type: ignore[import-not-found]
    from PyXAB.partition.BinaryPartition import BinaryPartition

    problem = Himmelblau(1, SEED)
    where = {"domain": [[0, 1]] * problem.dimension, "partition": BinaryPartition}
    noise = np.random.default_rng(SEED).uniform(-0.1, 0.1, OTHER_PULLS)
    for name, algorithm in (
        ("VHCT", VHCT(**where)),
        ("T-HOO", T_HOO(rounds=OTHER_PULLS, **where)),
        ("StoSOO", StoSOO(n=OTHER_PULLS, **where)),
    ):
        elapsed, _ = peer_microseconds(algorithm, problem, noise)
        print(f"PyXAB {name}, {problem.name}, T={OTHER_PULLS}: {elapsed:.0f}")


def main() -> None:
    """Print the tables."""
    has_peer = pyxab_hct(1) is not None
    if not has_peer:
        print("PyXAB is not installed: its columns are left out; `pip install fbo-flower[bench]` adds them")
    print(f"own CPU time in microseconds per pull; {NUM_CLIENTS} clients, PyXAB one")
    head = ("T", "noise", *ALGORITHMS, "session", *(("PyXAB HCT", "ratio") if has_peer else ()))
    print(f"{'':<15}" + "".join(f"{name:>11}" for name in head))
    runs = reference.algorithms()
    for budget in BUDGETS:
        for problem_class in PROBLEMS:
            problem = problem_class(NUM_CLIENTS, SEED)
            surface = Shifted(problem)
            for agent in range(NUM_CLIENTS):
                problem.optimum(agent)  # computes it once, outside the measurement
            own = {
                name: own_microseconds(partial(runs[name], surface, budget, SEED), NUM_CLIENTS * budget)
                for name in ALGORITHMS
            }
            cells = [f"{budget:11d}", *(f"{t:11.3f}" for t in (noise_microseconds(budget), *own.values()))]
            cells.append(f"{session_microseconds(problem, budget):11.3f}")
            if has_peer:
                noise = np.random.default_rng(SEED).uniform(-0.1, 0.1, budget)
                peer, regret = peer_microseconds(pyxab_hct(problem.dimension), problem, noise)
                cells += [f"{peer:11.1f}", f"{peer / own['hct']:11.0f}"]
                if abs(regret - own_regret(problem, noise)) > 1e-6:
                    cells.append(f"  regrets differ: {own_regret(problem, noise):.6f}, {regret:.6f}")
            print(f"{problem.name:<15}" + "".join(cells), flush=True)
    if has_peer:
        print_others()


if __name__ == "__main__":
    with single_thread():
        main()
