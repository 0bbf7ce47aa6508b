"""Registration: which agents take part, on which nodes they run, and which search space they share.

Before the first evaluation every node answers a QUERY message with its agent's id, its wire schema version
and its search space. The first node that registers an id owns it. Another node may register the same id only
after the first has disconnected, and it keeps the id only if it has the same memory (journal or Flower
state). An agent without that memory is a new incarnation: it cannot continue the earlier agent's work, so it
takes part under a new id, such as "3~2".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from logging import INFO, WARNING
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import natural_key
from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.space.space import SearchSpace
from fbo_flower.strategies.exchange import ForwardingGrid, Stopped, send_and_receive
from fbo_flower.strategies.study_agents import (
    Agent,
    Registration,
    StudyAgents,
    all_refused,
    differing_parameters,
    node_differences,
    read_registration,
    shorten,
    spaces_of,
    too_few,
)
from fbo_flower.version import __version__
from fbo_flower.wire.protections import remedy_for

_STEADY_SECONDS = 2.0  # the number of connected nodes must not change for this time
_STEADY_SECONDS_SIMULATED = 1.0  # the same in a simulation, whose nodes all connect when it starts
_AGREE_SECONDS = 5.0  # in which no node connects, after which agents that differ are an error
_MAX_SKIPPED_ROUNDS = 8
_END_SECONDS = 60.0  # to wait for the replies to the message that ends a study
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 8.0  # seconds between two requests to nodes that refused
_SAME_APP = "; give every agent the same app"
_MAX_REASON = 400  # characters


def is_simulated(grid: Grid) -> bool:
    """Return whether a grid is that of Flower's simulation, whose nodes are all there from the start."""
    while isinstance(grid, ForwardingGrid):
        grid = grid.within
    return type(grid).__name__ == "InMemoryGrid"  # its module differs between versions of Flower


def wait_for_nodes(
    grid: Grid,
    num_agents: int | None,
    deadline: float,
    stop: threading.Event,
    steady_seconds: float = _STEADY_SECONDS,
) -> list[int]:
    """Return the connected nodes: once `num_agents` are connected, or at the deadline.

    Without `num_agents`, or in a simulation: once the number of nodes has not changed for `steady_seconds`.
    """
    nodes = sorted(grid.get_node_ids())
    steady_since = time.monotonic()
    while time.monotonic() < deadline:
        if num_agents is not None and len(nodes) >= num_agents:
            return nodes
        is_complete = num_agents is None or is_simulated(grid)
        enough = steady_seconds if num_agents is None else _STEADY_SECONDS_SIMULATED
        if is_complete and nodes and time.monotonic() - steady_since >= enough:
            return nodes
        if stop.wait(0.05):
            raise Stopped
        now = sorted(grid.get_node_ids())
        if now != nodes:
            nodes, steady_since = now, time.monotonic()
    return nodes


@cache
def flower_version() -> str:
    """Return the version of Flower that is installed here."""
    return metadata.version("flwr")


