"""What an agent's step asks to have computed: fit a process, draw a function, maximise it, draw weights.

A step of an algorithm is a generator (`Steps`). It reads from top to bottom like the paper, yields a request
where it needs a computation, and is sent the result. `alone` drives the steps of one agent, `side_by_side`
those of many: all advance to their next request, and requests of one kind and shape are computed at once.
If that fails, they are computed one by one, so that only the agents at fault see the error. Both compute with
the same functions, and a result does not depend on the others that are computed with it.

An agent's whole work on one task is a `Session`: it yields `Trials` (points to evaluate) too, is sent the
same rows with values, and returns the agent's state after the task. `run_task.py` drives sessions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.records import AgentState, Array, IntArray, Trials
from fbo_flower.numerics.optim import functions
from fbo_flower.numerics.optim.functions import Differentiable, shape_of, stack_of
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.surrogates import fitting, gp, rff

LARGEST = 2**17  # numbers in an array of requests that are computed at once
T = TypeVar("T")
Rng = Callable[[], np.random.Generator]  # makes a step's random generator when it is needed


@dataclass(frozen=True)
class Request(ABC):
    """A computation."""

    most: ClassVar[int] = 64  # the largest number of requests that are computed at once

    @property
    @abstractmethod
    def shape(self) -> tuple[object, ...]:
        """What requests must have in common to be computed at once."""

    @property
    def size(self) -> int:
        """How many numbers the largest array of one computation holds, where that grows with the study."""
        return 1

    @property
    def held(self) -> int:
        """How many numbers an agent holds until its end if this is the first thing that it asks for."""
        return self.size

    @property
    def at_once(self) -> int:
        """How many such requests to compute at once, so that memory is bounded and caches suffice."""
        return max(1, min(self.most, LARGEST // max(self.size, 1)))

    @staticmethod
    @abstractmethod
    def compute(requests: Sequence[Any]) -> Sequence[Any]:
        """Return the results of requests of one kind and shape."""


Steps = Generator[Request, Any, T]


def _stacked(requests: Sequence[Any], name: str) -> Any:
    """Return an array of all requests on top of each other; None if they have none."""
    found = [getattr(request, name) for request in requests]
    return None if found[0] is None else np.array(found)


@dataclass(frozen=True)
class Fit(Request):
    """Fit the hyperparameters of a Gaussian process; the result is `gp.Hyperparameters`."""

    x: Array  # `(n, F)`, features of the observations
    y: Array  # `(n,)`
    kernel: str
    start: gp.Hyperparameters | None  # the last fit; None: begin at the mode of the prior
    priors: fitting.Priors = fitting.DEFAULT_PRIORS  # of the hyperparameters
    # priors that are used instead if values are evidently noisy; None: none
    noisy: fitting.Priors | None = None
    known: fitting.Known | None = None  # what is known beside the observations; None: nothing
    output: int = 0  # which of an agent's outputs `y` is

    @property
    def shape(self) -> tuple[object, ...]:
        return (
            self.x.shape, self.kernel, self.start is None, self.priors, self.noisy, self.known is None
        )  # fmt: skip

    @property
    def size(self) -> int:
        return len(self.y) ** 2

    @property
    def held(self) -> int:
        return 2 * self.size  # the matrix of its process and the factor

    @staticmethod
    def compute(requests: Sequence[Fit]) -> list[gp.Hyperparameters]:
        """Fit all processes together."""
        first, x, y = requests[0], _stacked(requests, "x"), _stacked(requests, "y")
        starts = [request.start.to_array() for request in requests if request.start is not None]
        known = [request.known for request in requests if request.known is not None]
        start = np.array(starts) if starts else None
        modes = fitting.fit(x, y, first.kernel, start, first.priors, known, first.noisy)
        return [gp.Hyperparameters.from_array(first.kernel, theta) for theta in modes.theta]


@dataclass(frozen=True)
class DrawPath(Request):
    """Draw a function from the posterior of a Gaussian process; the result is a `functions.SamplePath`."""

    x: Array
    y: Array
    hyperparameters: gp.Hyperparameters
    num_features: int
    deviation_scale: float
    rng: np.random.Generator

    @property
    def shape(self) -> tuple[object, ...]:
        return self.x.shape, self.hyperparameters.kernel, self.num_features, self.deviation_scale

    @property
    def size(self) -> int:
        return len(self.y) * max(len(self.y), self.num_features)

    @staticmethod
    def compute(requests: Sequence[DrawPath]) -> list[functions.SamplePath]:
        """Draw all functions together."""
        first, x, y = requests[0], _stacked(requests, "x"), _stacked(requests, "y")
        theta, rngs = [request.hyperparameters for request in requests], [request.rng for request in requests]
        return functions.sample_paths(x, y, theta, first.num_features, rngs, first.deviation_scale)


@dataclass(frozen=True)
class Condition(Request):
    """Condition a Gaussian process on observations; the result is `gp.Posterior`."""

    x: Array
    y: Array
    hyperparameters: gp.Hyperparameters
    added: Array | None = None  # `(n, n)`, covariance that is added to the kernel matrix; None: 0

    @property
    def shape(self) -> tuple[object, ...]:
        return self.x.shape, self.hyperparameters.kernel, self.added is None

    @property
    def size(self) -> int:
        return len(self.y) ** 2

    @staticmethod
    def compute(requests: Sequence[Condition]) -> list[gp.Posterior]:
        """Condition all processes together."""
        x, y, added = (_stacked(requests, name) for name in ("x", "y", "added"))
        return gp.condition(x, y, [request.hyperparameters for request in requests], added)


@dataclass(frozen=True)
class Evaluate(Request):
    """Evaluate a function at points `(m, F)`; the result is `(m,)`."""

    function: Differentiable
    points: Array

    @property
    def shape(self) -> tuple[object, ...]:
        return shape_of(self.function), self.points.shape

    @staticmethod
    def compute(requests: Sequence[Evaluate]) -> Sequence[Array]:
        """Evaluate all functions side by side."""
        stack = stack_of([request.function for request in requests])
        return list(stack.values(_stacked(requests, "points")))


@dataclass(frozen=True)
class Maximise(Request):
    """Maximise a function of the features; see `maximise`, whose `Maximum` is the result."""

    function: Differentiable
    candidates: Array
    columns: IntArray
    avoid: Array
    min_distance: float
    movable: npt.NDArray[np.bool_] | None = None
    max_iterations: int = 30

    @property
    def shape(self) -> tuple[object, ...]:
        kind, columns, moves = shape_of(self.function), self.columns.tobytes(), self.movable is not None
        sizes = self.candidates.shape, self.avoid.shape
        return kind, columns, moves, sizes, self.min_distance, self.max_iterations

    @staticmethod
    def compute(requests: Sequence[Maximise]) -> Sequence[Any]:
        """Maximise all functions side by side."""
        first = requests[0]
        candidates, avoid, movable = (_stacked(requests, n) for n in ("candidates", "avoid", "movable"))
        return maximise(
            [request.function for request in requests], candidates, first.columns, avoid=avoid,
            min_distance=first.min_distance, max_iterations=first.max_iterations, movable=movable,
        )  # fmt: skip


@dataclass(frozen=True)
class DrawWeights(Request):
    """Draw the weights of shared features, `(M,)`: an agent's message [Dai2020, Eqs. 2-3]."""

    features: rff.RandomFeatures
    x: Array
    y: Array
    noise_variance: float
    rng: np.random.Generator

    @property
    def shape(self) -> tuple[object, ...]:
        return self.x.shape, self.features.frequencies.shape, self.noise_variance

    @property
    def size(self) -> int:
        return len(self.y) * max(len(self.y), self.features.num_features)

    @staticmethod
    def compute(requests: Sequence[DrawWeights]) -> Sequence[Array]:
        """Draw all messages together."""
        features, rngs = [request.features for request in requests], [request.rng for request in requests]
        x, y = _stacked(requests, "x"), _stacked(requests, "y")
        return list(rff.sample_weights(features, x, y, requests[0].noise_variance, rngs))


