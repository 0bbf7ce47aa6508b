"""The agents of a study and their nodes: who is there, who may be asked, and what a resumed run must know.

An agent says at registration in which share of the rounds it wants tasks, and in a report that it has used up
its budget of evaluations. The server asks it for no more evaluations. What it has sent stays in use. A round
waits for a silent agent until its timeout, so silent agents are asked less often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, cast

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import Phase, natural_key
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import SearchSpace
from fbo_flower.strategies.registration_message import Registration

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
class StudyAgents:
    """The agents of a study and their nodes.

    Parameters
    ----------
    space : search space of all agents; None before the first registration
    agents : id in this study -> agent; the second incarnation of "3" is "3~2" here
    aims : the agents' objectives and limits, without bounds; None before the first registration
    """

    space: SearchSpace | None
    agents: dict[str, Agent] = field(default_factory=dict)
    aims: Aims | None = None

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
