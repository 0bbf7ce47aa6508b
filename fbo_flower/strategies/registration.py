"""The agents of a study and their nodes: who is there, which search space they share, who may be asked.

Before the first evaluation every node answers a QUERY message, see `node_report`. The first node that
registers an id owns it. Another node may register the same id only after the first has disconnected, and it
keeps the id only if it has the same memory (journal or Flower state). An agent without that memory is a new
incarnation: it cannot continue the earlier agent's work, so it takes part under a new id, such as "3~2".

An agent says at registration in which share of the rounds it wants tasks, and in a report that it has used up
its budget of evaluations. The server asks it for no more evaluations. What it has sent stays in use. A round
waits for a silent agent until its timeout, so silent agents are asked less often.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any, cast

import flwr
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import Phase, natural_key
from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import SearchSpace
from fbo_flower.strategies.exchange import Exchange, Exchanges, ForwardingGrid, Stopped, collected
from fbo_flower.strategies.node_report import (
    Registration,
    differing_parameters,
    node_differences,
    read_registration,
    shorten,
)
from fbo_flower.version import __version__
from fbo_flower.wire.protections import remedy_for

_STEADY_SECONDS = 2.0  # the number of connected nodes must not change for this time
_STEADY_SECONDS_SIMULATED = 1.0  # the same in a simulation, whose nodes all connect when it starts
_AGREE_SECONDS = 5.0  # in which no node connects, after which agents that differ are an error
_MAX_SKIPPED_ROUNDS = 8
_END_SECONDS = 60.0  # to wait for the replies to the message that ends a study
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 8.0  # seconds between two requests to nodes that refused
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


def lacking(
    expected: int | None, got: int, connected: Collection[int], seconds: float, refused: Mapping[int, str]
) -> str:
    """Return the text of the error that too few agents have registered."""
    number, least = len(connected), expected or 1
    if number >= least and set(connected) <= refused.keys():
        (reason, _), *others = Counter(refused.values()).most_common()
        who = "the only node refuses" if len(refused) == 1 else f"all {len(refused)} nodes refuse"
        more = f"; {len(others)} other reasons are in the log" if others else ""
        return f"agents: expected nodes that take part, {who}: {reason}{more}"
    text = f"agents: expected {expected or 'at least 1'}, only {got} registered after {seconds:g} s"
    if number > got + len(refused):
        text += f"; {number - got - len(refused)} connected nodes did not answer"
    if refused:
        text += f"; {len(refused)} were refused, the first because: {next(iter(refused.values()))}"
    if number < least:
        text += "; start more SuperNodes"
        if expected:
            text += f" or set num-supernodes={expected}"
    if number > len(refused) or number < least:
        text += "; devices may start slowly: raise wait_seconds (in a run config wait-seconds)"
    return text


_SILENT_ROUNDS = 3  # silent rounds in a row after which an agent is asked less often
_MAX_REST = 8  # rounds between two tasks of a silent agent


def takes_part(seed: int, agent: str, server_round: int, share: float) -> bool:
    """Return whether an agent that wants tasks in a share of the rounds gets one in this round.

    Its rounds are spread evenly, from a random first one: of any `n` rounds in a row it takes part in
    `share n`, up to one round.
    """
    if share == 1.0:
        return True
    offset = float(generator(seed, "server", "participation", agent).random())
    return math.floor(server_round * share + offset) > math.floor((server_round - 1) * share + offset)


@dataclass
class Agent:
    """One agent of a study.

    Parameters
    ----------
    registration : the last one; of an agent in a journal, what the journal holds of it
    spent : whether it has said that its budget of evaluations is used up
    trials, answered : the first trial that no valid report had, and the round of its last valid report
    silent, last : number of silent rounds in a row, and the last one
    """

    registration: Registration
    spent: bool = False
    trials: int = 0
    answered: int = 0
    silent: int = 0
    last: int = 0

    def note_silence(self, server_round: int, silent: bool) -> None:
        """Note whether the agent sent no reply to a task of a round."""
        self.silent = self.silent + (self.last != server_round) if silent else 0
        self.last = server_round if silent else 0


@dataclass
class AgentRegistry:
    """The agents of a study and their nodes: registers them, and says who may be asked.

    Parameters
    ----------
    space : search space of all agents; None before the first registration
    agents : id in this study -> agent; the second incarnation of "3" is "3~2" here
    nodes : agent -> its node; without those that have not connected since the run was resumed
    suspects : agents that have failed, so that their nodes must register again
    aims : the agents' objectives and limits, without bounds; None before the first registration
    targets : the agents that tune; "all": every agent
    num_trials : evaluations that the study asks of each agent; None: any number
    message_suffix : ".action" at the end of the message type; "" without an action
    needs_keys : whether the server asks the agents for their public keys
    needs_all_parameters : why no agent may have fixed parameters; "": agents may
    refused : node id -> why it does not take part
    warned : nodes of which the log says that their versions or clock differ from the server's
    backoff : connected node that is not registered -> how many requests it left without a valid answer, and
        how many rounds pass until the next request. So a node that never answers does not delay every round
    """

    space: SearchSpace | None
    agents: dict[str, Agent] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    suspects: set[str] = field(default_factory=set)
    aims: Aims | None = None
    targets: str | Sequence[str] = "all"
    num_trials: int | None = None
    message_suffix: str = ""
    needs_keys: bool = False
    needs_all_parameters: str = ""
    refused: dict[int, str] = field(default_factory=dict)
    warned: set[int] = field(default_factory=set)
    backoff: dict[int, tuple[int, int]] = field(default_factory=dict)
    _in_order: Sequence[str] | None = None  # `nodes` in natural order; None: they have changed

    def wait_for_agents(
        self, grid: Grid, num_agents: int | None, wait_seconds: float, stop: threading.Event
    ) -> Exchanges[None]:
        """Wait until the agents are connected, and yield the exchanges that register them.

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
            found |= {one.node: one for one in (yield from self._query(asked, deadline))}
            found = {node: one for node, one in found.items() if node in connected}
            now = time.monotonic()
            decide = num_agents is None or is_simulated(grid) or now >= deadline
            agreeing = self._agreeing(
                sorted(found.values(), key=lambda one: (natural_key(one.agent), one.node)),
                num_agents or 1,
                choose=num_agents is not None,
                decide=decide or now - changed >= _AGREE_SECONDS,
                take_few=decide,
            )
            if agreeing:
                found = {}
            self._admit(agreeing, connected)
            number = len(self.nodes)
            if number >= (num_agents or 1):
                digest = "" if self.space is None else self.space.digest[:12]
                log(INFO, "Registered %d agents, search space %s", number, digest)
                self._back_off(connected)
                return
            enough = len(connected) >= (num_agents or 1)
            if time.monotonic() >= deadline or (enough and set(connected) <= self.refused.keys()):
                raise ConfigError(lacking(num_agents, number, connected, wait_seconds, self.refused))
            stop.wait(min(pause, max(_FIRST_PAUSE / 10, deadline - time.monotonic())))
            pause = min(2 * pause, _LAST_PAUSE)  # a simulation logs a traceback for every refusal
            connected = wait_for_nodes(grid, num_agents, deadline, stop)

    def register_late(self, connected: Iterable[int], seconds: float = 30.0) -> Exchanges[bool]:
        """Register nodes that connected later, that were refused before, or whose agents have failed.

        Return whether there were any.
        """
        registered = set(self.nodes.values()).difference(map(self.nodes.get, self.suspects))
        self.suspects.clear()
        nodes, connected = list[int](), set(connected)
        for node in sorted(connected - registered):
            requests, rounds_to_skip = self.backoff.get(node, (0, 0))
            if rounds_to_skip == 0:
                nodes.append(node)
            else:
                self.backoff[node] = requests, rounds_to_skip - 1
        if not nodes:
            return False
        valid = []
        for found in (yield from self._query(nodes, time.monotonic() + seconds)):
            if reason := self._misfit(found):
                self._refuse({found.node: reason})
            else:
                valid.append(found)
        self._admit(valid, connected)
        self._back_off(nodes)
        return bool(valid)

    def _back_off(self, nodes: Iterable[int]) -> None:
        """Skip the nodes that did not register for some rounds: one, then two, four, at most eight."""
        registered = set(self.nodes.values())
        for node in nodes:
            if node not in registered:
                requests = self.backoff.get(node, (0, 0))[0] + 1
                self.backoff[node] = requests, min(2 ** min(requests - 1, 10), _MAX_SKIPPED_ROUNDS)

    def tell_end(self, study: str, connected: Iterable[int], seconds: float) -> Exchanges[None]:
        """Tell the agents that asked for it that the study has ended; nothing is evaluated.

        The agents log their own answers. If a message is lost, its agent keeps the answer in its journal.

        Parameters
        ----------
        seconds : how long to wait for the agents at most
        """
        wanting = [name for name in self.present(connected) if self.agents[name].registration.wants_end]
        nodes = [self.nodes[name] for name in wanting]
        replies = yield from self._ask(nodes, {"end": study}, min(seconds, _END_SECONDS))
        empty = RecordDict({"config": ConfigRecord()})
        told = sum(not reply.has_error() and reply.content == empty for reply in replies.values())
        if told < len(nodes):
            log(
                WARNING,
                "%d of %d agents did not confirm the end of the study; what they know is in their journals",
                len(nodes) - told, len(nodes),
            )  # fmt: skip

    def _ask(
        self, nodes: Iterable[int], config: dict[str, Any], seconds: float
    ) -> Exchanges[dict[int, Message]]:
        """Send nodes a QUERY message; return node -> reply."""
        kind = MessageType.QUERY + self.message_suffix
        messages = (
            (node, Message(RecordDict({"config": ConfigRecord(config)}), node, kind, group_id="0"))
            for node in nodes
        )
        return (yield from collected(Exchange(messages, seconds)))

    def _query(self, nodes: Sequence[int], deadline: float) -> Exchanges[list[Registration]]:
        """Return the valid registrations of nodes, in natural order of their agents."""
        sent = time.time()
        config = {"key": True} if self.needs_keys else {}
        replies = yield from self._ask(nodes, config, max(1.0, deadline - time.monotonic()))
        heard = time.time()
        registrations, refused = [], dict[int, str]()
        for node in [node for node in nodes if node in replies]:
            reply = replies[node]
            try:
                if reply.has_error():
                    reason = " ".join(str(reply.error.reason).split())
                    raise ConfigError(
                        f"registration: expected an answer, got an error: {reason}{remedy_for(reason)}"
                    )
                registrations.append(read_registration(node, reply.content))
                properties = {**reply.content["config"], "sent": sent, "heard": heard}
                differences = node_differences(properties, {"version": __version__, "flwr": flwr.__version__})
                if differences and node not in self.warned:  # it takes part
                    self.warned.add(node)
                    name = registrations[-1].agent
                    log(WARNING, "Agent %s, node %d: %s", name, node, "; ".join(differences))
            except FBOError as error:
                refused[node] = str(error)[:_MAX_REASON]
        self._refuse(refused)
        return sorted(registrations, key=lambda r: (natural_key(r.agent), r.node))

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
        for one in registrations:
            groups.setdefault((one.digest, one.aims), []).append(one)
        fitting = [
            group
            for (digest, aims), group in groups.items()
            if (self.space is None or digest == self.space.digest)
            and (self.aims is None or aims == self.aims_text)
        ]
        best = max(fitting, key=len, default=[])
        others = [one for one in registrations if one not in best]
        enough = len(self.nodes) + len(best) >= wanted
        if others and not (choose and enough):
            if decide:
                self._check_equal(registrations)
            return []
        if not best or not (enough or take_few):
            return []
        self.space = self.space or SearchSpace.from_json(best[0].space)
        self.aims = self.aims or Aims.from_json(best[0].aims)
        self._refuse({one.node: self._misfit(one) for one in others})
        return best

    def _misfit(self, found: Registration) -> str:
        """Return why an agent cannot take part in this study; "" if its space and objectives fit."""
        assert self.space is not None
        if found.digest != self.space.digest:
            differing = differing_parameters([self.space, SearchSpace.from_json(found.space)])
            return (
                f"space: expected digest {self.space.digest[:12]}, got {found.digest[:12]} at agent "
                f"{found.agent}, which differs in {differing}; give this agent the study's search space"
            )
        return "" if found.aims == self.aims_text else self._other_aims(found, f"agent {found.agent}")

    def _check_equal(self, registrations: list[Registration]) -> None:
        """Raise ConfigError if the agents differ in their search spaces, objectives or limits."""
        spaces = {found.digest: SearchSpace.from_json(found.space) for found in registrations}
        begun = ""
        if self.space is not None:
            spaces[self.space.digest] = self.space
            begun = "; the study began with another: use it again, or start a new study"
        if len(spaces) > 1:
            digests = Counter(found.digest for found in registrations).most_common()
            got = "; ".join(
                f"{digest[:12]} at {shorten([r.agent for r in registrations if r.digest == digest])}"
                for digest, _ in digests
            )
            raise ConfigError(
                f"space: expected the same search space at every agent, got {got}; "
                f"they differ in {differing_parameters(list(spaces.values()))}{begun}"
            )
        resumed = self.aims is not None and not self.nodes  # the aims are the journal's
        self.aims = self.aims or Aims.from_json(registrations[0].aims)
        others = [found for found in registrations if found.aims != self.aims_text]
        agents = shorten([found.agent for found in others])
        if others and resumed:
            raise ConfigError(
                f"objectives: expected {self.aims}, with which the study began, got "
                f"{Aims.from_json(others[0].aims)} at {agents}; resume it with the same minimize, objectives "
                "and limits, or start a new study"
            )
        if others:
            raise ConfigError(self._other_aims(others[0], agents))

    def _other_aims(self, found: Registration, agents: str) -> str:
        return (
            f"objectives: expected the same at every agent, got {self.aims or NUMBER} at some and "
            f"{Aims.from_json(found.aims)} at {agents}; give every agent the same app"
        )

    def _admit(self, registrations: Iterable[Registration], connected: Iterable[int]) -> None:
        """Bind agents to their nodes, except those whose id another connected node has registered."""
        by_name: dict[str, list[str]] = {}  # id that is reported -> agents that report it, in order
        for name, agent in self.agents.items():
            by_name.setdefault(agent.registration.agent, []).append(name)
        by_node = {node: name for name, node in self.nodes.items()}
        there = set(connected)
        for one in registrations:
            incarnations = by_name.setdefault(one.agent, [])
            same_name = [self.nodes[name] for name in incarnations if name in self.nodes]
            owners = [node for node in same_name if node != one.node and node in there]
            reason = ""
            if owners:
                reason = (
                    f"agent: expected an id of its own, got {one.agent!r}, which node {owners[0]} has "
                    "already; give each node another `agent` in node_config"
                )
            elif one.fixed and self.needs_all_parameters:
                reason = (
                    f"fixed: expected an agent that tunes all parameters, because "
                    f"{self.needs_all_parameters}, got agent {one.agent} with {len(one.fixed)} fixed ones"
                )
            if reason:
                self._refuse({one.node: reason})
                continue
            memories = {self.agents[name].registration.incarnation: name for name in reversed(incarnations)}
            name, number = memories.get(one.incarnation, one.agent), len(incarnations)
            while one.incarnation not in memories and name in self.agents:
                number += 1
                name = f"{one.agent}~{number}"
            agent = self.agents.setdefault(name, Agent(one))
            if name not in incarnations:
                incarnations.append(name)
                if name != one.agent:
                    text = "Agent %s has lost its memory; it takes part as new agent %s"
                    log(WARNING, text, one.agent, name)
            elif self.nodes.get(name, one.node) != one.node:
                log(INFO, "Agent %s has moved to node %d", name, one.node)
            if (former := by_node.get(one.node, name)) != name:
                del self.nodes[former]
            by_node.pop(self.nodes.get(name, one.node), None)  # where it was before
            by_node[one.node], self.nodes[name], self._in_order = name, one.node, None
            # its operator may have changed what it says of itself
            agent.registration, agent.spent = one, one.spent
            self.refused.pop(one.node, None)
            self.backoff.pop(one.node, None)

    def _refuse(self, reasons: Mapping[int, str]) -> None:
        """Note why nodes do not take part; log each new reason once, with the nodes that it concerns."""
        new: dict[str, list[int]] = {}
        for node, reason in reasons.items():
            if self.refused.get(node) != reason:
                new.setdefault(reason, []).append(node)
        self.refused |= reasons
        for reason, nodes in new.items():
            others = f" and {len(nodes) - 1} more do" if len(nodes) > 1 else " does"
            log(WARNING, "Node %d%s not take part: %s", nodes[0], others, reason)

    # -- who may be asked ------------------------------------------------------------------------

    @property
    def registrations(self) -> dict[str, Registration]:
        """What was registered of each agent at last."""
        return {name: agent.registration for name, agent in self.agents.items()}

    def present(self, connected: Iterable[int]) -> list[str]:
        """Return the agents whose nodes are connected, in natural order."""
        if self._in_order is None:
            self._in_order = sorted(self.nodes, key=natural_key)
        there = set(connected)
        return [name for name in self._in_order if self.nodes[name] in there]

    def willing(self, names: Sequence[str], phase: Phase, server_round: int, seed: int) -> list[str]:
        """Return the agents that may be asked in a half-round.

        Agents without a budget are left out of TRAIN only: later exchanges of a round make no evaluations.
        """
        found, most = [], math.inf if self.num_trials is None else self.num_trials
        for name in names:
            agent = self.agents[name]
            if phase is Phase.TRAIN and (agent.spent or agent.trials >= most):
                continue
            share = 1.0 if phase is Phase.FINISH else agent.registration.participation
            if share == 1.0 or takes_part(seed, name, server_round, share):
                found.append(name)
        return found

    def due(self, names: Sequence[str], server_round: int) -> list[str]:
        """Return the agents without those that rest because they have not replied for some rounds.

        An agent that was silent for three rounds in a row is asked again in the second round after the last
        one, then in the fourth, then in every eighth.
        """
        found = []
        for name in names:
            agent = self.agents[name]
            excess = agent.silent - _SILENT_ROUNDS
            if excess < 0 or server_round >= agent.last + min(2 << excess, _MAX_REST):
                found.append(name)
        return found

    def is_spent(self, name: str, before: int | None = None) -> bool:
        """Return whether an agent has made all evaluations, its own budget's or the study's.

        Parameters
        ----------
        before : only if it had before this round
        """
        agent = self.agents[name]
        spent = agent.spent or (self.num_trials is not None and agent.trials >= self.num_trials)
        return spent and (before is None or agent.answered < before)

    @property
    def tuning(self) -> list[str]:
        """The agents that have a node and tune."""
        return list(self.nodes) if self.targets == "all" else [n for n in self.nodes if n in self.targets]

    @property
    def all_spent(self) -> bool:
        """Whether every agent that tunes has made all its evaluations."""
        return bool(tuning := self.tuning) and all(map(self.is_spent, tuning))

    @property
    def fewest_trials(self) -> int:
        """How many evaluations every agent has made that has some left, or all if none has."""
        made, left, most = [], [], math.inf if self.num_trials is None else self.num_trials
        for name in self.tuning:
            agent = self.agents[name]
            made.append(agent.trials)
            if not agent.spent and agent.trials < most:
                left.append(agent.trials)
        return min(left or made, default=0)

    @property
    def someone_rests(self) -> bool:
        """Whether an agent may be there and get no task: it has no budget left, or wants fewer rounds."""
        return any(map(self.is_spent, self.agents)) or self.longest_pause > 1

    @property
    def longest_pause(self) -> int:
        """Number of rounds of which every agent takes part in one at least."""
        return math.ceil(1.0 / min((one.participation for one in self.registrations.values()), default=1.0))

    def end_line(self, server_round: int) -> str:
        """Return the line of the log that says why the study has ended before its last round."""
        number, others = (
            sum(self.is_spent(name) is spent for name in self.tuning) for spent in (True, False)
        )
        who = "1 agent has" if number == 1 else f"{number} agents have"
        budget = "max_trials" if self.num_trials is None else f"{self.num_trials} each"
        rest = f"; the algorithm has no work for the other {others}" if others else ""
        return f"{who} made all evaluations ({budget}){rest}: the study ends after round {server_round}"

    def stalled_line(self, num_rounds: int) -> str:
        """Return the warning that the study ends although agents have evaluations left."""
        left = [name for name in self.tuning if not self.is_spent(name)]
        return (
            f"{shorten(left)}: expected {self.num_trials} evaluations, got {self.fewest_trials} and no "
            f"further one in {num_rounds} rounds: the study ends without the others"
        )

    def roles(self) -> dict[str, str]:
        """Return the roles of the agents that have one."""
        return {name: one.role for name, one in self.registrations.items() if one.role}

    def shared_outputs(self) -> tuple[str, ...]:
        """Return the outputs of a trial that no operator keeps to itself; () if a trial has only a value."""
        aims = self.aims or NUMBER
        kept = {name for one in self.registrations.values() for name in one.private}
        return tuple(name for name in aims.names if name not in kept) if aims.has_outputs else ()

    def disclosures(self) -> Counter[str]:
        """Return what agents disclose and who chose it -> number of agents, for agents that said so."""
        return Counter(one.disclosure for one in self.registrations.values() if one.disclosure)

    # -- journal ---------------------------------------------------------------------------------

    def for_journal(self) -> dict[str, object]:
        """Return what a resumed run must know of the agents.

        It compares the incarnations, and so recognises an agent that has lost its memory.
        """
        found = self.registrations.items()
        return {
            "agents": {name: [one.agent, one.incarnation, one.key, one.curves] for name, one in found},
            "aims": self.aims_text,
        }

    def restore(self, values: Mapping[str, object]) -> None:
        """Add the agents in the values of `for_journal`; they have no nodes yet."""
        for name, known in cast(dict[str, list[Any]], values["agents"]).items():
            own_name, incarnation, key, curves = known
            found = Registration(
                agent=str(own_name), incarnation=str(incarnation), key=str(key), curves=curves is True
            )
            agent = self.agents.setdefault(str(name), Agent(found))
            agent.registration = found
        self.aims = Aims.from_json(str(values["aims"]))

    @property
    def aims_text(self) -> str:
        """The agents' objectives and limits as JSON."""
        return (self.aims or NUMBER).to_json()
