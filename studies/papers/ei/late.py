"""Late joiners: some agents have 20 observations each when others join. How good are their first points?

The algorithm's own methods run here without Flower, because a grid of simulated agents has all its agents
from the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Trials
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.problems import Problem
from studies.experiment import score


def joined_late(
    problem: Problem,
    algorithm: str,
    options: Mapping[str, Any],
    num_joiners: int,
    held: int,
    budget: int,
    seed: int,
) -> Array:
    """Return the best scores so far of the agents that join late, `(num_joiners, budget)`.

    Parameters
    ----------
    num_joiners : the last agents join together, once the others have `held` observations each
    held : 0: all agents begin together
    """
    made = make_algorithm(algorithm, options)
    names = [str(agent) for agent in range(problem.num_agents)]
    first, late = names[:-num_joiners], names[-num_joiners:]
    agents = {name: AgentState(problem.space, Trials.empty(problem.space.dimension)) for name in names}
    state: Any = made.init(Federation(problem.space, tuple(names)), generator(seed, "server", "init"))
    number = 0
    with single_thread():
        while min(agents[name].next_trial for name in late) < budget:
            number += 1
            waiting = min(agents[name].next_trial for name in first) < held
            present = first if waiting else names
            state, agents = _round(made, state, agents, present, number, problem, seed)
    return np.array([_scores(problem, agents[name], int(name), budget) for name in late])


def _round(
    algorithm: Algorithm[Any],
    state: Any,
    agents: Mapping[str, AgentState],
    present: Sequence[str],
    number: int,
    problem: Problem,
    seed: int,
) -> tuple[Any, dict[str, AgentState]]:
    """Play one round and return the new states of server and agents."""
    rng = generator(seed, "server", "ask", number)
    state, tasks = algorithm.ask(state, Phase.TRAIN, number, present, rng)
    after = dict(agents)
    reports: dict[str, Report] = {}
    for name, task in tasks.items():
        evaluate = partial(_evaluate, problem, int(name), seed)
        draws = partial(generator, seed, "agent", name)
        result = run_task(algorithm, task, agents[name], evaluate, draws)
        after[name], reports[name] = result.agent_state, result.report
    return algorithm.tell(state, Phase.TRAIN, Replies(reports, algorithm.report_content)), after


def _evaluate(problem: Problem, agent: int, seed: int, query: Trials, trial: int) -> Trials:
    points = problem.space.snap(query.points)
    values = [
        problem(
            problem.space.decode(point),
            ObjectiveContext(str(agent), agent, trial + i, 1, generator(seed, "objective", agent, trial + i)),
        )
        for i, point in enumerate(points)
    ]
    return Trials(points, np.array(values), np.arange(trial, trial + len(points)))


def _scores(problem: Problem, agent_state: AgentState, agent: int, budget: int) -> Array:
    history = agent_state.history
    known = [score(problem, problem.space.decode(point), agent) for point in history.points[:budget]]
    observed = [v if k is None else k for k, v in zip(known, history.values[:budget].tolist(), strict=True)]
    return np.asarray(np.maximum.accumulate(observed), dtype=np.float64)
