"""The agents of a study and their nodes: who is there, who may be asked, and what a resumed run must know.

What a node reports about its agent when it registers is checked here, before anything uses it.
An agent says at registration in which share of the rounds it wants tasks, and in a report that it has used up
its budget of evaluations. The server asks it for no more evaluations. What it has sent stays in use. A round
waits for a silent agent until its timeout, so silent agents are asked less often.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from flwr.app import RecordDict

from fbo_flower import wire
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import Phase, natural_key
from fbo_flower.algorithms.registry import CHOOSERS, DISCLOSURES
from fbo_flower.errors import ConfigError, WireError, printable
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.held import check_names
from fbo_flower.space.space import SearchSpace
from fbo_flower.wire.checks import check_names as check_entries
from fbo_flower.wire.checks import show

_KNOWN = {
    "agent", "aims", "curves", "digest", "disclose", "disclose_by", "end", "fixed", "flwr", "incarnation",
    "journal", "key", "participation", "private", "python", "role", "schema", "space", "spent", "time",
    "version",
}  # fmt: skip


@dataclass(frozen=True)
class Registration:
    """What one node reports about its agent.

    Parameters
    ----------
    agent : the id that it reports
    incarnation : token of its memory; "" for an agent that sent none
    key : its signed public keys in hexadecimal digits; "" for an agent that sent none
    disclosure : what the agent discloses and who chose it, such as "none, default"; "" if it did not say
    wants_end : whether it asks for a message when the study has ended
    aims : its objectives and limits as JSON, without bounds
    spent : whether it has used up its budget of evaluations
    participation : share of the rounds in which it wants tasks
    fixed : parameters that it does not tune
    private : outputs that its operator keeps there
    curves : whether it understands tasks with pooled curves
    """

    node: int = 0
    agent: str = ""
    digest: str = ""
    space: str = ""
    role: str = ""
    incarnation: str = ""
    key: str = ""
    disclosure: str = ""
    wants_end: bool = False
    aims: str = NUMBER.to_json()
    spent: bool = False
    participation: float = 1.0
    fixed: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    curves: bool = False


def _are_names(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) <= MAX_NAMES and all(isinstance(name, str) for name in value)
    )


MAX_SKEW = 5.0  # seconds; a larger difference between two clocks is reported
MAX_NAMES = 10_000  # parameters or outputs in a list
_MAX_NAME = 100  # characters of an agent's id and of the token of its memory
_OPTIONAL: dict[str, tuple[Any, Callable[[Any], bool], str]] = {  # entry -> default, check, expectation
    "incarnation": (
        "",
        lambda text: isinstance(text, str) and len(text) <= _MAX_NAME,
        f"a text of at most {_MAX_NAME} characters",
    ),
    "key": (
        "",
        lambda text: isinstance(text, str) and re.fullmatch("([0-9a-f]{256})?", text) is not None,
        "signed public keys of 128 bytes in hexadecimal digits, as this version of fbo-flower sends them",
    ),
    "aims": (
        NUMBER.to_json(),
        lambda text: isinstance(text, str) and len(text) <= wire.MAX_TEXT,
        f"a text of at most {wire.MAX_TEXT} characters",
    ),
    "participation": (
        1.0,
        lambda share: isinstance(share, float) and 1e-3 <= share <= 1.0,
        "a number from 0.001 to 1",
    ),
    "fixed": ([], _are_names, "a list of names of parameters"),
    "private": ([], _are_names, "a list of names of outputs"),
}


def read_registration(node: int, content: RecordDict) -> Registration:
    """Return a node's registration; raise ConfigError if a field is missing or malformed."""
    config: Mapping[str, Any] = content.get("config", {})
    if config.get("schema") != wire.SCHEMA_VERSION:
        raise ConfigError(
            f"schema: expected version {wire.SCHEMA_VERSION}, got {config.get('schema')!r}; install the same "
            "version of fbo-flower on server and agents"
        )
    try:
        check_entries(content, {"config"}, "registration")
        check_entries(config, _KNOWN, "registration")
    except WireError as error:
        raise ConfigError(f"{error}; install the same version of fbo-flower on server and agents") from error
    texts = {key: {"role": "", **config}.get(key) for key in ("agent", "digest", "space", "role")}
    malformed = [k for k, text in texts.items() if not isinstance(text, str) or len(text) > wire.MAX_TEXT]
    if malformed:
        raise ConfigError(
            f"registration: expected texts of at most {wire.MAX_TEXT} characters for {', '.join(texts)}; "
            f"missing or malformed: {', '.join(malformed)}"
        )
    agent, digest, space_json, role = map(str, texts.values())
    said = {name: config.get(name, default) for name, (default, _, _) in _OPTIONAL.items()}
    for name, (_, is_valid, expected) in _OPTIONAL.items():
        if not is_valid(said[name]):
            raise ConfigError(f"registration: {name}: expected {expected}, got {show(said[name])}")
    if not 0 < len(agent) <= _MAX_NAME or not agent.isprintable():
        raise ConfigError(f"agent: expected 1 to {_MAX_NAME} printable characters, got {agent[:_MAX_NAME]!r}")
    space = _parsed_space(space_json)
    if space.digest != digest:
        raise ConfigError(
            f"digest: expected that of the search space in the same message, {space.digest}, "
            f"got {digest[:64]}"
        )
    said["fixed"] = tuple(said["fixed"])
    check_names(space, said["fixed"])
    aims = Aims.from_json(said["aims"]).keeping(said["private"])
    said |= {"aims": aims.to_json(), "private": aims.private}
    said |= {name: config.get(name) is True for name in ("spent", "curves")}
    chosen = config.get("disclose"), config.get("disclose_by")
    disclosure = f"{chosen[0]}, {chosen[1]}" if chosen[0] in DISCLOSURES and chosen[1] in CHOOSERS else ""
    return Registration(
        node, agent, digest, space_json, role,
        disclosure=disclosure, wants_end=config.get("end") is True, **said,
    )  # fmt: skip


