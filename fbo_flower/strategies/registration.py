"""Registration: which agents take part, on which nodes they run, and which search space they share.

Before the first evaluation every node answers a QUERY message with its agent's id, its wire schema version
and its search space. The first node that registers an id owns it. Another node may register the same id only
after the first has disconnected, and it keeps the id only if it has the same memory (journal or Flower
state). An agent without that memory is a new incarnation: it cannot continue the earlier agent's work, so it
takes part under a new id, such as "3~2".

An agent says at registration in which share of the rounds it wants tasks, and in a report that it has used up
its budget of evaluations. The server asks it for no more evaluations. What it has sent stays in use. A round
waits for a silent agent until its timeout, so silent agents are asked less often.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from logging import INFO, WARNING
from math import ceil, floor
from typing import Any, cast

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower import __version__
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import Phase, natural_key
from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import SearchSpace
from fbo_flower.strategies.exchange import Stopped, send_and_receive
from fbo_flower.strategies.forwarding_grid import ForwardingGrid
from fbo_flower.strategies.registration_message import (
    Registration,
    all_refused,
    differing_parameters,
    node_differences,
    read_registration,
    shorten,
    spaces_of,
    too_few,
)

_STEADY_SECONDS = 2.0  # the number of connected nodes must not change for this time
_STEADY_SECONDS_SIMULATED = 1.0  # the same in a simulation, whose nodes all connect when it starts
_MAX_SKIPPED_ROUNDS = 8
_END_SECONDS = 60.0  # to wait for the replies to the message that ends a study
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 8.0  # seconds between two requests to nodes that refused
_SAME_APP = "; give every agent the same app"
_MAX_REASON = 400  # characters
_SILENT_ROUNDS = 3  # silent rounds in a row after which an agent is asked less often
_LONGEST_REST = 8  # rounds between two tasks of a silent agent


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


def takes_part(seed: int, agent: str, server_round: int, share: float) -> bool:
    """Return whether an agent that wants tasks in a share of the rounds gets one in this round.

    Its rounds are spread evenly, from a random first one: of any `n` rounds in a row it takes part in
    `share n`, up to one round.
    """
    if share == 1.0:
        return True
    offset = float(generator(seed, "server", "participation", agent).random())
    return floor(server_round * share + offset) > floor((server_round - 1) * share + offset)


@dataclass
class Agent:
    """One agent of a study.

    Parameters
    ----------
    said : what it said at its last registration; of an agent in a journal, what the journal holds
    node : the node on which it runs; None: it has not connected since the run was resumed
    spent : whether its budget of evaluations is used up
    suspect : whether it has failed, so that its node must register again
    silent, last : number of silent rounds in a row, and the last one
    """

    said: Registration
    node: int | None = None
    spent: bool = False
    suspect: bool = False
    silent: int = 0
    last: int = 0

    def is_due(self, server_round: int) -> bool:
        """Return whether the agent is asked in a round, although it has not replied for some.

        An agent that was silent for three rounds in a row is asked again in the second round after the last
        one, then in the fourth, then in every eighth.
        """
        excess = self.silent - _SILENT_ROUNDS
        rest = 0 if excess < 0 else min(1 << (excess + 1), _LONGEST_REST)
        return server_round >= self.last + rest

    def note_silence(self, server_round: int, silent: bool) -> None:
        """Note whether the agent sent no reply to a task of a round."""
        self.silent = self.silent + (self.last != server_round) if silent else 0
        self.last = server_round if silent else 0


@dataclass
class AgentRegistry:
    """The agents of a study and their nodes.

    Parameters
    ----------
    space : search space of all agents; None before the first registration
    message_suffix : ".action" at the end of the message type; "" without an action
    needs_keys : whether the server asks the agents for their public keys
    needs_all_parameters : why no agent may have fixed parameters; "": agents may
    agents : id in this study -> agent; the second incarnation of "3" is "3~2" here
    aims : the agents' objectives and limits, without bounds; None before the first registration
    refused : node id -> why it does not take part
    warned : nodes of which the log says that their versions or clock differ from the server's
    backoff : connected node that is not registered -> how many requests it left without a valid answer, and
        how many rounds pass until the next request. So a node that never answers does not delay every round
    """

    space: SearchSpace | None
    message_suffix: str = ""
    needs_keys: bool = False
    needs_all_parameters: str = ""
    agents: dict[str, Agent] = field(default_factory=dict)
    aims: Aims | None = None
    refused: dict[int, str] = field(default_factory=dict)
    warned: set[int] = field(default_factory=set)
    backoff: dict[int, tuple[int, int]] = field(default_factory=dict)

    # -- whom to ask -----------------------------------------------------------------------------

    @property
    def nodes(self) -> dict[str, int]:
        """The node of each agent that has one."""
        return {name: agent.node for name, agent in self.agents.items() if agent.node is not None}

    def present(self, connected: Iterable[int]) -> list[str]:
        """Return the agents whose nodes are connected, in natural order."""
        there = set(connected)
        return sorted((name for name, agent in self.agents.items() if agent.node in there), key=natural_key)

    def willing(self, names: Sequence[str], phase: Phase, server_round: int, seed: int) -> list[str]:
        """Return the agents that may be asked in a half-round.

        Agents without a budget are left out of TRAIN only: later exchanges of a round make no evaluations.
        """
        found = []
        for name in names:
            agent = self.agents[name]
            share = 1.0 if phase is Phase.FINISH else agent.said.participation
            spent = agent.spent and phase is Phase.TRAIN
            if not spent and takes_part(seed, name, server_round, share):
                found.append(name)
        return found

    def due(self, names: Sequence[str], server_round: int) -> list[str]:
        """Return the agents without those that rest because they have not replied for some rounds."""
        return [name for name in names if self.agents[name].is_due(server_round)]

    @property
    def all_spent(self) -> bool:
        """Whether every agent has used up its budget of evaluations."""
        spent = [agent.spent for agent in self.agents.values() if agent.node is not None]
        return bool(spent) and all(spent)

    @property
    def someone_rests(self) -> bool:
        """Whether an agent may be there and get no task: it has no budget left, or wants fewer rounds."""
        return any(agent.spent or agent.said.participation < 1.0 for agent in self.agents.values())

    @property
    def longest_pause(self) -> int:
        """Number of rounds of which every agent takes part in one at least."""
        return ceil(1.0 / min((agent.said.participation for agent in self.agents.values()), default=1.0))

    def end_line(self, server_round: int) -> str:
        """Return the line of the log that says why the study has ended before its last round."""
        number = sum(agent.spent for agent in self.agents.values())
        others = sum(not agent.spent for agent in self.agents.values() if agent.node is not None)
        who = "1 agent has" if number == 1 else f"{number} agents have"
        rest = f"; the algorithm has no work for the other {others}" if others else ""
        return (
            f"{who} used up the budget of evaluations (max_trials){rest}: the study ends after round "
            f"{server_round}"
        )

    def roles(self) -> dict[str, str]:
        """Return the roles of the agents that have one."""
        return {name: agent.said.role for name, agent in self.agents.items() if agent.said.role}

    def shared_outputs(self) -> tuple[str, ...]:
        """Return the outputs of a trial that no operator keeps to itself; () if a trial has only a value."""
        aims = self.aims or NUMBER
        kept = {name for agent in self.agents.values() for name in agent.said.private}
        return tuple(name for name in aims.names if name not in kept) if aims.has_outputs else ()

    def disclosures(self) -> Counter[str]:
        """Return what agents disclose and who chose it -> number of agents, for agents that said so."""
        return Counter(agent.said.disclosure for agent in self.agents.values() if agent.said.disclosure)

    # -- journal ---------------------------------------------------------------------------------

    def for_journal(self) -> dict[str, object]:
        """Return what a resumed run must know of the agents.

        It compares the incarnations, and so recognises an agent that has lost its memory.
        """
        said = {name: agent.said for name, agent in self.agents.items()}
        return {
            "agents": {name: [r.agent, r.incarnation, r.key, r.curves] for name, r in said.items()},
            "aims": self._aims_text(),
        }

    def restore(self, values: Mapping[str, object]) -> None:
        """Add the agents in the values of `for_journal`; they have no nodes yet."""
        for name, known in cast(dict[str, list[Any]], values["agents"]).items():
            own_name, incarnation, key, curves = known
            said = Registration(
                agent=str(own_name), incarnation=str(incarnation), key=str(key), curves=curves is True
            )
            agent = self.agents.setdefault(str(name), Agent(said))
            agent.said = said
        self.aims = Aims.from_json(str(values["aims"]))

    # -- registration ----------------------------------------------------------------------------

    def wait_for_agents(
        self, grid: Grid, num_agents: int | None, wait_seconds: float, stop: threading.Event
    ) -> None:
        """Wait until the agents are connected, and register them.

        Parameters
        ----------
        num_agents : to wait for; None: wait until the number of connected nodes stops changing

        Raises
        ------
        ConfigError
            If fewer than `num_agents` registered in time, every node that is connected refused, a simulation
            has too few nodes, or the agents' search spaces differ.
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
        while True:
            registered = set(self.nodes.values())
            unregistered = [node for node in connected if node not in registered]
            registrations = self._query(grid, unregistered, deadline, stop)
            self._check_space(registrations)
            self._check_aims(registrations)
            self._admit_all(registrations, connected)
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
    ) -> None:
        """Register nodes that connected later, that were refused before, or whose agents have failed."""
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
            if found.digest != self._digest():
                self._refuse(
                    found.node,
                    f"space: expected digest {self._digest()}, got {found.digest}; give this agent "
                    "the study's search space",
                )
            elif found.aims != self._aims_text():
                self._refuse(found.node, f"{self._other_aims([found], found.agent)} here{_SAME_APP}")
            else:
                valid.append(found)
        self._admit_all(valid, connected)
        self._back_off(nodes)

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
                    raise ConfigError(f"registration: expected an answer, got an error: {reason}")
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

    def _check_space(self, registrations: list[Registration]) -> None:
        """Take over the agents' search space; raise ConfigError if an agent has another one."""
        if not registrations:
            return
        groups: dict[str, list[str]] = {}
        for registration in registrations:
            groups.setdefault(registration.digest, []).append(registration.agent)
        if self.space is None and len(groups) == 1:
            self.space = SearchSpace.from_json(registrations[0].space)
        expected = self._digest()
        if not groups.keys() <= {expected}:
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
        """Note the agents' objectives and limits; raise ConfigError if they differ in them."""
        if self.aims is None and registrations:
            self.aims = Aims.from_json(registrations[0].aims)
        others = [found.agent for found in registrations if found.aims != self._aims_text()]
        if others:
            raise ConfigError(f"{self._other_aims(registrations, others[0])} at {shorten(others)}{_SAME_APP}")

    def _aims_text(self) -> str:
        return (self.aims or NUMBER).to_json()

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
        """Return the id under which this incarnation of an agent takes part."""
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
