"""Who is there: agents by stable id, the nodes they run on, and the search space they agree on.

Before the first costly evaluation every node answers a QUERY with its agent's id, the version of its
wire and its search space. An id belongs to the node that claimed it first; another node may take it
over only once the first is gone, with the same memory. Whoever claims an id without the memory that goes
with it is another incarnation: it cannot go on where the first was, so it takes part under an id of its own.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower import wire
from fbo_flower.algorithms.records import natural_key
from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.space.space import SearchSpace
from fbo_flower.strategies.send_and_receive import Stopped, send_and_receive

_STEADY_SECONDS = 2.0
_LONGEST_PAUSE = 8  # rounds


@dataclass(frozen=True)
class NodeInfo:
    """What one node said of itself."""

    node: int
    agent: str
    digest: str
    space: str
    role: str
    incarnation: str
    key: str


@dataclass
class AgentRegistry:
    """The agents of a study and their nodes.

    Parameters
    ----------
    space : of all agents; None until the first roll-call
    needs_keys : whether agents are asked for a public key
    nodes : agent -> node id
    roles : agent -> role, where it has one
    incarnations : agent -> token of its memory, "" for an agent that names none
    own_names : agent -> what it calls itself; another incarnation of "3" is "3~2" here
    keys : agent -> its public key, in hexadecimal digits, where it told one
    suspects : node ids whose agents failed, to be asked again who they are
    refused : node id -> why it does not take part
    pauses : node id that is connected but not admitted -> how often it was asked in vain, and for how
        many rounds it is left in peace; a node that never answers must not hold up every round
    """

    space: SearchSpace | None
    suffix: str = ""
    needs_keys: bool = False
    nodes: dict[str, int] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    own_names: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    suspects: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    pauses: dict[int, tuple[int, int]] = field(default_factory=dict)

    def present(self, connected: Iterable[int]) -> list[str]:
        """Return the agents whose nodes are connected, in natural order."""
        there = set(connected)
        return sorted((a for a, node in self.nodes.items() if node in there), key=natural_key)

    def wait_for_agents(
        self, grid: Grid, num_agents: int | None, wait_seconds: float, stop: threading.Event
    ) -> None:
        """Wait for the agents and take the roll.

        Raises
        ------
        ConfigError
            If fewer than `num_agents` answered in time, or their search spaces differ.
        """
        deadline = time.monotonic() + wait_seconds
        connected = _wait_for_nodes(grid, num_agents, deadline, stop)
        while True:
            answers = self._query(
                grid, [n for n in connected if n not in self.nodes.values()], deadline, stop
            )
            self._agree(answers)
            for answer in answers:
                self._admit(answer, connected)
            if self.nodes and len(self.nodes) >= (num_agents or 1):
                log(INFO, "Roll-call: %d agents, search space %s", len(self.nodes), self._digest()[:12])
                self._pause(connected)
                return
            if time.monotonic() >= deadline:
                raise ConfigError(
                    _too_few(num_agents, len(self.nodes), len(connected), wait_seconds, self.refused)
                )
            stop.wait(0.5)
            connected = _wait_for_nodes(grid, num_agents, deadline, stop)

    def register_late(
        self, grid: Grid, connected: list[int], stop: threading.Event, seconds: float = 30.0
    ) -> None:
        """Admit nodes that were not there before, could not be admitted then, or have failed since."""
        admitted = set(self.nodes.values()) - self.suspects
        self.suspects.clear()
        new = []
        for node in connected:
            if node not in admitted:
                asked, pause = self.pauses.get(node, (0, 0))
                if pause == 0:
                    new.append(node)
                else:
                    self.pauses[node] = asked, pause - 1
        for answer in self._query(grid, new, time.monotonic() + seconds, stop):
            if answer.digest != self._digest():
                self._refuse(answer.node, f"space: expected digest {self._digest()}, got {answer.digest}")
            else:
                self._admit(answer, connected)
        self._pause(new)

    def _pause(self, asked: Iterable[int]) -> None:
        """Leave the nodes that were asked in vain in peace, each time for longer."""
        admitted = set(self.nodes.values())
        for node in asked:
            if node not in admitted:
                times = self.pauses.get(node, (0, 0))[0] + 1
                self.pauses[node] = times, min(2 ** min(times - 1, 10), _LONGEST_PAUSE)

    def _digest(self) -> str:
        return self.space.digest if self.space is not None else ""

    def _query(self, grid: Grid, nodes: list[int], deadline: float, stop: threading.Event) -> list[NodeInfo]:
        messages = [
            Message(
                RecordDict({"config": ConfigRecord({"key": True} if self.needs_keys else {})}),
                node,
                MessageType.QUERY + self.suffix,
                group_id="0",
            )
            for node in nodes
        ]
        replies = send_and_receive(grid, messages, max(1.0, deadline - time.monotonic()), stop)
        answers = []
        for position in sorted(replies):
            reply = replies[position]
            try:
                if reply.has_error():
                    raise ConfigError(f"the agent failed: {reply.error.reason}")
                answers.append(_read_answer(nodes[position], reply.content))
            except FBOError as error:
                self._refuse(nodes[position], str(error))
        return sorted(answers, key=lambda answer: (natural_key(answer.agent), answer.node))

    def _agree(self, answers: list[NodeInfo]) -> None:
        """Adopt the agents' search space; all must have the same."""
        if not answers:
            return
        groups: dict[str, list[str]] = {}
        for answer in answers:
            groups.setdefault(answer.digest, []).append(answer.agent)
        if self.space is None and len(groups) == 1:
            self.space = SearchSpace.from_json(answers[0].space)
        expected = self._digest() or max(groups, key=lambda digest: len(groups[digest]))
        if set(groups) != {expected}:
            others = [agent for digest, agents in groups.items() if digest != expected for agent in agents]
            shown = next(digest for digest in groups if digest != expected)
            raise ConfigError(
                f"space: expected the same search space at every agent (digest {expected[:12]}), "
                f"got {shown[:12]} at {_shorten(others)}"
            )

    def mark_suspect(self, agent: str) -> None:
        """Ask an agent that failed who it is before the next round."""
        self.suspects.add(self.nodes[agent])

    def _admit(self, answer: NodeInfo, connected: Iterable[int]) -> None:
        others = {a: node for a, node in self.nodes.items() if self.own_names.get(a, a) == answer.agent}
        holders = [node for node in others.values() if node != answer.node and node in set(connected)]
        if holders:
            self._refuse(answer.node, f"agent {answer.agent!r} is node {holders[0]} already")
            return
        agent = self._id_of(answer)
        if agent not in self.incarnations and agent != answer.agent:
            log(WARNING, "Agent %s has lost its memory and takes part as %s", answer.agent, agent)
        elif self.nodes.get(agent, answer.node) != answer.node:
            log(INFO, "Agent %s is back as node %d", agent, answer.node)
        for former in [a for a, node in self.nodes.items() if node == answer.node and a != agent]:
            del self.nodes[former]
        self.nodes[agent] = answer.node
        self.incarnations[agent], self.own_names[agent] = answer.incarnation, answer.agent
        if answer.key:
            self.keys[agent] = answer.key
        self.refused.pop(answer.node, None)
        self.pauses.pop(answer.node, None)
        if answer.role:
            self.roles[agent] = answer.role

    def _id_of(self, answer: NodeInfo) -> str:
        """Return the id under which this incarnation of an agent takes part."""
        known = [a for a, own in self.own_names.items() if own == answer.agent]
        for agent in known:
            if self.incarnations[agent] == answer.incarnation:
                return agent
        agent, number = answer.agent, len(known)
        while agent in self.incarnations:
            number += 1
            agent = f"{answer.agent}~{number}"
        return agent

    def _refuse(self, node: int, reason: str) -> None:
        if self.refused.get(node) != reason:  # it may be asked again, and say the same
            log(WARNING, "Node %d does not take part: %s", node, reason)
        self.refused[node] = reason


