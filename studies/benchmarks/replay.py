"""Record steps of a real run, so that benchmarks can repeat them.

Algorithms are functions of their state, and an agent's state is sent with its message, so a recorded step can
be repeated with the same input.
"""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.records import Phase
from fbo_flower.simulation import InProcessGrid, problem_app
from fbo_flower.strategies import STRATEGIES
from fbo_flower.strategies.exchange import ReplyProgress
from studies.benchmarks.scenes import Hills

NUM_STEPS = 4  # rounds that are recorded
PULLS = 100  # pulls of a bandit between two messages
BANDITS = ("pf-pne", "fed-pne", "local-pne", "hct")
BY_ROUNDS = (*BANDITS, "co-kg", "fn-ucb")  # their history comes from this study; the others' from before it


@dataclass
class Server:
    """An algorithm that records the arguments of the last `ask` and `tell`."""

    inner: Any
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    told: list[tuple[Any, ...]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def for_outputs(self, names: tuple[str, ...]) -> Server:
        """Return this recorder; objectives of these steps return one number."""
        return self

    def ask(self, state: Any, phase: Phase, server_round: int, present: Any, rng: Any) -> Any:
        """Ask the algorithm and record the arguments."""
        kept = (state, phase, server_round, present, copy.deepcopy(rng))
        answer = self.inner.ask(state, phase, server_round, present, rng)
        if phase is Phase.TRAIN and answer[1]:
            self.asked = [*self.asked, kept][-NUM_STEPS:]
        return answer

    def tell(self, state: Any, phase: Phase, reports: Any) -> Any:
        """Tell the algorithm and record the arguments."""
        if phase is Phase.TRAIN:
            self.told = [*self.told, (state, phase, reports)][-NUM_STEPS:]
        return self.inner.tell(state, phase, reports)


class Recorder(InProcessGrid):
    """A grid that records the last messages to the first four nodes, and their contexts before."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.steps: dict[int, list[bytes]] = {node: [] for node in list(self.contexts)[:4]}

    def _reply(self, waiting: Sequence[tuple[str, Message]], progress: ReplyProgress) -> None:
        for _, message in waiting:
            node = message.metadata.dst_node_id
            if message.metadata.message_type.startswith("train") and node in self.steps:
                kept = pickle.dumps((message, self.contexts[node]))
                self.steps[node] = [*self.steps[node], kept][-NUM_STEPS:]
        super()._reply(waiting, progress)


@dataclass(frozen=True)
class Scene:
    """The last rounds of a study, to be repeated.

    Parameters
    ----------
    app : the ClientApp
    messages : pickled messages with the contexts before them
    server : the algorithm with its recorded arguments
    """

    app: Any
    messages: tuple[bytes, ...]
    server: Server

    def agent_steps(self) -> list[Callable[[], object]]:
        """Return the agents' steps as functions; each may be called once."""

        def step(data: bytes) -> Callable[[], object]:
            message, context = pickle.loads(data)
            return lambda: self.app(message, context)

        return [step(data) for data in self.messages]

    def server_steps(self) -> list[Callable[[], object]]:
        """Return the server's steps, `ask` and `tell` of a round, as functions; each may be called once."""

        def step(asked: tuple[Any, ...], told: tuple[Any, ...]) -> Callable[[], object]:
            *before, rng = asked
            own = copy.deepcopy(rng)

            def run() -> object:
                self.server.inner.ask(*before, own)
                return self.server.inner.tell(*told)

            return run

        return [step(a, t) for a, t in zip(self.server.asked, self.server.told, strict=False)]


def options_of(algorithm: str, history: int) -> dict[str, Any]:
    """Return options with which an algorithm still runs at this length of history."""
    if algorithm in BANDITS:
        budget = PULLS * (history + NUM_STEPS + 2)
        return {"budget": budget, "max_evaluations_per_round": PULLS}
    return {}


def scene(algorithm: str, history: int, dimension: int, agents: int, mesh: int | None = None) -> Scene:
    """Run a study up to this length of history and record its last rounds; `mesh` is Co-KG's option."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    problem = Hills(agents, 0, dimension=dimension)
    by_rounds = algorithm in BY_ROUNDS
    options: dict[str, Any] = options_of(algorithm, history) | ({} if mesh is None else {"mesh": mesh})
    made = make_algorithm(algorithm, options)
    app = problem_app(problem, made, 0, problem.prior(0 if by_rounds else history))
    strategy = STRATEGIES[algorithm](num_agents=agents, seed=0, **options)
    # A class of its own, because what an algorithm can do is checked once per class.
    server = type("Server", (Server,), {})(strategy.algorithm)
    strategy._given = server  # type: ignore[assignment]  # it has the same methods
    grid = Recorder(app, agents)
    strategy.start(grid, num_rounds=(history if by_rounds else 0) + NUM_STEPS + 1)
    messages = [data for node in grid.steps.values() for data in node]
    return Scene(app, tuple(messages), server)
