"""The agents of a bundled problem: they tune an objective, or are sites with roles, whatever is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.capabilities import roles
from fbo_flower.clients.agent import Prior, TuningAgent
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.site_app import site_agent
from fbo_flower.clients.site_options import SiteOptions
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems import Problem, SitesProblem


def check_roles(
    problem: Problem, algorithm: Algorithm[Any], site_options: Mapping[str, Any] | None = None
) -> None:
    """Raise ConfigError unless the problem has the sites that the algorithm needs, and they may do it.

    An algorithm without roles needs none, and its agents have no use for `site_options`.
    """
    if not roles(algorithm):
        return
    if not isinstance(problem, SitesProblem):
        raise ConfigError(
            f"problem: {algorithm.name} expects sites with roles ({', '.join(roles(algorithm))}), as in "
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
            "leaves it; set the site option allow_models_with_data to true, or choose another learner"
        )


def problem_app(
    problem: Problem,
    algorithm: Algorithm[Any],
    seed: int,
    prior: Prior | None = None,
    site_options: Mapping[str, Any] | None = None,
    journals: str | os.PathLike[str] | None = None,
) -> ClientApp:
    """Return the ClientApp whose nodes are a problem's agents, see `problem_agent`."""

    def agent(context: Context) -> TuningAgent:
        return problem_agent(problem, algorithm, context, seed, prior, site_options, journals)

    return agent_app(agent)


def problem_agent(
    problem: Problem,
    algorithm: Algorithm[Any],
    context: Context,
    seed: int,
    prior: Prior | None = None,
    site_options: Mapping[str, Any] | None = None,
    journals: str | os.PathLike[str] | None = None,
) -> TuningAgent:
    """Return the agent of one node, which holds the partition of the data that is named in `node_config`.

    Parameters
    ----------
    algorithm : one with roles gets sites, any other agents that tune the problem's objective
    seed : of the agent's draws: simulated runs repeat, and disclose their trials
    prior : see `TuningAgent`; sites have none
    site_options : of every site, see `SiteOptions`; what `node_config` says comes first. Models are judged in
        process unless this says otherwise: they are the simulation's own
    journals : directory of the agents' journals; None: they remember in Flower's state
    """
    if not roles(algorithm):
        return TuningAgent(
            problem, problem.space, context, seed=seed, disclose="trials", prior=prior, journals=journals
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
        defaults={"in_process": True, **(site_options or {})},
        journals=journals,
    )
