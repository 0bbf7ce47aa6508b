"""HCT, the high-confidence tree, run by every agent alone: the local baseline of X-armed bandits [Azar2014].

The mathematics is in `numerics.bandits.hct`. An agent chooses the next cell after every evaluation.

[Azar2014] Azar, Lazaric, Brunskill. Online stochastic optimization under correlated bandit feedback.
    ICML 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.bandits.base import BanditState, XArmedBandit, once_per_state
from fbo_flower.algorithms.options import bounded, choice
from fbo_flower.algorithms.records import AgentState, Array, Federation, Task, Trials
from fbo_flower.algorithms.requests import Draws, Evaluation
from fbo_flower.numerics.bandits import elimination, partition
from fbo_flower.numerics.bandits.hct import HCTOptions, Tree, power_above
from fbo_flower.space.space import SearchSpace


@dataclass(frozen=True, kw_only=True)
class HCT(XArmedBandit[BanditState]):
    """Optimistic tree search by every agent alone; `XArmedBandit` describes the other options.

    Parameters
    ----------
    delta : probability that a confidence interval fails
    scale : "unit": `nu` and `c` are in the objective's unit; the paper assumes values in [0, 1]. "observed":
        they are multiples of the range of the values that the agent has observed, so that units do not matter
    """

    name: ClassVar[str] = "hct"

    delta: float = bounded(0.01, 1e-300, 1 - 1e-9)
    scale: str = choice("unit", ("unit", "observed"))
    max_evaluations_per_round: int = 1_000

    def tree_options(self, space: SearchSpace) -> HCTOptions:
        """Return the constants of the tree search in a search space."""
        dim = space.dimension
        observed = self.scale == "observed"
        return HCTOptions(dim, self.branching(dim), self.nu, self.rho, self.c, self.delta, observed)

    def check(self, space: SearchSpace) -> None:
        self.tree_options(space)

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> BanditState:
        return BanditState(federation.agents)

    # -- the agent's half ----------------------------------------------------------------------

    def session(self, task: Task, agent_state: AgentState, draws: Draws, evaluate: Evaluation) -> AgentState:
        """Pull one cell after another, as many as the task asks for."""
        tree, next_trial = self._tree(agent_state), agent_state.next_trial
        queries: dict[int, Trials] = {}  # most pulls repeat a cell
        while next_trial < task.end:
            cell = tree.select()
            if cell not in queries:
                queries[cell] = Trials(self._centre(tree, cell), pulls=np.ones(1, dtype=np.int64))
            outcome = evaluate(queries[cell])
            next_trial, value = outcome.next_trial, float(outcome.values[0])
            if math.isfinite(value):
                tree.learn(cell, value)
            else:
                tree.learn_failed(cell)
        arrays = {f"tree.{name}": np.asarray(array) for name, array in tree.arrays().items()}
        return agent_state.write(**arrays).passed_to(next_trial)

    def _centre(self, tree: Tree, cell: int) -> Array:
        """Return the centre of a cell, `(1, D)`."""
        index, options = np.array([tree.index[cell]]), tree.options
        return partition.centre(tree.depth[cell], index, options.dim, options.arity)

    def _tree(self, agent_state: AgentState) -> Tree:
        options = self.tree_options(agent_state.space)
        kept = {n.removeprefix("tree."): a for n, a in agent_state.arrays.items() if n.startswith("tree.")}
        return Tree.from_arrays(options, cast(Any, kept)) if kept else Tree(options)

    @once_per_state
    def best_pulled(self, agent_state: AgentState) -> tuple[Array, float] | None:
        """Return centre `(D,)` and mean of the cell with the best lower bound; None before a success."""
        tree = self._tree(agent_state)
        count = np.array(tree.count)
        pulled = np.flatnonzero(tree.succeeded())
        if len(pulled) == 0:
            return None
        log_term = tree.options.log_term(power_above(max(1, tree.t - 1)))
        radius = tree.unit * self.c * np.sqrt(log_term / count[pulled])
        means = tree.means()
        best = int(pulled[elimination.recommend(means[pulled], radius)])
        return self._centre(tree, best)[0], float(means[best])
