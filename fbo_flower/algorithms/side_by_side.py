"""Advance the steps of many agents together, and compute what they ask for at once.

All agents advance to their next request. Requests of one kind and shape are computed together, and the agents
get their results. If such a computation fails, its requests are computed one by one, so that only the agents
at fault see the error; every result is the same as it would be alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fbo_flower.algorithms.requests import Request, Steps

TOGETHER = 2**19  # numbers in the first requests of the agents that advance together
T = TypeVar("T")


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
    agents = [_Advance(steps, on_end) for steps in all_steps]
    for agent in agents:
        agent.send(None)
    for part in _parts(agents):
        while waiting := [agent for agent in part if agent.request is not None]:
            for group in _groups(waiting):
                requests = [agent.request for agent in group if agent.request is not None]
                for agent, answer in zip(group, computed(requests), strict=True):
                    agent.send(answer)
    return [agent.result for agent in agents]  # type: ignore[misc]  # None only if the result is None


def computed(requests: Sequence[Request]) -> Sequence[Any]:
    """Return the results of requests of one kind and shape, `Failed` for those that cannot be computed."""
    try:
        return requests[0].compute(requests)
    except Exception as error:
        if len(requests) == 1:
            return [Failed(error)]
        return [answer for request in requests for answer in computed([request])]


def _parts(agents: Sequence[_Advance[T]]) -> Iterator[list[_Advance[T]]]:
    """Yield the waiting agents in parts: an agent holds its results until its whole part has ended."""
    part: list[_Advance[T]] = []
    size = 0
    for agent in agents:
        if agent.request is not None:
            if part and size + agent.request.size > TOGETHER:
                yield part
                part, size = [], 0
            part.append(agent)
            size += agent.request.size
    yield part


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
