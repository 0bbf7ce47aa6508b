"""Build the agents of a bundled problem: agents that tune its objective, or sites with roles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.registry import SIMULATION
from fbo_flower.clients.agent import Prior, TuningAgent
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.evaluator import Parallel
from fbo_flower.clients.pruning import FEDERATED, Pruning
from fbo_flower.clients.site import SiteOptions
from fbo_flower.clients.site_agent import site_agent
from fbo_flower.clients.workers import pickled
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.own_objective import OwnObjective
from fbo_flower.simulation.problems import Problem, SitesProblem
from fbo_flower.simulation.unequal_agents import NOBODY, UnequalAgents

ONE_BY_ONE = Parallel()


def check_initial(algorithm: Algorithm[Any]) -> None:
    """Raise ConfigError if an algorithm cannot begin with known configurations, because it chooses cells."""
    if "num_initial" not in algorithm.inner.option_defaults():
        raise ConfigError(
            "initial: expected an algorithm with an initial design, such as fts or ts, got "
            f"{algorithm.name}, which evaluates only points of its own; name another algorithm"
        )


def check_roles(
    problem: Problem, algorithm: Algorithm[Any], site_options: Mapping[str, Any] | None = None
) -> None:
    """Raise ConfigError if the algorithm needs sites that the problem lacks, or that may not send models.

    Nothing is checked for an algorithm without roles; it ignores `site_options`.
    """
    if not algorithm.roles:
        return
    if not isinstance(problem, SitesProblem):
        raise ConfigError(
            f"problem: {algorithm.name} expects sites with roles ({', '.join(algorithm.roles)}), as in "
            f"heart-4sites; the agents of {problem.name} have none"
        )
    unknown = sorted(set(site_options or {}) - set(SiteOptions.defaults()))
    if unknown:
        listing = ", ".join(f"{name}={value!r}" for name, value in SiteOptions.defaults().items())
        raise ConfigError(f"site_options: expected some of {listing}; got {', '.join(unknown)}")
    options = SiteOptions.read({}, site_options or {})
    if problem.make_learner().carries_rows and not options.allow_models_with_data:
        raise ConfigError(
            f"{problem.name}: a fitted {problem.learner} carries rows of the openbox's data, and the model "
            "leaves the openbox; set the site option allow_models_with_data to true, or use another learner"
        )


def check_parallel(
    num_parallel: int, trial_timeout: float, problem: Problem, engine: str, simulated_time: bool
) -> Parallel:
    """Return how the agents of a simulation evaluate.

    Parameters
    ----------
    simulated_time : whether evaluations take a simulated time, one after the other

    Raises
    ------
    ConfigError
        If the engine or the simulated time rules out worker processes, which the settings need.
    """
    parallel = Parallel(num_parallel, trial_timeout)
    if not parallel.needs_workers:
        return parallel
    name, needed, given = "num_parallel", 1, str(num_parallel)
    if num_parallel == 1:
        name, needed, given = "trial_timeout", 0, f"{trial_timeout:g}"
    if engine != "inline":
        raise ConfigError(
            f"{name}: expected {needed} with the engine {engine}, which evaluates for as many agents at once "
            f"as there are cores, got {given}; use engine='inline'"
        )
    if simulated_time:
        raise ConfigError(
            f"{name}: expected {needed} with durations, which simulate one evaluation after the other, got "
            f"{given}; leave out one of them"
        )
    pickled(problem)
    return parallel


def problem_app(
    problem: Problem,
    algorithm: Algorithm[Any],
    seed: int,
    prior: Prior | None = None,
    site_options: Mapping[str, Any] | None = None,
    journals: str | os.PathLike[str] | None = None,
    parallel: Parallel = ONE_BY_ONE,
    unequal: UnequalAgents = NOBODY,
    pruning: Pruning | None = None,
) -> ClientApp:
    """Return the ClientApp whose nodes are a problem's agents, see `problem_agent`."""

    def agent(context: Context) -> TuningAgent:
        return problem_agent(
            problem, algorithm, context, seed, prior, site_options, journals, parallel, unequal, pruning
        )

    return agent_app(agent)


def problem_agent(
    problem: Problem,
    algorithm: Algorithm[Any],
    context: Context,
    seed: int,
    prior: Prior | None = None,
    site_options: Mapping[str, Any] | None = None,
    journals: str | os.PathLike[str] | None = None,
    parallel: Parallel = ONE_BY_ONE,
    unequal: UnequalAgents = NOBODY,
    pruning: Pruning | None = None,
) -> TuningAgent:
    """Return the agent of one node; it holds the data of the partition that `node_config` names.

    Parameters
    ----------
    algorithm : an algorithm with roles gets sites, any other gets agents that tune the problem's objective
    seed : seed of the agent's random numbers, so that a simulated run can be repeated
    prior : see `TuningAgent`; sites have none
    site_options : options of every site, see `SiteOptions`; `node_config` overrides them. By default a site
        answers any number of questions, and judges models in its own process, because the simulation itself
        has trained them
    journals : directory of the agents' journals; None: agents keep their state in Flower's context
    parallel : evaluations of an agent at the same time, in worker processes, and how long each may take;
        sites have none
    unequal : settings in which the agents differ
    pruning : see `TuningAgent`; with the rule "federated" agents also send medians of their curves
    """
    if not algorithm.roles:
        initial = None
        if isinstance(problem, OwnObjective):
            name = problem.agent_name(int(context.node_config["partition-id"]))
            context = replace(context, node_config={**context.node_config, "agent": name})
            initial = problem.initial_points()
        return TuningAgent(
            problem,
            problem.space,
            context,
            seed=seed,
            disclose="trials",
            prior=prior,
            initial=initial,
            journals=journals,
            chosen_by=SIMULATION,
            num_parallel=parallel.num_parallel,
            trial_timeout=parallel.trial_timeout,
            pruning=pruning,
            disclose_curves=pruning is not None and pruning.rule == FEDERATED,
            algorithms=[type(algorithm.inner)],  # workers know no class of a notebook
            **(unequal.settings(int(context.node_config["partition-id"])) if unequal.names else {}),
        )
    check_roles(problem, algorithm, {**(site_options or {}), "allow_models_with_data": True})
    assert isinstance(problem, SitesProblem)
    return site_agent(
        problem.site_objective(),
        problem.space,
        context,
        role=problem.role(int(context.node_config["partition-id"])),
        seed=seed,
        disclose="trials",
        defaults={"in_process": True, "query_budget": 0, **(site_options or {})},
        journals=journals,
        chosen_by=SIMULATION,
    )
