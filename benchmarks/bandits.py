"""Own time per pull of the X-armed bandits, beside PyXAB's HCT. Run with `OPENBLAS_NUM_THREADS=1`.

The objective is evaluated once per cell and client, so what is left is the algorithms' own work and the
noise. PyXAB (MIT, `pip install fbo-flower[bench]`) is optional: without it its columns are left out. Its
binary partition splits a random axis; here it gets ours, and an `expand` that does not throw subtrees away:
both then make the same pulls, which is checked.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fbo_flower.numerics import elimination, hct, partition
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.experiments import pne_reference as reference
from fbo_flower.simulation.experiments.pne_client import Shifted
from fbo_flower.simulation.problems.xarmed import (
    Ackley,
    DoubleSine,
    Garland,
    Himmelblau,
    Rastrigin10D,
    XArmed,
)

PROBLEMS = (Garland, DoubleSine, Himmelblau, Ackley, Rastrigin10D)
BUDGET, PEER_BUDGET, SEED = 100_000, 3_000, 0


def microseconds(function: Callable[[], object], pulls: int) -> float:
    """CPU time of one call per pull."""
    begin = time.process_time()
    function()
    return 1e6 * (time.process_time() - begin) / pulls


def pyxab_hct(dim: int) -> Any:
    """Return PyXAB's HCT on our partition, expanding leaves only; None where PyXAB is not installed."""
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
                self.node_list.append(list(children))  # a list of its own: it grows
                self.depth += 1
            else:
                self.node_list[parent.get_depth() + 1] += children

    class LeafOnlyHCT(HCT):  # type: ignore[misc]  # PyXAB has no types
        def expand(self, parent: Any) -> None:
            if parent.get_children() is None:
                super().expand(parent)

    return LeafOnlyHCT(domain=[[0, 1]] * dim, partition=CyclicPartition)


def peer_time(problem: XArmed, noise: Array) -> tuple[float, float] | None:
    """Microseconds per pull of PyXAB's HCT, and its regret over `noise`'s pulls; None without PyXAB."""
    algorithm = pyxab_hct(problem.dimension)
    if algorithm is None:
        return None
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


def own_hct(problem: XArmed, noise: Array) -> tuple[float, float]:
    """The same of ours."""

    def value(depth: int, index: int) -> float:
        return float(problem.values(partition.centre(depth, [index], problem.dimension), 0)[0])

    tree = hct.Tree(hct.HCTOptions(problem.dimension))
    begin = time.process_time()
    cells = hct.pull_many(tree, len(noise), value, noise)
    elapsed = time.process_time() - begin
    values = np.array([value(h, i) for h, i in zip(tree.depth, tree.index, strict=True)])
    return 1e6 * elapsed / len(noise), float((problem.optimum(0) - values[cells]).sum())


def main() -> None:
    """Print the table."""
    if pyxab_hct(1) is None:
        print("PyXAB is not installed: its columns are left out; `pip install fbo-flower[bench]` adds them")
    print(f"microseconds of CPU time per pull, T={BUDGET} (10 clients), PyXAB T={PEER_BUDGET} (one client)")
    names = ("noise", "PF-PNE", "Fed-PNE", "LocalPNE", "racing", "HCT", "HCT, short", "PyXAB", "ratio")
    print(f"{'':<15}" + "".join(f"{name:>11}" for name in names))
    for problem_class in PROBLEMS:
        problem = problem_class(10, SEED)
        surface = Shifted(problem)
        pulls = BUDGET * problem.num_agents
        for agent in range(problem.num_agents):
            problem.optimum(agent)
        rng = np.random.default_rng(SEED)
        row = [microseconds(lambda rng=rng: rng.uniform(-0.1, 0.1, BUDGET), BUDGET)]  # type: ignore[misc]
        for transition in (6, elimination.NEVER, -1):
            row.append(microseconds(lambda s=surface, h=transition: reference.pne(s, BUDGET, SEED, h), pulls))  # type: ignore[misc]
        row.append(microseconds(lambda s=surface: reference.racing_pne(s, BUDGET, SEED), pulls))  # type: ignore[misc]
        row.append(microseconds(lambda s=surface: reference.local_hct(s, BUDGET, SEED), pulls))  # type: ignore[misc]
        noise = np.random.default_rng(SEED).uniform(-0.1, 0.1, PEER_BUDGET)
        own, regret = own_hct(problem, noise)
        cells = [f"{value:11.2f}" for value in [*row, own]]
        peer = peer_time(problem, noise)
        if peer is not None:
            cells += [f"{peer[0]:11.1f}", f"{peer[0] / own:11.1f}"]
            if abs(peer[1] - regret) > 1e-6:
                cells.append(f"  regrets differ: {regret:.6f}, {peer[1]:.6f}")
        print(f"{problem.name:<15}" + "".join(cells), flush=True)


if __name__ == "__main__":
    with single_thread():
        main()