@dataclass
class AgentRegistry(StudyAgents):
    """Registers the agents of a study.

    Parameters
    ----------
    message_suffix : ".action" at the end of the message type; "" without an action
    needs_keys : whether the server asks the agents for their public keys
    needs_all_parameters : why no agent may have fixed parameters; "": agents may
    refused : node id -> why it does not take part
    warned : nodes of which the log says that their versions or clock differ from the server's
    backoff : connected node that is not registered -> how many requests it left without a valid answer, and
        how many rounds pass until the next request. So a node that never answers does not delay every round
    """

    message_suffix: str = ""
    needs_keys: bool = False
    needs_all_parameters: str = ""
    refused: dict[int, str] = field(default_factory=dict)
    warned: set[int] = field(default_factory=set)
    backoff: dict[int, tuple[int, int]] = field(default_factory=dict)

    def wait_for_agents(
        self, grid: Grid, num_agents: int | None, wait_seconds: float, stop: threading.Event
    ) -> None:
        """Wait until the agents are connected, and register them.

        Once `num_agents` agents have the same search space and objectives, others do not take part.

        Parameters
        ----------
        num_agents : to wait for; None: wait until the number of connected nodes stops changing

        Raises
        ------
        ConfigError
            If fewer than `num_agents` registered in time, every node that is connected refused, a simulation
            has too few nodes, or too many agents have other search spaces or objectives.
        """
        deadline = time.monotonic() + wait_seconds
        pause = _FIRST_PAUSE
        connected = wait_for_nodes(grid, num_agents, deadline, stop)
        if is_simulated(grid) and connected and num_agents and len(connected) < num_agents:
            # before the first message, for whose answer a simulation starts Ray
            raise ConfigError(
                f"agents: expected {num_agents}, the simulation has {len(connected)} nodes; add "
                f"--federation-config num-supernodes={num_agents}"
            )
        found: dict[int, Registration] = {}  # of agents that are not admitted yet
        before, changed = connected, time.monotonic()
        while True:
            if connected != before:
                before, changed = connected, time.monotonic()
            known = found.keys() | set(self.nodes.values())
            asked = [node for node in connected if node not in known]
            found |= {said.node: said for said in self._query(grid, asked, deadline, stop)}
            found = {node: said for node, said in found.items() if node in connected}
            now = time.monotonic()
            decide = num_agents is None or is_simulated(grid) or now >= deadline
            agreeing = self._agreeing(
                sorted(found.values(), key=lambda said: (natural_key(said.agent), said.node)),
                num_agents or 1,
                choose=num_agents is not None,
                decide=decide or now - changed >= _AGREE_SECONDS,
                take_few=decide,
            )
            if agreeing:
                found = {}
            self._admit_all(agreeing, connected)
            number = len(self.nodes)
            if number >= (num_agents or 1):
                log(INFO, "Registered %d agents, search space %s", number, self._digest()[:12])
                self._back_off(connected)
                return
            if connected and len(connected) >= (num_agents or 1) and set(connected) <= set(self.refused):
                raise ConfigError(all_refused(self.refused))
            if time.monotonic() >= deadline:
                raise ConfigError(too_few(num_agents, number, len(connected), wait_seconds, self.refused))
            stop.wait(min(pause, max(_FIRST_PAUSE / 10, deadline - time.monotonic())))
            pause = min(2 * pause, _LAST_PAUSE)  # a simulation logs a traceback for every refusal
            connected = wait_for_nodes(grid, num_agents, deadline, stop)

    def register_late(
        self, grid: Grid, connected: list[int], stop: threading.Event, seconds: float = 30.0
    ) -> bool:
        """Register nodes that connected later, that were refused before, or whose agents have failed.

        Return whether there were any.
        """
        registered = {agent.node for agent in self.agents.values() if not agent.suspect}
        for agent in self.agents.values():
            agent.suspect = False
        nodes = []
        for node in connected:
            if node not in registered:
                requests, rounds_to_skip = self.backoff.get(node, (0, 0))
                if rounds_to_skip == 0:
                    nodes.append(node)
                else:
                    self.backoff[node] = requests, rounds_to_skip - 1
        valid = []
        for found in self._query(grid, nodes, time.monotonic() + seconds, stop):
            if reason := self._misfit(found):
                self._refuse(found.node, reason)
            else:
                valid.append(found)
        self._admit_all(valid, connected)
        self._back_off(nodes)
        return bool(valid)

    def _back_off(self, nodes: Iterable[int]) -> None:
        """Skip the nodes that did not register for some rounds: one, then two, four, at most eight."""
        registered = set(self.nodes.values())
        for node in nodes:
            if node not in registered:
                requests = self.backoff.get(node, (0, 0))[0] + 1
                self.backoff[node] = requests, min(2 ** min(requests - 1, 10), _MAX_SKIPPED_ROUNDS)

    def tell_end(self, grid: Grid, study: str, stop: threading.Event, seconds: float) -> None:
        """Tell the agents that asked for it that the study has ended; nothing is evaluated.

        The agents log their own answers. If a message is lost, its agent keeps the answer in its journal.

        Parameters
        ----------
        seconds : how long to wait for the agents at most
        """
        nodes, present = self.nodes, self.present(grid.get_node_ids())
        agents = [name for name in present if self.agents[name].said.wants_end]
        messages = self._queries([nodes[name] for name in agents], {"end": study})
        replies = send_and_receive(grid, messages, min(seconds, _END_SECONDS), stop)
        told = sum(not reply.has_error() and _confirms(reply.content) for reply in replies.values())
        if told < len(agents):
            log(
                WARNING,
                "%d of %d agents did not confirm the end of the study; what they know is in their journals",
                len(agents) - told, len(agents),
            )  # fmt: skip

    def _queries(self, nodes: Iterable[int], config: dict[str, Any]) -> list[Message]:
        kind = MessageType.QUERY + self.message_suffix
        return [
            Message(RecordDict({"config": ConfigRecord(config)}), node, kind, group_id="0") for node in nodes
        ]

    def _digest(self) -> str:
        return self.space.digest if self.space is not None else ""

    def _query(
        self, grid: Grid, nodes: list[int], deadline: float, stop: threading.Event
    ) -> list[Registration]:
        """Return the valid registrations of nodes, in natural order of their agents."""
        messages = self._queries(nodes, {"key": True} if self.needs_keys else {})
        sent = time.time()
        replies = send_and_receive(grid, messages, max(1.0, deadline - time.monotonic()), stop)
        heard = time.time()
        registrations = []
        before = dict(self.refused)
        for position in sorted(replies):
            reply = replies[position]
            try:
                if reply.has_error():
                    reason = " ".join(str(reply.error.reason).split())
                    raise ConfigError(
                        f"registration: expected an answer, got an error: {reason}{remedy_for(reason)}"
                    )
                registrations.append(read_registration(nodes[position], reply.content))
                self._warn(registrations[-1], reply.content["config"], sent, heard)
            except FBOError as error:
                self.refused[nodes[position]] = str(error)[:_MAX_REASON]
        self._log_refusals(before)
        return sorted(registrations, key=lambda r: (natural_key(r.agent), r.node))

    def _warn(
        self, registration: Registration, properties: Mapping[str, Any], sent: float, heard: float
    ) -> None:
        """Warn once of a node whose versions or clock differ from the server's; it takes part."""
        if registration.node in self.warned:
            return
        node = {**properties, "sent": sent, "heard": heard}
        if found := node_differences(node, {"version": __version__, "flwr": flower_version()}):
            self.warned.add(registration.node)
            log(WARNING, "Agent %s, node %d: %s", registration.agent, registration.node, "; ".join(found))

    def _agreeing(
        self, registrations: list[Registration], wanted: int, *, choose: bool, decide: bool, take_few: bool
    ) -> list[Registration]:
        """Return the agents of the study: those with the same search space and objectives.

        Parameters
        ----------
        wanted : number of agents that the study needs
        choose : whether that many agents are enough; False: all must agree
        decide : whether agents that differ are an error if too few agree; otherwise more may come, and
            nobody is returned
        take_few : whether fewer than `wanted` are returned
        """
        groups: dict[tuple[str, str], list[Registration]] = {}
        for said in registrations:
            groups.setdefault((said.digest, said.aims), []).append(said)
        fitting = [
            group
            for (digest, aims), group in groups.items()
            if (self.space is None or digest == self._digest())
            and (self.aims is None or aims == self.aims_text)
        ]
        best = max(fitting, key=len, default=[])
        others = [said for said in registrations if said not in best]
        enough = len(self.nodes) + len(best) >= wanted
        if others and not (choose and enough):
            if decide:
                self._check_space(registrations)
                self._check_aims(registrations)
            return []
        if not best or not (enough or take_few):
            return []
        self.space = self.space or SearchSpace.from_json(best[0].space)
        self.aims = self.aims or Aims.from_json(best[0].aims)
        for said in others:
            self._refuse(said.node, self._misfit(said))
        return best

    def _misfit(self, said: Registration) -> str:
        """Return why an agent cannot take part in this study; "" if its space and objectives fit."""
        assert self.space is not None
        if said.digest != self._digest():
            differing = differing_parameters([self.space, SearchSpace.from_json(said.space)])
            return (
                f"space: expected digest {self._digest()[:12]}, got {said.digest[:12]} at agent "
                f"{said.agent}, which differs in {differing}; give this agent the study's search space"
            )
        if said.aims != self.aims_text:
            return f"{self._other_aims([said], said.agent)} at agent {said.agent}{_SAME_APP}"
        return ""

    def _check_space(self, registrations: list[Registration]) -> None:
        """Raise ConfigError if the agents' search spaces differ."""
        groups: dict[str, list[str]] = {}
        for registration in registrations:
            groups.setdefault(registration.digest, []).append(registration.agent)
        expected = self._digest()
        if len(groups.keys() | ({expected} - {""})) > 1:
            spaces = {r.digest: SearchSpace.from_json(r.space) for r in registrations}
            if self.space is not None:
                spaces[expected] = self.space
            differing = differing_parameters(list(spaces.values()))
            begun = "; the study began with another: use it again, or start a new study" * bool(expected)
            raise ConfigError(
                f"space: expected the same search space at every agent, got "
                f"{spaces_of(groups)}; they differ in {differing}{begun}"
            )

    def _check_aims(self, registrations: list[Registration]) -> None:
        """Raise ConfigError if the agents differ in their objectives and limits."""
        resumed = self.aims is not None and not self.nodes  # the aims are the journal's
        self.aims = self.aims or Aims.from_json(registrations[0].aims)
        others = [found.agent for found in registrations if found.aims != self.aims_text]
        if others and resumed:
            got = next(Aims.from_json(found.aims) for found in registrations if found.agent == others[0])
            raise ConfigError(
                f"objectives: expected {self.aims}, with which the study began, got {got} at "
                f"{shorten(others)}; resume it with the same minimize, objectives and limits, or start "
                "a new study"
            )
        if others:
            raise ConfigError(f"{self._other_aims(registrations, others[0])} at {shorten(others)}{_SAME_APP}")

    def _other_aims(self, registrations: Iterable[Registration], agent: str) -> str:
        got = next(Aims.from_json(found.aims) for found in registrations if found.agent == agent)
        return f"objectives: expected the same at every agent, got {self.aims or NUMBER} at some and {got}"

    def _admit_all(self, registrations: Collection[Registration], connected: Iterable[int]) -> None:
        """Bind agents to their nodes, except those whose id another connected node has registered."""
        if not registrations:
            return
        by_name: dict[str, list[str]] = {}
        for name, agent in self.agents.items():
            by_name.setdefault(agent.said.agent, []).append(name)
        by_node = {node: name for name, node in self.nodes.items()}
        there = set(connected)
        for registration in registrations:
            self._admit(registration, by_name.setdefault(registration.agent, []), by_node, there)

    def _admit(
        self, registration: Registration, incarnations: list[str], by_node: dict[int, str], there: set[int]
    ) -> None:
        """Bind an agent to its node, unless another connected node has registered the same id.

        Parameters
        ----------
        incarnations : agents that report this id, in order; updated here
        by_node : node -> its agent; updated here
        there : the connected nodes
        """
        same_name = [self.agents[name].node for name in incarnations]
        owners = [node for node in same_name if node != registration.node and node in there]
        if owners:
            self._refuse(
                registration.node,
                f"agent: expected an id of its own, got {registration.agent!r}, which node {owners[0]} has "
                "already; give each node another `agent` in node_config",
            )
            return
        if registration.fixed and self.needs_all_parameters:
            self._refuse(
                registration.node,
                f"fixed: expected an agent that tunes all parameters, because {self.needs_all_parameters}, "
                f"got {shorten([registration.agent])} with {len(registration.fixed)} fixed ones",
            )
            return
        name = self._agent_id(registration, incarnations)
        agent = self.agents.setdefault(name, Agent(registration))
        if name not in incarnations:
            incarnations.append(name)
            if name != registration.agent:
                own_name = registration.agent
                log(WARNING, "Agent %s has lost its memory; it takes part as new agent %s", own_name, name)
        elif agent.node not in (None, registration.node):
            log(INFO, "Agent %s has moved to node %d", name, registration.node)
        if (former := by_node.get(registration.node, name)) != name:
            self.agents[former].node = None
        if agent.node is not None:
            by_node.pop(agent.node, None)  # where it was before
        by_node[registration.node] = name
        # its operator may have changed what it says of itself
        agent.said, agent.node, agent.spent = registration, registration.node, registration.spent
        self.refused.pop(registration.node, None)
        self.backoff.pop(registration.node, None)

    def _agent_id(self, registration: Registration, incarnations: list[str]) -> str:
        for name in incarnations:
            if self.agents[name].said.incarnation == registration.incarnation:
                return name
        name, number = registration.agent, len(incarnations)
        while name in self.agents:
            number += 1
            name = f"{registration.agent}~{number}"
        return name

    def _refuse(self, node: int, reason: str) -> None:
        before = dict(self.refused)
        self.refused[node] = reason
        self._log_refusals(before)

    def _log_refusals(self, before: Mapping[int, str]) -> None:
        """Log every reason once, with the nodes that it concerns and that did not have it before."""
        new: dict[str, list[int]] = {}
        for node, reason in self.refused.items():
            if before.get(node) != reason:
                new.setdefault(reason, []).append(node)
        for reason, nodes in new.items():
            others = f" and {len(nodes) - 1} more do" if len(nodes) > 1 else " does"
            log(WARNING, "Node %d%s not take part: %s", nodes[0], others, reason)


def _confirms(content: RecordDict) -> bool:
    """Return whether an agent's answer to the end of a study is the empty one that is expected."""
    return (
        set(content) == {"config"} and isinstance(content["config"], ConfigRecord) and not content["config"]
    )
