"""An algorithm as an outsider writes it from docs/add-an-algorithm.md alone: a federated TPE.

It has several summable arrays, scalars in tasks and reports, a barrier and final exchanges of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
import pytest
from contract import SQUARE, check_variant

from fbo_flower import simulate
from fbo_flower.algorithms import (
    Algorithm,
    Content,
    Phase,
    Progress,
    Task,
    Trials,
    TrialsPerRound,
    real,
    summable,
    uniform_point,
)
from fbo_flower.algorithms.options import integer
from fbo_flower.algorithms.records import Federation, ServerResults
from fbo_flower.algorithms.server import Server
from fbo_flower.errors import ConfigError, HookError


@dataclass(frozen=True, kw_only=True)
class Densities(Content):
    """A histogram of good points, an axis a row."""

    good: Annotated[np.ndarray | None, real("D", "bins", low=0.0)] = None
    stage: int = 0  # of the final exchanges
    text: str = ""

    @classmethod
    def report_kind(cls, task):
        return f"stage {cls.of(task).stage}"


@dataclass(frozen=True, kw_only=True)
class Counts(Content):
    good: Annotated[np.ndarray | None, summable("D", "bins", bound=1e4)] = None
    agents: Annotated[np.ndarray | None, summable(1, bound=1.0)] = None
    heard: int = 0  # the stage that the agent was told


@dataclass(frozen=True)
class State:
    progress: Progress = field(default_factory=Progress)
    densities: Densities = field(default_factory=Densities)
    heard: Mapping[str, int] = field(default_factory=dict)
    num_sums: int = 0


@dataclass(frozen=True, kw_only=True)
class FedTPE(TrialsPerRound, Algorithm[State]):
    bins: int = integer(8, 2, 64)
    num_initial: int = integer(4, 1)

    name: ClassVar[str] = "fed-tpe"
    task_content: ClassVar[type[Content]] = Densities
    report_content: ClassVar[type[Content]] = Counts
    barrier: ClassVar[str] = "the histograms are sums over all agents"

    def init(self, federation, rng):
        return State()

    def ask(self, state, phase, server_round, present, rng):
        if phase is Phase.FINISH:
            stage = 1 + max(state.heard.values(), default=0)
            last = replace(state.densities, stage=stage, text=f"stage {stage}")
            told = present if stage <= 3 else []
            return state, {agent: last.task(phase, server_round, 0, 0) for agent in told}
        trials = {agent: state.progress.of(agent) for agent in present if phase is Phase.TRAIN}
        return state, {
            agent: state.densities.task(phase, server_round, trial, self.trials_from(trial))
            for agent, trial in trials.items()
        }

    def tell(self, state, phase, replies):
        heard = {agent: Counts.of(report).heard for agent, report in replies.items()}
        state = replace(state, progress=state.progress.advance(replies), heard={**state.heard, **heard})
        if replies.sum("agents") is None:
            return state
        good = replies.sum("good") / replies.sum("good").sum(axis=1, keepdims=True)
        return replace(state, densities=Densities(good=good), num_sums=state.num_sums + 1)

    def results(self, state):
        return ServerResults(found={"heard": dict(state.heard), "num_sums": state.num_sums})

    def propose(self, task, agent_state, rng):
        told, draws = Densities.of(task), rng()
        if told.good is None:
            return uniform_point(agent_state, draws)
        cells = np.array([draws.choice(self.bins, p=row) for row in told.good])
        return Trials(((cells + draws.random(len(cells))) / self.bins)[None])

    def summarise(self, task, agent_state, rng):
        told = Densities.of(task)
        if told.stage:
            assert told.text == f"stage {told.stage}"
            return Counts(heard=told.stage)
        points, values = agent_state.history.observed()
        if len(values) < 4:
            return Counts()
        best = points[np.argsort(-values)[: len(values) // 3]]
        cells = np.minimum((best * self.bins).astype(int), self.bins - 1)
        counts = np.array([np.bincount(column, minlength=self.bins) + 0.5 for column in cells.T])
        return Counts(good=counts, agents=np.ones(1))


def test_sums_final_exchanges_and_scalars_arrive_with_secure_sums_too():
    plain, secure = (
        simulate("double-sine", agents=3, algorithm=FedTPE(secure_sums=least), num_rounds=4, engine="inline")
        for least in (0, 3)
    )
    for study in (plain, secure):
        found = study.settings["runs"][0]["found"]
        assert found == {"heard": dict.fromkeys("012", 3), "num_sums": 4}
    np.testing.assert_allclose(plain.trials["value"], secure.trials["value"], rtol=0, atol=1e-9)
    for least in (0, 2):
        check_variant(FedTPE(secure_sums=least))


def proposing(points):
    return {"propose": lambda self, task, agent_state, rng: Trials(points)}


def learning(**arrays):
    return {"learn": lambda self, task, state, outcome, rng: state.learn(outcome).write(**arrays)}


def sending(content):
    return {"summarise": lambda self, task, agent_state, rng: content}


def asking(make):
    return {"ask": lambda self, state, phase, r, present, rng: (state, {a: make(phase, r) for a in present})}


WRONG = {
    "no first state": ({"init": lambda self, federation, rng: None}, "init: .*first state, got None"),
    "a number at the end": ({"results": lambda self, state: 3}, "results: expected ServerResults or .*got 3"),
    "no new state": (
        {"tell": lambda self, state, phase, reports: state}, "count trials in `tell`|use replies.sum"
    ),
    "tasks alone": ({"ask": lambda self, state, phase, r, present, rng: {}}, "ask: .*return state, tasks"),
    "task of another phase": (asking(lambda phase, r: Task(Phase.EVALUATE, r, 0, 1)), "got one of evaluate"),
    "no proposal": ({"propose": lambda self, task, agent_state, rng: None}, "propose: .*trial 0, got None"),
    "outside the cube": (proposing(np.full((1, 1), 1.2)), "got 1.2; return Trials.np.clip"),
    "integers": (proposing(np.ones((1, 1), dtype=int)), "got int64; .*dtype=np.float64"),
    "an outcome dropped": ({"learn": lambda self, task, state, outcome, rng: state}, "trial 0 again"),
    "a text kept": (learning(x="a"), "write: expected an array of numbers as x, got the text 'a'"),
    "content of another class": (sending(Densities()), "summarise: .*a Counts.*got a Densities"),
    "another shape": (sending(Counts(good=np.ones(3))), r"summarise: good: .*got \(3,\)"),
    "beyond the bound": (sending(Counts(good=np.full((1, 8), 2e4))), "good: .*between -10000 and 10000"),
    "no end": ({"finished": lambda self, state: None}, "finished: expected True or False, got None"),
    "a misspelt sum": (
        {"tell": lambda self, state, phase, replies: replies.sum("goods") or state},
        "`summable` array of Counts, which are good, agents, got 'goods'",
    ),
    "content of a report": (
        asking(lambda phase, r: Counts(heard=1).task(phase, r, 0, 1)), "fields of Densities, .* got heard"
    ),
}  # fmt: skip


def with_hook(hook):
    return {"report_content": type("Sent", (Counts,), {hook: classmethod(lambda cls, *given: 3)})}


def unread(self, state, phase, replies):
    return replace(state, progress=state.progress.advance(replies))


LOST_IN_A_SUM = {
    "sum's name": (with_hook("sum_name"), "sum_name: expected a text, got 3"),
    "sum's content": (with_hook("sum_content"), "sum_content: expected a dict of arrays, got 3"),
    "unread": (
        {"tell": unread},
        "tell: expected to read the sum over agents, which no report holds",
    ),
}


@pytest.mark.parametrize(
    ("case", "least"),
    [*((case, 0) for case in WRONG), *((case, 2) for case in (*LOST_IN_A_SUM, "another shape"))],
)
def test_a_hook_that_returns_something_else_ends_the_study_with_what_to_write(case, least):
    members, match = (WRONG | LOST_IN_A_SUM)[case]
    algorithm = type("Wrong", (FedTPE,), members)(secure_sums=least)
    with pytest.raises(HookError, match=match):
        simulate("double-sine", agents=2, algorithm=algorithm, num_rounds=3, engine="inline")


def test_a_sum_of_different_tasks_is_refused():
    def ask(self, state, phase, server_round, present, rng):
        tasks = {a: replace(state.densities, text=a).task(phase, server_round, 0, 1) for a in present}
        return state, tasks

    algorithm = type("Wrong", (FedTPE,), {"ask": ask})(secure_sums=2)
    with pytest.raises(ConfigError, match="task of agent 1 than of 0; override `sum_content`"):
        simulate("double-sine", agents=3, algorithm=algorithm, num_rounds=3, engine="inline")


def test_an_algorithm_that_forgets_the_phase_does_not_train_on_after_the_last_round():
    members = asking(lambda phase, r: Densities().task(phase, r, 0, 1))
    server = Server(
        type("Forgetful", (FedTPE,), members)(), Federation(SQUARE, ("0",)), np.random.default_rng(0)
    )
    assert server.ask(Phase.TRAIN, 1, ["0"], np.random.default_rng(0))
    with pytest.raises(HookError, match=r"expected a task without trials for agent 0 .* Phase\.TRAIN"):
        server.ask(Phase.FINISH, 2, ["0"], np.random.default_rng(0))
