"""Attack secure sums: estimate a report from one sum, and an agent's average report from many sums.

From one sum, the best estimate of a report is the mean. DP-FTS makes many sums over random sets of agents,
and an agent's messages change slowly, so a linear system gives better estimates of the agents' averages.
`equivocation.py` attacks as a server that lies to agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower import algorithms
from fbo_flower.algorithms.fts.dp_fts import DPFTSState
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Array, Phase, floats
from fbo_flower.clients import client_app
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import DPFTS, FedPNE, TuningStrategy
from studies.attacks import equivocation
from studies.attacks.records import AttackResult, TappedGrid, compared, overhear

NUM_AGENTS, LEAST = 8, 3
BUDGET = 100
NUM_ROUNDS, SAMPLING_RATE, NUM_FEATURES = 60, 0.5, 20
SKIPPED = 10  # first sums, in which messages still change much
RIDGE = 0.1  # shrinkage towards the average message, relative to the mean of the diagonal

_SUMS: list[tuple[dict[str, float], Array]] = []  # agent -> its share, and the sum (M,)


@dataclass(frozen=True, kw_only=True)
class _Curious(algorithms.DPFTS):
    """A DP-FTS server that records every sum."""

    def tell(self, state: DPFTSState, phase: Phase, replies: Replies) -> DPFTSState:
        if state.collection is not None:
            shares = state.collection.shares
            for agents, sums in replies.groups:
                _SUMS.append(({agent: float(shares[agent][0]) for agent in agents}, sums["sums"][0]))
        return super().tell(state, phase, replies)


class _CuriousServer(TuningStrategy):
    algorithm_class = _Curious


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack secure sums of Fed-PNE and of DP-FTS, then as a lying server.

    Equal runs without masks provide the true reports.
    """
    yield from _one_sum(seed)
    yield from _many_sums(seed)
    yield from equivocation.attack(seed)


def _one_sum(seed: int) -> Iterator[AttackResult]:
    problem = make_problem("garland", NUM_AGENTS, seed, {})
    server = FedPNE(num_agents=NUM_AGENTS, seed=seed, budget=BUDGET)
    study, heard = overhear(problem, server, None, seed)
    spread = float(np.std(np.asarray(study.trials["value"], dtype=np.float64)))
    last: dict[tuple[int, int], dict[str, Array]] = {}
    for report in heard.sent("means"):
        means = floats(report.arrays["means"])
        last.setdefault((report.round, len(means)), {})[report.agent] = means
    errors = [
        own - np.mean(list(by_agent.values()), axis=0)
        for by_agent in last.values()
        if len(by_agent) == NUM_AGENTS
        for own in by_agent.values()
    ]
    text = f"FedPNE: means of cells, from the sum over {NUM_AGENTS} agents"
    yield compared(text, np.concatenate(errors), spread, "the objective's own", "the mean of all values")


def _many_sums(seed: int) -> Iterator[AttackResult]:
    """Fit one message per agent to all sums by ridge regression, and yield its error."""
    problem = make_problem("gp-samples", NUM_AGENTS, seed, {})
    options: dict[str, Any] = {"noise_multiplier": 1.0, "num_features": NUM_FEATURES}
    options |= {"num_agents": NUM_AGENTS, "seed": seed, "sampling_rate": SAMPLING_RATE}
    app = client_app(problem, problem.space, seed=seed)
    _SUMS.clear()
    _CuriousServer(**options, secure_sums=LEAST).start(TappedGrid(app, NUM_AGENTS), num_rounds=NUM_ROUNDS)
    twin = TappedGrid(client_app(problem, problem.space, seed=seed), NUM_AGENTS)
    DPFTS(**options).start(twin, num_rounds=NUM_ROUNDS)
    sums = np.array([total for _, total in _SUMS[SKIPPED:]])
    sent: dict[str, list[Array]] = {}
    for report in twin.heard.sent("weights"):
        if report.round > SKIPPED:
            sent.setdefault(report.agent, []).append(floats(report.arrays["weights"]))
    agents = sorted(sent)
    shares = np.array([[row.get(agent, 0.0) for agent in agents] for row, _ in _SUMS[SKIPPED:]])
    truth = np.array([np.mean(sent[agent], axis=0) for agent in agents])
    common = sums.sum(axis=0) / shares.sum()
    gram = shares.T @ shares
    gram += RIDGE * np.trace(gram) / len(agents) * np.eye(len(agents))
    found = common + np.linalg.solve(gram, shares.T @ (sums - shares.sum(axis=1)[:, None] * common))
    unit = float(np.std(truth))
    text = f"DPFTS: an agent's average message, from {len(sums)} sums with changing members"
    errors, guess = (found - truth) / unit, (common - truth) / unit
    yield compared(text, errors, guess, "s.d. of messages", "the average of all messages")
