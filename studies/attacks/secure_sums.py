"""Attack secure sums: estimate a report from one sum, and an agent's average report from many sums.

From one sum, the best estimate of a report is the mean. DP-FTS makes many sums over random sets of agents,
and an agent's messages change slowly, so a linear system gives better estimates of the agents' averages.
`equivocation.py` attacks as a server that lies to agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fbo_flower.algorithms import DPFTS, FedPNE
from fbo_flower.algorithms.records import Array, floats
from studies.attacks import equivocation
from studies.attacks.harness import AttackResult, compared, overhear

NUM_AGENTS, LEAST = 8, 3
NUM_ROUNDS, SAMPLING_RATE, NUM_FEATURES = 60, 0.5, 20
SKIPPED = 10  # first sums, in which messages still change much
RIDGE = 0.1  # shrinkage towards the average message, relative to the mean of the diagonal


def attack(seed: int) -> Iterator[AttackResult]:
    """Attack secure sums of Fed-PNE and of DP-FTS, then as a lying server.

    Equal runs without masks provide the true reports.
    """
    yield _one_sum(seed)
    yield _many_sums(seed)
    yield from equivocation.attack(seed)


def _one_sum(seed: int) -> AttackResult:
    heard = overhear("garland", FedPNE, None, seed, num_agents=NUM_AGENTS, budget=100)
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
    text, how = f"FedPNE: means of cells, from the sum over {NUM_AGENTS} agents", "the mean of all values"
    return compared(text, np.concatenate(errors), heard.spread, "the objective's own", how)


def _many_sums(seed: int) -> AttackResult:
    """Fit one message per agent to all sums by ridge regression, and return its error."""
    options: dict[str, Any] = {"noise_multiplier": 1.0, "num_features": NUM_FEATURES}
    options |= {"num_agents": NUM_AGENTS, "sampling_rate": SAMPLING_RATE}
    summed = overhear("gp-samples", DPFTS, NUM_ROUNDS, seed, secure_sums=LEAST, **options)
    known = [
        ({agent: float(one.before.collection.shares[agent][0]) for agent in agents}, sums["sums"][0])
        for one in summed.kept
        if one.before.collection is not None
        for agents, sums in one.replies.groups
    ][SKIPPED:]  # agent -> its share, and the sum (M,)
    sent: dict[str, list[Array]] = {}
    for report in overhear("gp-samples", DPFTS, NUM_ROUNDS, seed, **options).sent("weights"):
        if report.round > SKIPPED:
            sent.setdefault(report.agent, []).append(floats(report.arrays["weights"]))
    agents, sums = sorted(sent), np.array([total for _, total in known])
    shares = np.array([[row.get(agent, 0.0) for agent in agents] for row, _ in known])
    truth = np.array([np.mean(sent[agent], axis=0) for agent in agents])
    common = sums.sum(axis=0) / shares.sum()
    gram = shares.T @ shares
    gram += RIDGE * np.trace(gram) / len(agents) * np.eye(len(agents))
    found = common + np.linalg.solve(gram, shares.T @ (sums - shares.sum(axis=1)[:, None] * common))
    unit = float(np.std(truth))
    text = f"DPFTS: an agent's average message, from {len(sums)} sums with changing members"
    errors, guess = (found - truth) / unit, (common - truth) / unit
    return compared(text, errors, guess, "s.d. of messages", "the average of all messages")
