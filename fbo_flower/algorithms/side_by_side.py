"""Advance the steps of many agents together, and compute what they ask for at once.

All agents advance to their next request. Requests of one kind and shape are computed together, and the agents
get their results. If such a computation fails, its requests are computed one by one, so that only the agents
at fault see the error; every result is the same as it would be alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fbo_flower.algorithms.requests import Request, Steps

T = TypeVar("T")


@dataclass(frozen=True)
class Failed:
    """The result of steps that raised an exception, or of a request whose computation did."""

    error: Exception


@dataclass
class _Advance(Generic[T]):
    """The steps of one agent, and the request that they wait for."""

    steps: Steps[T]
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


def side_by_side(all_steps: Iterable[Steps[T]]) -> list[T | Failed]:
    """Drive the steps of many agents; return their results in order, `Failed` where they raised."""
    agents = [_Advance(steps) for steps in all_steps]
    for agent in agents:
        agent.send(None)
    while waiting := [agent for agent in agents if agent.request is not None]:
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


def _groups(waiting: Sequence[_Advance[T]]) -> Iterator[list[_Advance[T]]]:
    """Yield the agents whose requests are of one kind and shape, at most as many as fit into the caches."""
    alike: dict[tuple[object, ...], list[_Advance[T]]] = {}
    for agent in waiting:
        if agent.request is not None:
            alike.setdefault((type(agent.request), *agent.request.shape), []).append(agent)
    for group in alike.values():
        most = type(group[0].request).most if group[0].request is not None else len(group)
        for begin in range(0, len(group), most):
            yield group[begin : begin + most]