def _wait_for_nodes(grid: Grid, num_agents: int | None, deadline: float, stop: threading.Event) -> list[int]:
    """Return the connected nodes once there are enough, or their number is steady, or time is up."""
    nodes = sorted(grid.get_node_ids())
    steady_since = time.monotonic()
    while time.monotonic() < deadline:
        if num_agents is not None and len(nodes) >= num_agents:
            return nodes
        if num_agents is None and nodes and time.monotonic() - steady_since >= _STEADY_SECONDS:
            return nodes
        if stop.wait(0.05):
            raise Stopped
        now = sorted(grid.get_node_ids())
        if now != nodes:
            nodes, steady_since = now, time.monotonic()
    return nodes


def _read_answer(node: int, content: RecordDict) -> NodeInfo:
    config: Mapping[str, Any] = content.get("config", {})
    texts = {key: config.get(key) for key in ("agent", "digest", "space", "role")}
    if config.get("schema") != wire.SCHEMA_VERSION:
        raise ConfigError(f"schema: expected version {wire.SCHEMA_VERSION}, got {config.get('schema')!r}")
    if not all(isinstance(text, str) and len(text) <= wire.MAX_TEXT for text in texts.values()):
        raise ConfigError(f"roll-call: expected texts for {', '.join(texts)}")
    texts["incarnation"] = config.get("incarnation", "")
    if not isinstance(texts["incarnation"], str) or len(texts["incarnation"]) > 100:
        raise ConfigError("roll-call: expected an incarnation of at most 100 characters")
    texts["key"] = config.get("key", "")
    if not isinstance(texts["key"], str) or not re.fullmatch("([0-9a-f]{98})?", texts["key"]):
        raise ConfigError("roll-call: expected a public key of 49 bytes")
    answer = NodeInfo(node, *map(str, texts.values()))
    if not 0 < len(answer.agent) <= 100 or not answer.agent.isprintable():
        raise ConfigError(f"agent: expected 1 to 100 printable characters, got {answer.agent[:100]!r}")
    if SearchSpace.from_json(answer.space).digest != answer.digest:
        raise ConfigError("digest: expected that of the search space that came with it")
    return answer


def _too_few(
    expected: int | None, got: int, connected: int, seconds: float, refused: Mapping[int, str]
) -> str:
    text = f"agents: expected {expected or 'at least 1'} within {seconds:g} s, got {got}"
    if connected > got + len(refused):
        text += f", and {connected - got - len(refused)} connected nodes that did not answer in time"
    return (
        f"{text}; {len(refused)} refused, the first because: {next(iter(refused.values()))}"
        if refused
        else text
    )


def _shorten(agents: list[str]) -> str:
    names = ", ".join(agents[:5])
    return f"agent {names}" if len(agents) == 1 else f"agents {names}{', ...' if len(agents) > 5 else ''}"
