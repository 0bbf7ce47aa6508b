"""The groups of settings that `simulate` takes: agents, rounds, what is known before, what is kept, Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fbo_flower.algorithms.aims import Limit
from fbo_flower.algorithms.options import Settings, bounded, integer
from fbo_flower.algorithms.registry import option_owners
from fbo_flower.clients.evaluator import MAX_PARALLEL
from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.simulation.durations import Clock
from fbo_flower.space.checks import as_real, check_number
from fbo_flower.space.copies import copies
from fbo_flower.study.directory import Directory, Keep

if TYPE_CHECKING:
    from fbo_flower.clients.agent import Prior
    from fbo_flower.clients.pruning import Pruning
    from fbo_flower.space.space import Config
    from fbo_flower.study.study import Study


PerAgent = float | Mapping[str, float] | Sequence[float]  # one number for all, by agent, or in their order
FixedPerAgent = Mapping[str, Mapping[str, object]] | Sequence[Mapping[str, object] | None]
LimitsPerAgent = Mapping[str, Mapping[str, Limit] | str] | Sequence[Mapping[str, Limit] | str | None]
NamesPerAgent = Mapping[str, Sequence[str]] | Sequence[Sequence[str] | None]
_NUMBERS = "a number, a dict from agents to numbers, or a list"
_OWN = {  # what agents may differ in
    "max_trials": _NUMBERS,
    "participation": _NUMBERS,
    "fixed": "a dict from agents to their fixed parameters, or a list of such parameters",
    "limits": "a dict from agents to their limits, or a list of such limits",
    "private": "a dict from agents to lists of outputs, or a list of such lists",
}


@copies("max_trials", "participation", "fixed", "limits", "private", "site_options")
@dataclass(frozen=True)
class Agents(Settings):
    """The agents of a simulation: their data, and what their operators allow.

    Parameters
    ----------
    data : the agents' data: a dict from each agent's name to its data, a list with one item per agent, or the
        number of agents, whose data are then the numbers from 0. None: the number that a bundled problem has
    max_trials : the agents' budgets of evaluations: one for all, a dict from agents to budgets (others have
        no limit), or a list with one per agent. The study ends when all are used up
    participation : share of the rounds in which agents get tasks, given like `max_trials`
    fixed : parameters that agents do not tune: a dict from agents to theirs, name -> value, or a list with
        those of each agent
    limits : bounds of agents that differ from the study's: a dict from agents to theirs, such as
        `{"north": {"latency_ms": 15.0}}`, or a list with those of each agent
    private : outputs of which agents share no values, given like `limits`, such as
        `{"north": ["latency_ms"]}`. The study has them, as it has every trial of a simulation
    pruning : when `context.should_stop()` is true in an objective, see `clients.Pruning`; with the rule
        "federated" all agents share medians of their learning curves. A text: `Pruning` with this rule; None:
        `Pruning()`
    num_parallel : evaluations of an agent at the same time, each in a process of its own; with the engine
        "inline" and without a clock
    trial_timeout : seconds that one evaluation may take; then the trial fails. 0: any number; with the
        engine "inline" and without a clock
    site_options : settings of every site, for an algorithm with roles; on devices the operator sets them in
        `node_config`, see `clients.site_options`
    """

    data: Mapping[Any, Any] | Sequence[Any] | int | None = None
    max_trials: PerAgent | None = None
    participation: PerAgent | None = None
    fixed: FixedPerAgent | None = None
    limits: LimitsPerAgent | None = None
    private: NamesPerAgent | None = None
    pruning: Pruning | str | None = None
    num_parallel: int = integer(1, 1, MAX_PARALLEL)
    trial_timeout: float = bounded(0.0, 0.0)
    site_options: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        options = self.site_options
        if options is not None and not (
            isinstance(options, Mapping) and all(isinstance(key, str) for key in options)
        ):
            raise ConfigError(
                'site_options: expected a dict with texts as keys such as {"query_budget": 100}, got '
                f"{kind_of(options)}"
            )

    @property
    def are_alike(self) -> bool:
        """Whether no agent has a budget, a share of the rounds, fixed parameters or limits of its own."""
        return all(vars(self)[name] is None for name in _OWN)

    def of_agent(self, names: Sequence[str], partition: int) -> dict[str, Any]:
        """Return the arguments of `TuningAgent` in which agents may differ, for one agent.

        Parameters
        ----------
        names : the agents, by partition
        """
        found = {}
        for name, expected in _OWN.items():
            value = vars(self)[name]
            if isinstance(value, Mapping):
                unknown = [str(agent) for agent in value if agent not in names]
                if unknown:
                    raise ConfigError(
                        f"{name}: expected agents of the simulation ({', '.join(names[:5])}"
                        f"{', ...' if len(names) > 5 else ''}), got {', '.join(unknown[:5])}"
                    )
                value = value.get(names[partition])
            elif isinstance(value, Sequence) and not isinstance(value, str):
                if len(value) != len(names):
                    raise ConfigError(
                        f"{name}: expected one item for each of {len(names)} agents, got {len(value)}"
                    )
                value = value[partition]
            elif value is not None and (name in ("fixed", "limits", "private") or as_real(value) is None):
                raise ConfigError(f"{name}: expected {expected}, got {kind_of(value)}")
            if value is not None:
                found[name] = value
        return found


@dataclass(frozen=True)
class Sync(Settings):
    """Synchronous rounds: a round ends when its agents have answered.

    Parameters
    ----------
    fraction : share of the agents that get a task in a round, 0 to 1
    quorum : share of the answers after which a round closes, 0 to 1; in simulation on a `clock`
    clock : a simulated clock; None: real time
    """

    fraction: float = bounded(1.0, 1e-9, 1.0)
    quorum: float = bounded(1.0, 1e-9, 1.0)
    clock: Clock | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_kind("clock", self.clock, Clock)


@dataclass(frozen=True)
class Async(Settings):
    """Rounds without a barrier: each agent gets its next task as soon as it has answered.

    A round is as many answers as there are agents.

    Parameters
    ----------
    max_staleness : how many rounds may end between a task and its answer; what an older answer holds for
        other agents is dropped. None: any number
    clock : a simulated clock; None: real time
    """

    max_staleness: int | None = integer(None, 0)
    clock: Clock | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_kind("clock", self.clock, Clock)


@copies("initial", "observations")
@dataclass(frozen=True)
class Start(Settings):
    """What the agents and the server know before the study begins.

    Parameters
    ----------
    initial : known good configurations of your own objective. Every agent evaluates them as its first trials,
        before the initial design, whose size stays the same
    prior_rounds : number of rounds in which each agent tunes alone before the study. If the algorithm's
        option `targets` is a list of agents, those agents start without observations
    prior_algorithm : name of the algorithm that tunes in these rounds
    observations : the agents' observations, in place of `prior_rounds`: an earlier study, whose trials they
        are, or agent -> `(points (n, D), values (n,))`
    warm_start : directory of an earlier study with the same algorithm. This study starts from the messages
        that its server saved, which contain no observations

    Raises
    ------
    ConfigError
        If `prior_rounds` is negative, if both `prior_rounds` and `observations` are given, or if the
        algorithm is unknown.

    Examples
    --------
    >>> Start(prior_rounds=-1)
    Traceback (most recent call last):
        ...
    fbo_flower.errors.ConfigError: prior_rounds: expected an integer >= 0, got -1
    """

    initial: Sequence[Config] = ()
    prior_rounds: int = integer(0, 0)
    prior_algorithm: str = "ts"
    observations: Study | Prior | None = None
    warm_start: Directory | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior_rounds and self.observations is not None:
            raise ConfigError("start: expected either prior_rounds or observations, got both")
        if self.prior_rounds or self.prior_algorithm != "ts":
            from fbo_flower.algorithms import make_algorithm

            make_algorithm(self.prior_algorithm, {})

    @property
    def gives_observations(self) -> bool:
        """Whether agents begin with observations of their own."""
        return self.prior_rounds > 0 or self.observations is not None


def _check_kind(name: str, value: object, *kinds: type) -> None:
    """Raise ConfigError unless a value is None or of one of the kinds."""
    if value is not None and not isinstance(value, kinds):
        names = " or ".join(f"{kind.__name__}(...)" for kind in kinds)
        raise ConfigError(f"{name}: expected {names}, got {kind_of(value)}")


def check_groups(rounds: object, start: object, keep: object) -> None:
    """Raise ConfigError if an argument of `simulate` is not an object of its group."""
    if rounds is None:
        raise ConfigError("rounds: expected Sync(...) or Async(...), got None")
    if isinstance(rounds, int):
        raise ConfigError(
            f"rounds: expected Sync(...) or Async(...), got {rounds}; pass the number of rounds as num_rounds"
        )
    _check_kind("rounds", rounds, Sync, Async)
    _check_kind("start", start, Start)
    _check_kind("keep", keep, Keep)


@dataclass(frozen=True)
class RayEngine(Settings):
    """The engine "ray" with settings: `simulate(..., engine=RayEngine(num_workers=8))`.

    Parameters
    ----------
    num_workers : worker processes; None: as many as the cluster has room for
    address : of a Ray cluster to join, "auto" for the cluster that this machine belongs to. None: that of
        RAY_ADDRESS, else start a cluster on this machine, or use the one that this process has started; then
        another address is refused
    timeout : seconds that one message may take; then its worker is ended and replaced. None: no limit
    client_resources : what one worker takes of the cluster, under Flower's names: `num_cpus` (default 1),
        which is also how many threads its libraries may use, and `num_gpus` (default 0)

    Raises
    ------
    ConfigError
        If `num_workers`, `timeout` or `num_cpus` is not positive, `num_gpus` is negative, or
        `client_resources` has another key.

    Examples
    --------
    >>> RayEngine(num_workers=0)
    Traceback (most recent call last):
        ...
    fbo_flower.errors.ConfigError: num_workers: expected an integer >= 1, got 0
    """

    num_workers: int | None = integer(None, 1)
    address: str | None = None
    timeout: float | None = bounded(None, 1e-9)
    client_resources: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        resources = {} if self.client_resources is None else self.client_resources
        if not isinstance(resources, Mapping) or not resources.keys() <= {"num_cpus", "num_gpus"}:
            got = list(resources) if isinstance(resources, Mapping) else kind_of(resources)
            raise ConfigError(
                f'client_resources: expected a dict such as {{"num_cpus": 2, "num_gpus": 0.5}}, got {got}'
            )
        for name, value in resources.items():
            check_number(f"client_resources: {name}", value, 1e-4 if name == "num_cpus" else 0.0)
        if self.address is not None and not isinstance(self.address, str):
            raise ConfigError(f"address: expected a text such as 'HOST:6379', got {kind_of(self.address)}")


def places(algorithm: object) -> dict[str, str]:
    """Return the settings that are no arguments of `simulate`, each with how it is written there.

    Parameters
    ----------
    algorithm : name or object of an algorithm, whose options come first; then groups, then other algorithms
    """
    called = getattr(algorithm, "name", algorithm)
    own = option_owners(called) if isinstance(called, str) else {}
    groups = {"agents": (Agents,), "start": (Start,), "keep": (Keep,), "rounds": (Sync, Async)}
    found = {
        option.name: f"{argument}={kind.__name__}({option.name}=...)"
        for argument, kinds in reversed({**groups, "engine": (RayEngine,)}.items())
        for kind in reversed(kinds)
        for option in fields(kind)
    }
    return {
        name: f"algorithm=algorithms.{owner.class_name}({name}=...)"
        for name, owner in (option_owners() | own).items()
        if name in own or name not in found
    } | {name: text for name, text in found.items() if name not in own}
