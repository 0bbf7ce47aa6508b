"""The result of an attack, and a grid that records the messages which a server sends and receives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.numerics.arrays import Array
from fbo_flower.simulation import InProcessGrid


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


def rms(error: Sequence[float] | Array) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(error))))
