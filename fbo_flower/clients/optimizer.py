"""`Optimizer`: ask for configurations and tell values, in one process and without a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from fbo_flower.algorithms import Algorithm, Independent, make_algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims, Limit
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AgentState, Phase, Task, Trials
from fbo_flower.algorithms.registry import check_aims, register
from fbo_flower.algorithms.requests import Answer, Request, answered_by
from fbo_flower.algorithms.run_task import up_to_query
from fbo_flower.clients.memory import agent_state_from_bytes, agent_state_to_bytes
from fbo_flower.clients.objective import ContextOfTrial, evaluate
from fbo_flower.clients.own_answer import OwnAnswer, algorithm_of, own_answer
from fbo_flower.clients.pruning import Curve
from fbo_flower.errors import (
    ConfigError,
    JournalError,
    ObjectiveError,
    WrongTypeError,
    explains_names,
    kind_of,
)
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.checks import check_flag, check_integer
from fbo_flower.space.space import Config, SearchSpace, check_space
from fbo_flower.storage import AgentJournal
from fbo_flower.storage.paths import path_of

AGENT = "0"  # the name of the first agent of a simulation, on which its draws depend
STUDY = "optimizer"
_CONTEXT = ContextOfTrial(np.random.default_rng, Curve)


def value_told(value: object, failed: bool = False, aims: Aims = NUMBER) -> tuple[tuple[float, ...], str]:
    """Return what was told, larger is better, and ""; or NaN and the reason why the evaluation has failed.

    Parameters
    ----------
    value : a number, or a dict of the outputs in `aims`; None, NaN and infinities are failures
    failed : whether the evaluation has failed, whatever the value

    Raises
    ------
    ConfigError
        If the value is of another type.
    """
    nothing = (float("nan"),) * max(1, len(aims.names))
    if failed or value is None:
        return nothing, "told as failed"
    try:
        told = evaluate(lambda config, context: value, {}, _CONTEXT, aims)  # type: ignore[arg-type, return-value]
    except WrongTypeError as error:
        wanted = f"a dict of {', '.join(aims.names)}" if aims.names else "a number"
        raise ConfigError(f"value: expected {wanted}, or None for a failure, got {error.kind}") from error
    except ObjectiveError as error:
        return nothing, str(error)
    return tuple(number + 0.0 for number in told), ""


@explains_names
class Optimizer:
    """Proposes configurations and learns their values, for loops that cannot hand over an objective.

    With the same algorithm and seed it asks for the trials of `simulate` with one agent, bit for bit.

    Parameters
    ----------
    space : the search space
    algorithm : an algorithm whose agents tune alone: "ei", "ts", "random", or an object such as
        `algorithms.ExpectedImprovement(num_initial=5)`
    seed : the same seed gives the same configurations
    minimize : whether smaller values are better
    objectives, limits, reference : for values that are dicts of numbers, see `simulate`

    Raises
    ------
    ConfigError
        If an argument has the wrong type, or the algorithm needs a server or takes no dicts.

    Examples
    --------
    >>> from fbo_flower import Float, Optimizer, SearchSpace
    >>> optimizer = Optimizer(SearchSpace({"x": Float(0, 1)}), "ei", minimize=True)
    >>> for _ in range(10):
    ...     config = optimizer.ask()
    ...     optimizer.tell(config, (config["x"] - 0.3) ** 2)
    >>> round(optimizer.best.config["x"], 1)
    0.3
    """

    def __init__(
        self,
        space: SearchSpace,
        algorithm: str | Algorithm[Any] = "ei",
        *,
        seed: int = 0,
        minimize: bool = False,
        objectives: Mapping[str, str] | None = None,
        limits: Mapping[str, Limit] | None = None,
        reference: Mapping[str, float] | None = None,
    ) -> None:
        check_space(space)
        seed = check_integer("seed", seed, 0)
        aims = Aims.of(minimize, objectives, limits, reference)
        if isinstance(algorithm, Algorithm):
            register(type(algorithm))
        elif isinstance(algorithm, str):
            algorithm = make_algorithm(algorithm, {})
        else:
            raise ConfigError(
                f"algorithm: expected a name such as 'ei', or an object, got {kind_of(algorithm)}"
            )
        if not isinstance(algorithm, Independent):
            raise ConfigError(
                f"algorithm: expected one that tunes alone, such as ei, ts or random, got {algorithm.name}, "
                "which needs a server; on a device use Site, on one machine simulate"
            )
        algorithm.check(space)
        check_aims(algorithm, aims)
        self.space, self.algorithm, self.seed, self.aims = space, algorithm, seed, aims
        self._state = AgentState(space, Trials.empty(space.dimension), aims=aims)
        self._asked: Trials | None = None  # what is to be evaluated
        self._answers: list[tuple[Any, Any]] = []  # of the computations that led to it, with their generators

    @property
    def best(self) -> OwnAnswer:
        """The best configuration told, with its value; the configuration is None before the first value."""
        return own_answer(AGENT, STUDY, self.algorithm, self._state)

    def ask(self) -> Config:
        """Return the next configuration to evaluate: the same one until its value is told."""
        if self._asked is None:
            self._answers = []
            asked = self._session()
            assert isinstance(asked, Trials), "the task has a trial left"
            self._asked = asked
        return self.space.decode(self.space.snap(self._asked.points)[0])

    def tell(
        self,
        config: Mapping[str, Any],
        value: float | Mapping[str, float] | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """Learn the value of a configuration, whether it was asked for or not. Each call counts as a trial.

        Parameters
        ----------
        value : a number, or a dict of the outputs; None, NaN or an infinity: the evaluation has failed
        failed : whether the evaluation has failed, whatever the value is

        Raises
        ------
        ConfigError
            If the configuration is not one of the search space, or the value has another type.
        """
        told, reason = value_told(value, check_flag("failed", failed), self.aims)
        point, trial = self.space.encode(config)[np.newaxis], self._state.next_trial
        was_asked = self._asked is not None and dict(config) == self.ask()
        if was_asked and self._asked is not None:
            point = self._asked.points  # its bits: decoding and encoding may round them
        outcome = Trials(
            self.space.snap(point),
            np.array(told[:1]),
            np.array([trial]),
            np.array([reason], dtype=object) if reason else None,
            outputs=np.array([told]) if self.aims.has_outputs else None,
        )
        # a session does not know of what it has not asked for; draws are those of the trial
        found = self._session(outcome) if was_asked else None
        self._asked, self._answers = None, []
        self._state = found if isinstance(found, AgentState) else self._state.learn(outcome)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state into a file, which `load` and `fbo-flower best` read; an older state is replaced.

        Raises
        ------
        ConfigError
            If the file holds the state of an optimizer with other arguments.
        JournalError
            If the file cannot be written, or holds something else.
        """
        name, options = self.algorithm.name, canonical_json(self.algorithm.options())
        aims = self.aims.to_json(bounds=True)
        about = (str(self.seed), f"{name} {options}", self.space.to_json(), aims)
        with AgentJournal(path, STUDY) as journal:
            state = agent_state_to_bytes(self._state)
            if journal.study(STUDY) is None:
                journal.begin(STUDY, self.seed, state, *about[1:])
            elif _stored(journal)[1] != about:
                raise ConfigError(
                    f"path: expected a new file, or one that this optimizer has written, got {path}, whose "
                    "space, algorithm, seed or objectives are others"
                )
            with journal.transaction():
                journal.put("studies", (STUDY, str(self.seed), state))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return an optimizer in the state that `save` has written.

        Raises
        ------
        JournalError
            If the file does not exist, is damaged, or was not written by `save`.
        ConfigError
            If its algorithm is not installed.
        """
        if not path_of(path).is_file():
            raise JournalError(f"path: expected a file that Optimizer.save has written, got {path}")
        with AgentJournal(path, STUDY) as journal:
            state, (seed, algorithm, space, aims) = _stored(journal)
        own = SearchSpace.from_json(space)
        found = cls(own, algorithm_of(algorithm), seed=int(seed))
        found.aims = Aims.from_json(aims)
        found._state = agent_state_from_bytes(state, own, found.aims)
        found.ask()  # so that `tell` knows the configuration that was asked for before
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs: what `save` writes, without the computation under way."""
        return {**self.__dict__, "_answers": [], "_asked": self._asked is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _asked=None)
        if state["_asked"]:  # so that `tell` knows the configuration that was asked for before
            self.ask()

    def _draws(self, purpose: str, *keys: int) -> np.random.Generator:
        return generator(self.seed, "agent", AGENT, purpose, str(Phase.TRAIN), *keys)

    def _session(self, *outcomes: Trials) -> Trials | AgentState:
        """Return the query after some outcomes, or the state: within the initial design there is another.

        What was computed up to the first query is not computed again.
        """
        trial = self._state.next_trial
        task = Task(Phase.TRAIN, 0, trial, max(1, self.algorithm.num_initial - trial))
        known = iter(list(self._answers))

        def answer(compute: Answer, request: Request[Any]) -> Any:
            rng = getattr(request, "rng", None)
            found, after = next(known, (None, None))
            if after is None:
                found = compute(request)
                after = () if rng is None else rng.bit_generator.state
                self._answers.append((found, after))
            elif rng is not None:
                rng.bit_generator.state = after
            return found

        with single_thread(), answered_by(answer):
            return up_to_query(self.algorithm, task, self._state, self._draws, *outcomes)


def _stored(journal: AgentJournal) -> tuple[bytes, tuple[str, str, str, str]]:
    """Return the state of an optimizer, and its seed, algorithm, space and aims as texts."""
    stored, space = journal.study(STUDY), journal.meta(f"space.{STUDY}")
    if stored is None or space is None:
        raise JournalError(f"path: expected a file that Optimizer.save has written, got {journal.path}")
    return stored.state, (str(stored.entropy), stored.algorithm, space, stored.aims or NUMBER.to_json())
