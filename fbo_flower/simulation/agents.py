"""Build the agents of a bundled problem: agents that tune its objective, or sites with roles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.registry import SIMULATION, check_aims
from fbo_flower.clients.agent import Prior, TuningAgent
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.evaluator import Parallel, points_of
from fbo_flower.clients.guards import check_subset
from fbo_flower.clients.model_site import SiteOptions
from fbo_flower.clients.pruning import FEDERATED, Pruning
from fbo_flower.clients.site_agent import site_agent
from fbo_flower.clients.workers import pickled
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.own_objective import OwnObjective
from fbo_flower.simulation.problems import Problem, SitesProblem
from fbo_flower.simulation.settings import Agents
from fbo_flower.space.held import held_space

ALIKE = Agents()


@lru_cache(maxsize=8)
def names_of(problem: Problem) -> tuple[str, ...]:
    """Return the ids of a problem's agents, by partition."""
    return tuple(problem.agent_name(partition) for partition in range(problem.num_agents))


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


def check_agents(
    problem: Problem, algorithm: Algorithm[Any], agents: Agents, engine: str, simulated_time: bool
) -> None:
    """Raise ConfigError if the agents of a simulation cannot be as the settings say.

    Parameters
    ----------
    simulated_time : whether evaluations take a simulated time, one after the other
    """
    if Parallel(agents.num_parallel, agents.trial_timeout).needs_workers:
        name, needed, given = "num_parallel", 1, str(agents.num_parallel)
        if agents.num_parallel == 1:
            name, needed, given = "trial_timeout", 0, f"{agents.trial_timeout:g}"
        if engine != "inline":
            raise ConfigError(
                f"{name}: expected {needed} with the engine {engine}, which evaluates for as many agents at "
                f"once as there are cores, got {given}; use engine='inline'"
            )
        if simulated_time:
            raise ConfigError(
                f"{name}: expected {needed} with durations, which simulate one evaluation after the other, "
                f"got {given}; leave out one of them"
            )
        pickled(problem)
    check_roles(problem, algorithm, agents.site_options)
    check_aims(algorithm, problem.aims)
    if agents.are_alike:
        return
    if algorithm.roles:
        raise ConfigError(
            "max_trials, participation, fixed, limits, private: expected none with "
            f"{algorithm.name}, whose sites have roles"
        )
    for partition in range(problem.num_agents):
        own = agents.of_agent(names_of(problem), partition)
        problem.aims.with_limits(own.get("limits")).keeping(own.get("private"))
        check_subset(algorithm, held_space(problem.space, own.get("fixed")))


def problem_app(
    problem: Problem,
    algorithm: Algorithm[Any],
    seed: int,
    prior: Prior | None = None,
    agents: Agents = ALIKE,
    journals: str | os.PathLike[str] | None = None,
) -> ClientApp:
    """Return the ClientApp whose nodes are a problem's agents, see `problem_agent`."""
    return agent_app(partial(problem_agent, problem, algorithm, seed, prior, agents, journals))


def problem_agent(
    problem: Problem,
    algorithm: Algorithm[Any],
    seed: int,
    prior: Prior | None,
    agents: Agents,
    journals: str | os.PathLike[str] | None,
    context: Context,
) -> TuningAgent:
    """Return the agent of one node; it holds the data of the partition that `node_config` names.

    Parameters
    ----------
    algorithm : an algorithm with roles gets sites, any other gets agents that tune the problem's objective
    seed : seed of the agent's random numbers, so that a simulated run can be repeated
    prior : see `TuningAgent`; sites have none
    agents : settings of the agents; `node_config` overrides those of sites. By default a site answers any
        number of questions, and judges models in its own process, because the simulation itself has trained
        them
    journals : directory of the agents' journals; None: agents keep their state in Flower's context
    """
    partition = int(context.node_config["partition-id"])
    if algorithm.roles:
        check_roles(problem, algorithm, {**(agents.site_options or {}), "allow_models_with_data": True})
        assert isinstance(problem, SitesProblem)
        return site_agent(
            problem.site_objective(),
            problem.space,
            context,
            role=problem.role(partition),
            seed=seed,
            disclose="trials",
            defaults={"in_process": True, "query_budget": 0, **(agents.site_options or {})},
            journals=journals,
            chosen_by=SIMULATION,
        )
    initial = None
    if isinstance(problem, OwnObjective):
        name = problem.agent_name(partition)
        context = replace(context, node_config={**context.node_config, "agent": name})
        initial = points_of(problem.initial, problem.space)
    pruning = Pruning.read({}, agents.pruning)
    own = {} if agents.are_alike else agents.of_agent(names_of(problem), partition)
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
        num_parallel=agents.num_parallel,
        trial_timeout=agents.trial_timeout,
        pruning=pruning,
        disclose_curves=pruning.rule == FEDERATED,
        algorithms=[type(algorithm.inner)],  # workers know no class of a notebook
        aims=problem.aims.with_limits(own.pop("limits", None)).keeping(own.pop("private", None)),
        **own,
    )
