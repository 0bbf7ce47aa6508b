"""Messages that are under way to agents: sent one by one, answered in any order, given up after a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from fbo_flower.strategies.clocked import Clocked
from fbo_flower.strategies.exchange import polls
from fbo_flower.strategies.replies import NO_REPLY, Reply, read_reply

_GONE = Reply(reason="its node has left", word="gone")


@dataclass
class UnderWay:
    """The messages without a reply.

    Parameters
    ----------
    timeout : seconds after which a message is given up, by the grid's clock if it has one; a later reply to
        it is not read
    """

    grid: Grid
    timeout: float
    stop: threading.Event
    _agents: dict[str, str] = field(default_factory=dict)  # id of a message -> agent
    _deadlines: dict[str, float] = field(default_factory=dict)
    _unsent: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._agents) + len(self._unsent)

    def send(self, messages: Mapping[str, Message], sent_before: Mapping[str, float] | None = None) -> None:
        """Send messages to agents; one that cannot be sent is answered by an error.

        Parameters
        ----------
        sent_before : agent -> when its message was sent for the first time, if not now
        """
        if not messages:
            return
        agents = {message.metadata.message_id: agent for agent, message in messages.items()}
        ids = [str(i) for i in self.grid.push_messages(list(messages.values())) if i]
        if len(ids) == len(messages):  # some grids give a message its id when they send it
            agents = dict(zip(ids, messages, strict=True))
        now = self._now()
        for message_id in ids:
            agent = self._agents[message_id] = agents[message_id]
            self._deadlines[message_id] = (sent_before or {}).get(agent, now) + self.timeout
        sent = {agents[message_id] for message_id in ids}
        self._unsent += [agent for agent in messages if agent not in sent]

    def receive(self, seconds: float) -> dict[str, Reply]:
        """Return agent -> reply: of all that have arrived as soon as one has, none after `seconds`.

        A message that has been under way for too long is answered by `NO_REPLY`.

        Raises
        ------
        Stopped
            If `stop` is set while replies are missing.
        """
        replies = dict.fromkeys(self._unsent, _GONE)
        self._unsent = []
        for arrived in polls(self.grid, self._agents.keys(), self.stop, time.monotonic() + seconds):
            for message in arrived:
                agent = self._forget(message.metadata.reply_to_message_id)
                if agent is not None:
                    replies[agent] = read_reply(message)
            if not replies and isinstance(self.grid, Clocked) and not self.grid.awaits(self._agents):
                self.grid.advance(min(self._deadlines.values(), default=0.0))
            now = self._now()
            for message_id in [i for i, deadline in self._deadlines.items() if deadline <= now]:
                replies[self._agents[message_id]] = NO_REPLY
                self._forget(message_id)
            if replies or not self._agents:
                break
        return replies

    def _now(self) -> float:
        return self.grid.now() if isinstance(self.grid, Clocked) else time.monotonic()

    def _forget(self, message_id: str) -> str | None:
        self._deadlines.pop(message_id, None)
        return self._agents.pop(message_id, None)
