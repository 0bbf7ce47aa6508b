"""What an agent's step asks to have computed: fit a process, draw a function, maximise it, draw weights.

A step of an algorithm reads from top to bottom like the paper. It calls `compute(request)` where it needs a
computation, and gets the result. `side_by_side` has many agents work at once, each in a greenlet: all advance
to their next request, and requests of one kind and shape are computed together. If that fails, they are
computed one by one, so that only the agents at fault see the error. Alone or together, the same functions
compute, and a result does not depend on the others that are computed with it. Without the library greenlet,
agents work one after the other.

What is not ours, such as an objective, never runs in an agent's greenlet: `outside` calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

try:
    from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # it has no types
except ImportError:  # it is in the extra `simulation`
    greenlet = None

import numpy as np
import numpy.typing as npt

from fbo_flower.algorithms.records import Array, IntArray, Trials
from fbo_flower.numerics.optim import functions
from fbo_flower.numerics.optim.functions import Differentiable, shape_of, stack_of
from fbo_flower.numerics.optim.maximise import Maximum, maximise
from fbo_flower.numerics.surrogates import fitting, gp, rff

LARGEST = 2**17  # numbers in an array of requests that are computed at once
T = TypeVar("T")
Rng = Callable[[], np.random.Generator]  # makes a step's random generator when it is needed
# `draws(purpose, *keys)` returns a random generator: the same purpose and keys always give the same numbers
Draws = Callable[..., np.random.Generator]
Evaluation = Callable[[Trials], Trials]  # has points evaluated: the same rows with values


@dataclass(frozen=True)
class Request(ABC, Generic[T]):
    """A computation, whose result is a `T`."""

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


Answer = Callable[[Request[Any]], Any]


def _computed(request: Request[T]) -> T:
    result: T = request.compute([request])[0]
    return result


_ANSWER: ContextVar[Answer] = ContextVar("answer", default=_computed)


def compute(request: Request[T]) -> T:
    """Return the result of a request, which may be computed together with those of other agents."""
    result: T = _ANSWER.get()(request)
    return result


@contextmanager
def answered_by(wrapper: Callable[[Answer, Request[Any]], Any]) -> Iterator[None]:
    """Let `wrapper(compute, request)` answer the requests within this block."""
    token = _ANSWER.set(partial(wrapper, _ANSWER.get()))
    try:
        yield
    finally:
        _ANSWER.reset(token)


_DRIVER: ContextVar[Callable[[Any], Any] | None] = ContextVar("driver", default=None)


def outside(function: Callable[[], T]) -> T:
    """Call a function where a library may do as it likes with threads, recursion and the stack of C."""
    driver = _DRIVER.get()
    result: T = function() if driver is None else driver(function)
    return result


def _stacked(requests: Sequence[Any], name: str) -> Any:
    """Return an array of all requests on top of each other; None if they have none."""
    found = [getattr(request, name) for request in requests]
    return None if found[0] is None else np.array(found)


@dataclass(frozen=True)
class Fit(Request[gp.Hyperparameters]):
    """Fit the hyperparameters of a Gaussian process."""

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
class DrawPath(Request[functions.SamplePath]):
    """Draw a function from the posterior of a Gaussian process."""

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
class Condition(Request[gp.Posterior]):
    """Condition a Gaussian process on observations."""

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
class Evaluate(Request[Array]):
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
class Maximise(Request[Maximum]):
    """Maximise a function of the features; see `maximise`."""

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
class DrawWeights(Request[Array]):
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


# -- many agents side by side -----------------------------------------------------------------------

TOGETHER = 2**19  # numbers that the agents hold that advance together


@dataclass(frozen=True)
class Failed:
    """The result of an agent that raised an exception, or of a request whose computation did."""

    error: Exception


@dataclass
class _AtWork(Generic[T]):
    """An agent at work."""

    work: Callable[[], T]
    worker: Any  # the greenlet that does it
    request: Any = None  # that it waits for; None: it has ended
    result: T | Failed | None = None


def _new_worker() -> Any:
    """Return a greenlet that does the work of one agent after another, in a context of its own."""
    driver: Callable[[Any], Any] = getcurrent().switch

    def work(agent: _AtWork[Any]) -> None:
        _ANSWER.set(driver)
        _DRIVER.set(driver)
        while True:
            try:
                agent.result = agent.work()
            except Exception as error:  # whatever the agent's objective or a computation raises
                agent.result = Failed(error)
            agent = driver(None)

    worker = greenlet(work)
    worker.gr_context = copy_context()
    return worker


def side_by_side(
    all_work: Iterable[Callable[[], T]], on_end: Callable[[], object] = lambda: None
) -> list[T | Failed]:
    """Let many agents work at once; return their results in order, `Failed` where they raised.

    Parameters
    ----------
    on_end : called whenever an agent has ended
    """
    if greenlet is None:
        return _one_by_one(all_work, on_end)
    agents, workers, idle = list[_AtWork[T]](), list[Any](), list[Any]()

    def turns() -> Iterator[tuple[_AtWork[T], Any]]:
        """Yield each agent that can go on, and what it gets: itself at the beginning, then results."""
        part, size = list[_AtWork[T]](), 0  # an agent holds what it has computed until its part has ended
        for work in all_work:
            if not idle:
                workers.append(_new_worker())
                idle.append(workers[-1])
            agents.append(agent := _AtWork(work, idle.pop()))
            yield agent, agent
            if agent.request is not None:
                part.append(agent)
                size += agent.request.held
            if size > TOGETHER:
                yield from _results(part)
                size = 0
        yield from _results(part)

    try:
        for agent, answer in turns():
            worker = agent.worker
            asked = worker.throw(answer.error) if isinstance(answer, Failed) else worker.switch(answer)
            while callable(asked):  # what the agent calls `outside`
                try:
                    found = asked()
                except Exception as error:
                    asked = worker.throw(error)
                else:
                    asked = worker.switch(found)
            agent.request = asked
            if asked is None:
                idle.append(worker)
                on_end()
    finally:  # after Ctrl-C agents wait, which close their memories as they are ended
        for worker in workers:
            worker.throw()
    return [agent.result for agent in agents]  # type: ignore[misc]  # None only if the result is None


def _results(part: list[_AtWork[T]]) -> Iterator[tuple[_AtWork[T], Any]]:
    """Yield agents and what they wait for until all have ended."""
    while part:
        for group in _groups(part):
            yield from zip(group, computed([agent.request for agent in group]), strict=True)
        part[:] = [agent for agent in part if agent.request is not None]


def _one_by_one(all_work: Iterable[Callable[[], T]], on_end: Callable[[], object]) -> list[T | Failed]:
    results = list[T | Failed]()
    for work in all_work:
        try:
            results.append(work())
        except Exception as error:
            results.append(Failed(error))
        on_end()
    return results


def computed(requests: Sequence[Request[Any]]) -> Sequence[Any]:
    """Return the results of requests of one kind and shape, `Failed` for those that cannot be computed."""
    try:
        return requests[0].compute(requests)
    except Exception as error:
        if len(requests) == 1:
            return [Failed(error)]
        return [answer for request in requests for answer in computed([request])]


def _groups(waiting: Sequence[_AtWork[T]]) -> Iterator[Sequence[_AtWork[T]]]:
    """Yield the agents whose requests are of one kind and shape, at most as many as the requests say."""
    alike: dict[tuple[object, ...], list[_AtWork[T]]] = {}
    for agent in waiting:
        alike.setdefault((type(agent.request), *agent.request.shape), []).append(agent)
    for group in alike.values():
        most = group[0].request.at_once
        for begin in range(0, len(group), most):
            yield group[begin : begin + most]