@lru_cache(maxsize=4)  # most agents have the same space
def _parsed_space(text: str) -> SearchSpace:
    return SearchSpace.from_json(text)


def all_refused(refused: Mapping[int, str]) -> str:
    """Return the text of the error that no node takes part."""
    reasons = Counter(refused.values()).most_common()
    count, others = len(refused), len(reasons) - 1
    who = "the only node refuses" if count == 1 else f"all {count} nodes refuse"
    more = f"; {others} other reasons are in the log" if others else ""
    return f"agents: expected nodes that take part, {who}: {reasons[0][0]}{more}"


def too_few(
    expected: int | None, got: int, connected: int, seconds: float, refused: Mapping[int, str]
) -> str:
    """Return the text of the error that too few agents have registered."""
    text = f"agents: expected {expected or 'at least 1'}, only {got} registered after {seconds:g} s"
    if connected > got + len(refused):
        text += f"; {connected - got - len(refused)} connected nodes did not answer"
    if refused:
        text += f"; {len(refused)} were refused, the first because: {next(iter(refused.values()))}"
    if connected < (expected or 1):
        text += "; start more SuperNodes"
        if expected:
            text += f" or set num-supernodes={expected}"
    if connected > len(refused) or connected < (expected or 1):
        text += "; devices may start slowly: raise wait_seconds (in a run config wait-seconds)"
    return text


def shorten(agents: list[str]) -> str:
    """Return the names of the first agents, for a message."""
    names = ", ".join(agents[:5])
    return f"agent {names}" if len(agents) == 1 else f"agents {names}{', ...' if len(agents) > 5 else ''}"


def spaces_of(groups: Mapping[str, list[str]]) -> str:
    """Return which agents have which search space; `groups` maps a digest to agents, largest group first."""
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return "; ".join(f"{digest[:12]} at {shorten(agents)}" for digest, agents in ordered)


def differing_parameters(spaces: Sequence[SearchSpace]) -> str:
    """Return the names of the parameters in which search spaces differ, or that only their order does."""
    names = dict.fromkeys(name for space in spaces for name in space.parameters)
    first = spaces[0].parameters
    differ = [name for name in names if any(s.parameters.get(name) != first.get(name) for s in spaces)]
    if not differ:
        return "the order of the parameters"
    return ", ".join(name[:40] for name in differ[:5]) + ", ..." * (len(differ) > 5)


