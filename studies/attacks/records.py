"""The result of an attack, and a grid that records the messages which a server sends and receives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients import client_app
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import InProcessGrid
from fbo_flower.simulation.problems import Problem
from fbo_flower.strategies import TuningStrategy
from fbo_flower.study import Study

SQUARE = "side of the square"
UNITS = "s.d. of the agent's values"


@dataclass(frozen=True)
class AttackResult:
    """How well an attack recovers one kind of secret, compared with a guess.

    Parameters
    ----------
    secret : what the agent keeps to itself, and the protection in use
    error : the attacker's error, a root mean square or a share, see `unit`
    guess : the error of a guess that uses no report
    unit : unit of both errors
    count : number of secrets that the attacker tried to recover
    how : how the guess is made
    """

    secret: str
    error: float
    guess: float
    unit: str
    count: int
    how: str


def compared(secret: str, errors: Any, guesses: Any, unit: str, how: str) -> AttackResult:
    """Return an attack's errors beside those of guesses, both as root mean squares.

    Parameters
    ----------
    guesses : errors of a guess, or their root mean square
    """
    count = int(np.size(errors))
    return AttackResult(secret, rms(errors), rms(guesses), unit, count, how)


@dataclass(frozen=True)
class Overheard:
    """One task or report as the server sees it."""

    agent: str
    round: int
    arrays: Mapping[str, AnyArray]
    config: Mapping[str, Any]


@dataclass
class Heard:
    """All tasks and reports of a run, in order."""

    tasks: list[Overheard] = field(default_factory=list)
    reports: list[Overheard] = field(default_factory=list)

    def sent(self, name: str, agent: str | None = None) -> list[Overheard]:
        """Return the reports that hold an array of this name, of all agents or of one."""
        return [o for o in self.reports if name in o.arrays and agent in {None, o.agent}]

    def told(self, name: str) -> list[Overheard]:
        """Return the tasks that hold an array of this name."""
        return [o for o in self.tasks if name in o.arrays]


class TappedGrid(InProcessGrid):
    """A grid that records all tasks and reports; disclosed trials serve as the truth, not as evidence."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.heard = Heard()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages and record their tasks."""
        messages = list(messages)
        self.heard.tasks += [o for m in messages if (o := _read(m.content)) is not None]
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Receive replies and record their reports."""
        replies = list(super().pull_messages(message_ids))
        contents = [reply.content for reply in replies if not reply.has_error()]
        self.heard.reports += [o for content in contents if (o := _read(content)) is not None]
        return replies


def _read(content: RecordDict) -> Overheard | None:
    arrays, config = content.get("arrays"), content.get("config")
    if not isinstance(arrays, ArrayRecord) or not isinstance(config, ConfigRecord) or "round" not in config:
        return None  # a message of the registration
    return Overheard(
        str(config["agent"]),
        int(str(config["round"])),
        {name: array.numpy() for name, array in arrays.items()},
        dict(config),
    )


def overhear(
    problem: Problem, server: TuningStrategy, num_rounds: int | None, seed: int
) -> tuple[Study, Heard]:
    """Run a study whose agents disclose their trials, as the truth; return it and what the server heard."""
    app = client_app(problem, problem.space, seed=seed, disclose="trials")
    grid = TappedGrid(app, problem.num_agents)
    return server.start(grid, num_rounds=num_rounds).study, grid.heard


def evaluated(study: Study, agent: str) -> tuple[Array, Array, Array]:
    """Return an agent's points `(n, 2)` in the square of `f1`, its values and the rounds `(n,)`."""
    rows = study.trials.where(agent=agent)
    points = np.array([[c["x1"], c["x2"]] for c in rows["config"]])
    return points, np.asarray(rows["value"], dtype=np.float64), np.asarray(rows["round"], dtype=np.int64)


def lowest(values: Array) -> Any:
    """Return where values on a grid `(n, n)` are lower than around: `(n, n)` booleans."""
    far = np.pad(values, 1, constant_values=np.inf)
    around = np.stack([np.roll(far, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    return (far == around.min(axis=0))[1:-1, 1:-1]


def rms(error: Sequence[float] | Array) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(error))))