def stepping(result: T | Steps[T]) -> Steps[T]:
    """Return the result of a method that may be a generator, as steps."""
    return (yield from result) if isinstance(result, Generator) else result


def relayed(
    session: Generator[Any, Any, T],
    answer: Callable[[Any], Generator[Any, Any, Any]],
    first: object = None,
    until: type[Any] | tuple[()] = (),
) -> Generator[Any, Any, T]:
    """Drive a session to its end: send it what `answer` makes of each thing that it asks for.

    Parameters
    ----------
    answer : what it yields in turn is asked of the caller; the session sees its errors
    first : what the session is sent first, if it has begun
    until : what the session asks for that is returned instead, so that the session waits for it
    """
    go_on: Callable[[], Any] = partial(session.send, first)
    while True:
        try:
            asked = go_on()
        except StopIteration as stop:
            value: T = stop.value
            return value
        if isinstance(asked, until):
            return cast(T, asked)
        try:
            go_on = partial(session.send, (yield from answer(asked)))
        except Exception as error:  # the computation failed; the session may know what that means
            go_on = partial(session.throw, error)


def alone(steps: Steps[T]) -> T:
    """Drive the steps of one agent and return their result; the steps see the errors of their requests."""
    go_on: Callable[[], Request] = partial(next, steps)
    try:
        while True:
            request = go_on()
            try:
                go_on = partial(steps.send, request.compute([request])[0])
            except Exception as error:
                go_on = partial(steps.throw, error)
    except StopIteration as stop:
        value: T = stop.value
        return value