def skew(node: Mapping[str, Any]) -> float:
    """Return by how many seconds, at least, a node's clock is ahead of the server's; negative: behind.

    The node read its clock after the server had sent the question and before the server got the answer. A
    time between those two counts as right, 0. What is no time counts as right too: other checks refuse it.
    """
    time = node.get("time")
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        return 0.0
    return max(0.0, time - float(node["heard"])) - max(0.0, float(node["sent"]) - time)


def node_differences(node: Mapping[str, Any], server: Mapping[str, Any]) -> list[str]:
    """Return in which versions a node differs from the server, and by how much its clock is off.

    Parameters
    ----------
    node : the properties that the node reports, and `sent` and `heard`, see `skew`
    server : `version` and `flwr` of the server
    """
    found = [
        f"{title} {printable(str(node[name]))[:40]}, the server has {server[name]}"
        for name, title in (("version", "fbo-flower"), ("flwr", "flwr"))
        if name in node and node[name] != server[name]
    ]
    if abs(seconds := skew(node)) > MAX_SKEW:
        found.append(f"its clock is {seconds:+.0f} s off the server's")
    return found


_SILENT_ROUNDS = 3  # silent rounds in a row after which an agent is asked less often
_LONGEST_REST = 8  # rounds between two tasks of a silent agent


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
    said : what it said at its last registration; of an agent in a journal, what the journal holds
    node : the node on which it runs; None: it has not connected since the run was resumed
    spent : whether it has said that its budget of evaluations is used up
    trials, answered : the first trial that no valid report had, and the round of its last valid report
    suspect : whether it has failed, so that its node must register again
    silent, last : number of silent rounds in a row, and the last one
    """

    said: Registration
    node: int | None = None
    spent: bool = False
    trials: int = 0
    answered: int = 0
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
class StudyAgents:
    """The agents of a study and their nodes.

    Parameters
    ----------
    space : search space of all agents; None before the first registration
    agents : id in this study -> agent; the second incarnation of "3" is "3~2" here
    aims : the agents' objectives and limits, without bounds; None before the first registration
    targets : the agents that tune; "all": every agent
    num_trials : evaluations that the study asks of each agent; None: any number
    """

    space: SearchSpace | None
    agents: dict[str, Agent] = field(default_factory=dict)
    aims: Aims | None = None
    targets: str | Sequence[str] = "all"
    num_trials: int | None = None

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
            spent = phase is Phase.TRAIN and self.is_spent(name)
            if not spent and takes_part(seed, name, server_round, share):
                found.append(name)
        return found

    def due(self, names: Sequence[str], server_round: int) -> list[str]:
        """Return the agents without those that rest because they have not replied for some rounds."""
        return [name for name in names if self.agents[name].is_due(server_round)]

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
        return [name for name in self.nodes if self.targets == "all" or name in self.targets]

    @property
    def all_spent(self) -> bool:
        """Whether every agent that tunes has made all its evaluations."""
        return bool(self.tuning) and all(map(self.is_spent, self.tuning))

    @property
    def fewest_trials(self) -> int:
        """How many evaluations every agent has made that has some left, or all if none has."""
        left = [name for name in self.tuning if not self.is_spent(name)] or self.tuning
        return min((self.agents[name].trials for name in left), default=0)

    @property
    def someone_rests(self) -> bool:
        """Whether an agent may be there and get no task: it has no budget left, or wants fewer rounds."""
        return any(map(self.is_spent, self.agents)) or self.longest_pause > 1

    @property
    def longest_pause(self) -> int:
        """Number of rounds of which every agent takes part in one at least."""
        return math.ceil(1.0 / min((agent.said.participation for agent in self.agents.values()), default=1.0))

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
            "aims": self.aims_text,
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

    @property
    def aims_text(self) -> str:
        """The agents' objectives and limits as JSON."""
        return (self.aims or NUMBER).to_json()
