"""Build the agents of a problem: agents that tune its objective, or sites with roles.

`OwnObjective` is your own Python function as a problem, with one agent per item of your data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

from flwr.app import Context
from flwr.clientapp import ClientApp

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.registry import SIMULATION, check_aims
from fbo_flower.clients.agent import Prior, TuningAgent
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.evaluator import Parallel, points_of
from fbo_flower.clients.guards import check_subset
from fbo_flower.clients.model_site import SiteOptions
from fbo_flower.clients.objective import ObjectiveContext, check_objective, takes_context
from fbo_flower.clients.pruning import FEDERATED, Pruning
from fbo_flower.clients.site_agent import site_agent
from fbo_flower.clients.workers import pickled
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.simulation.problems import Config, Problem, SitesProblem
from fbo_flower.simulation.settings import Agents
from fbo_flower.space.checks import check_integer
from fbo_flower.space.held import held_space
from fbo_flower.space.space import SearchSpace

OwnFunction = Callable[..., float | Mapping[str, float]]  # `f(config, data)` or `f(config, data, context)`
AgentData = Mapping[Any, Any] | Sequence[Any]


@dataclass(frozen=True, eq=False)
class OwnObjective(Problem):
    """A function `f(config, data)` that every agent evaluates on its own data; `own_objective` builds it.

    Parameters
    ----------
    objective : `f(config, data)`, or `f(config, data, context)` with the `ObjectiveContext` of the trial
    search_space : of its configurations
    names : the agents' ids, by partition
    data : the agents' data, by partition
    aims : what it returns, and whether larger or smaller is better
    initial : configurations that every agent evaluates first
    """

    objective: OwnFunction
    search_space: SearchSpace
    names: tuple[str, ...]
    data: tuple[Any, ...]
    aims: Aims = NUMBER
    initial: tuple[Config, ...] = ()

    name: ClassVar[str] = "own objective"
    metric: ClassVar[str] = "value"
    default_agents: ClassVar[int] = 1
    # a function with its data equals itself only; as a `Problem` it would equal all of its size and seed
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0))

    @classmethod
    def options(cls) -> dict[str, object]:
        """Return no options, because functions and data cannot be written into `study.json`."""
        return {}

    @property
    def space(self) -> SearchSpace:
        return self.search_space

    def __call__(self, config: Config, context: ObjectiveContext) -> float:
        further = {"context": context} if self._takes_context else {}
        value: Any = self.objective(config, self.data[context.partition], **further)
        return value  # type: ignore[no-any-return]  # the agent checks it, and changes the signs

    @cached_property
    def _takes_context(self) -> bool:
        return takes_context(self.objective)  # takes ten times as long as a call of a small function

    def true_value(self, config: Config, partition: int) -> float | None:
        """Return None: whether the function has noise is unknown."""
        return None

    def title(self) -> str:
        return str(getattr(self.objective, "__name__", self.name)).strip("<>")

    def agent_name(self, partition: int) -> str:
        return self.names[partition]


def own_objective(
    objective: object, space: object, agents: object, seed: int, aims: Aims, initial: object
) -> OwnObjective:
    """Return the problem of a user's function; see `simulate` for the arguments.

    Raises
    ------
    ConfigError
        If an argument has the wrong type, or a configuration of `initial` is not in the search space.
    """
    check_objective(objective, space, "data")
    names, data = _named(agents)
    function: Any = objective  # `check_objective` has checked both
    search_space: Any = space
    points_of(initial, search_space)
    known: Any = initial
    return OwnObjective(len(names), seed, function, search_space, names, data, aims, tuple(known))


def _named(agents: object) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    if isinstance(agents, Mapping):
        names, data = tuple(str(name) for name in agents), tuple(agents.values())
    elif isinstance(agents, Sequence) and not isinstance(agents, str | bytes):
        names, data = tuple(map(str, range(len(agents)))), tuple(agents)
    else:
        raise ConfigError(
            "agents: expected the agents' data, a dict from names to data or a list with one item per agent, "
            f"got {kind_of(agents)}; for agents without data pass their number"
        )
    if not names:
        raise ConfigError("agents: expected the data of at least one agent, got none")
    for name in names:
        if not 0 < len(name) <= 100 or not name.isprintable() or "," in name or names.count(name) > 1:
            raise ConfigError(
                "agents: expected different names of 1 to 100 printable characters without a comma, got "
                f"{name[:40]!r}{' twice' if names.count(name) > 1 else ''}"
            )
    return names, data


ALIKE = Agents()


@lru_cache(maxsize=8)
def names_of(problem: Problem) -> tuple[str, ...]:
    """Return the ids of a problem's agents, by partition."""
    return tuple(problem.agent_name(partition) for partition in range(problem.num_agents))


def check_initial(algorithm: Algorithm[Any]) -> None:
    """Raise ConfigError if an algorithm cannot begin with known configurations, because it chooses cells."""
    if "num_initial" not in algorithm.option_defaults():
        raise ConfigError(
            "initial: expected an algorithm with an initial design, such as fts or ts, got "
            f"{algorithm.name}, which evaluates only points of its own; name another algorithm"
        )


def check_roles(
    problem: Problem, algorithm: Algorithm[Any], site_options: Mapping[str, Any] | None = None
) -> None:
    """Raise ConfigError if the algorithm needs sites that the problem lacks, or that may not send models."""
    if not algorithm.roles:
        if site_options:
            raise ConfigError(
                f"site_options: expected none with {algorithm.name}, whose agents have no roles, got "
                f"{', '.join(site_options)}"
            )
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
        algorithms=[type(algorithm)],  # workers know no class of a notebook
        aims=problem.aims.with_limits(own.pop("limits", None)).keeping(own.pop("private", None)),
        **own,
    )