Session = Generator[Trials | Request, Any, AgentState]

# `draws(purpose, *keys)` returns a random generator: the same purpose and keys always give the same numbers
Draws = Callable[..., np.random.Generator]


# -- many agents side by side -----------------------------------------------------------------------

TOGETHER = 2**19  # numbers that the agents hold that advance together


@dataclass(frozen=True)
class Failed:
    """The result of steps that raised an exception, or of a request whose computation did."""

    error: Exception


@dataclass
class _Advance(Generic[T]):
    """The steps of one agent, and the request that they wait for."""

    steps: Steps[T]
    on_end: Callable[[], object]
    request: Request | None = None
    result: T | Failed | None = None

    def send(self, answer: Any) -> None:
        """Advance to the next request, or to the result."""
        self.request = None
        try:
            if isinstance(answer, Failed):
                self.request = self.steps.throw(answer.error)
            else:
                self.request = self.steps.send(answer)
        except StopIteration as stop:
            self.result = stop.value
        except Exception as error:  # whatever the agent's objective or a computation raises
            self.result = Failed(error)
        if self.request is None:
            self.on_end()


def side_by_side(
    all_steps: Iterable[Steps[T]], on_end: Callable[[], object] = lambda: None
) -> list[T | Failed]:
    """Drive the steps of many agents; return their results in order, `Failed` where they raised.

    Parameters
    ----------
    on_end : called whenever the steps of an agent have ended
    """
    agents: list[_Advance[T]] = []
    part: list[_Advance[T]] = []  # an agent holds what it has computed until its whole part has ended
    size = 0
    for steps in all_steps:
        agent = _Advance(steps, on_end)
        agents.append(agent)
        agent.send(None)
        if agent.request is None:
            continue
        if part and size + agent.request.held > TOGETHER:
            _finish(part)
            part, size = [], 0
        part.append(agent)
        size += agent.request.held
    _finish(part)
    return [agent.result for agent in agents]  # type: ignore[misc]  # None only if the result is None


def _finish(part: Sequence[_Advance[T]]) -> None:
    """Compute what these agents ask for until all have ended."""
    while waiting := [agent for agent in part if agent.request is not None]:
        for group in _groups(waiting):
            requests = [agent.request for agent in group if agent.request is not None]
            for agent, answer in zip(group, computed(requests), strict=True):
                agent.send(answer)


def computed(requests: Sequence[Request]) -> Sequence[Any]:
    """Return the results of requests of one kind and shape, `Failed` for those that cannot be computed."""
    try:
        return requests[0].compute(requests)
    except Exception as error:
        if len(requests) == 1:
            return [Failed(error)]
        return [answer for request in requests for answer in computed([request])]


def _groups(waiting: Sequence[_Advance[T]]) -> Iterator[list[_Advance[T]]]:
    """Yield the agents whose requests are of one kind and shape, at most as many as the requests say."""
    alike: dict[tuple[object, ...], list[_Advance[T]]] = {}
    for agent in waiting:
        if agent.request is not None:
            alike.setdefault((type(agent.request), *agent.request.shape), []).append(agent)
    for group in alike.values():
        most = group[0].request.at_once if group[0].request is not None else len(group)
        for begin in range(0, len(group), most):
            yield group[begin : begin + most]
