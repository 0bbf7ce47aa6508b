"""What every algorithm must hold. Subclass `AlgorithmContract`, give `make()`, and add a test against theory.

A `Run` takes the steps of a `StudyRun` and gives its tasks to agents, as messages. It decides who is there,
whose replies are lost and in which order they come.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials, natural_key
from fbo_flower.algorithms.server import Server, informed
from fbo_flower.clients import client_app
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.guards import task_schema
from fbo_flower.clients.memory import STATE_KEY, StateMemory, agent_state_from_bytes, agent_state_to_bytes
from fbo_flower.clients.model_site import SiteOptions
from fbo_flower.clients.objective import ObjectiveContext, evaluate
from fbo_flower.clients.site import Judgement, Shipment
from fbo_flower.clients.site_agent import SiteAgent
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.strategies import STRATEGIES
from fbo_flower.strategies.node_report import Registration
from fbo_flower.strategies.recorder import Recorder
from fbo_flower.strategies.registration import Agent as Registered
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.strategies.replies import NO_REPLY, Reply
from fbo_flower.strategies.settings import StrategySettings
from fbo_flower.strategies.study_run import StudyRun, server_of
from fbo_flower.study import Study
from fbo_flower.wire.flower_records import from_records, to_records

STUDY = "study"
SQUARE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
MIXED = SearchSpace(
    {
        "C": Float(1e-3, 1e3, log=True),
        "kernel": Categorical(["rbf", "linear", "poly"]),
        "degree": Int(2, 5, active_when={"kernel": "poly"}),
        "gamma": Float(1e-4, 10.0, log=True, active_when={"kernel": ["rbf", "poly"]}),
        "size": Ordinal(["small", "medium", "large"]),
    }
)
FINITE = SearchSpace({"kind": Categorical(["a", "b"]), "count": Int(1, 2)})  # 4 configurations

Objective = Callable[[dict[str, Any], ObjectiveContext], Any]


def hills(space: SearchSpace, noise: float = 0.05) -> Objective:
    """One smooth hill per agent, with noise from the trial's own generator."""

    def objective(config, context):
        centre = generator(5, "centre", context.agent).random(space.dimension)
        distance = float(((space.encode(config) - centre) ** 2).sum())
        return 3.0 - distance + noise * context.rng.standard_normal()

    return objective


@dataclass
class Agent:
    """An agent with its memory in a node's state. Like a stateless worker, it is made anew for every task.

    `space` : its own; a `HeldSpace` if some parameters are fixed
    """

    name: str
    space: SearchSpace
    objective: Objective
    seed: int
    prior: Trials
    server: Server
    role: str = ""  # of a site: the model that it trains is its point
    num_evaluations: int = 0
    memory: RecordDict = field(default_factory=RecordDict)
    num_trials: int = 0  # of the task under way

    def __post_init__(self) -> None:
        self.log = self.prior  # all that was evaluated, whatever the algorithm keeps of it

    @property
    def client(self) -> TuningAgent:
        context = Context(1, int(self.name), {"partition-id": int(self.name)}, self.memory, {})
        given: dict[str, Any] = {
            "seed": self.seed,
            "disclose": "trials",
            "algorithms": [type(self.server.algorithm)],
        }
        if self.role:
            options = SiteOptions(query_budget=0)
            return SiteAgent(cast(Any, self), options, self.space, context, role=self.role, **given)
        prior = {self.name: (self.prior.points, self.prior.values)} if len(self.prior) else None
        shared, fixed = getattr(self.space, "whole", self.space), getattr(self.space, "fixed", None)
        return TuningAgent(self.evaluate, shared, context, prior=prior, fixed=fixed, **given)

    @property
    def agent_state(self) -> AgentState:
        known = StateMemory(self.memory).study(STUDY)
        if known is None:
            return AgentState(self.space, self.prior)
        return agent_state_from_bytes(known.state, self.space)

    @agent_state.setter
    def agent_state(self, agent_state: AgentState) -> None:
        memory, data = StateMemory(self.memory), agent_state_to_bytes(agent_state)
        memory.begin(STUDY, self.seed, data)
        memory.finish(STUDY, "", 0, data, b"")

    def answer(self, algorithm: Algorithm[Any], task: Task) -> Report:
        """Return the report that the agent sends."""
        envelope = wire.Envelope(
            STUDY, self.name, self.space.digest, algorithm.name, canonical_json(algorithm.options())
        )
        return self.report(task, envelope, self.reply(task, envelope))

    def reply(self, task: Task, envelope: wire.Envelope) -> wire.Packed:
        """Return the agent's reply to the message of a task, both as they cross the wire."""
        self.num_trials = task.num_trials
        message = from_records(to_records(wire.encode_task(task, envelope)))
        return from_records(to_records(self.client.answer(message)))

    def report(self, task: Task, envelope: wire.Envelope, reply: wire.Packed) -> Report:
        schema = self.server.report_schema()
        return wire.decode_report(reply, task, envelope, schema, self.space.dimension)[0]

    def evaluate(self, config: dict[str, Any], context: ObjectiveContext) -> Any:
        """Evaluate the objective, and log the trial."""
        self.num_evaluations += 1
        value, failure = math.nan, "failed"
        try:
            found = self.objective(config, context)
            if math.isfinite(found):
                value, failure = float(found), ""
            return found
        finally:
            if self.num_trials:
                row = self.space.encode(config)[np.newaxis], np.array([value]), np.array([context.trial])
                self.log = self.log.concat(Trials(*row, np.array([failure], dtype=object)))

    # -- what a `SiteAgent` asks of its `ModelSite` ----------------------------------------------

    is_rate = False

    def train(self, config: dict[str, Any], context: ObjectiveContext) -> Shipment:
        (value,) = evaluate(self.evaluate, config, context)
        model = np.frombuffer(self.space.encode(config).tobytes(), dtype=np.uint8)
        return Shipment(-value, 10 + int(self.name), model)

    def judge(self, model: np.ndarray, rows: str, context: ObjectiveContext) -> Judgement:
        config = self.space.decode(np.frombuffer(model.tobytes()))
        (value,) = evaluate(self.evaluate, config, context)
        return Judgement(-value, 10 + int(self.name))


@dataclass
class Exchange:
    """One task and what came back; `report` is None where it was lost."""

    phase: Phase
    server_round: int
    agent: str
    task: Task
    report: Report | None
    history: Trials


def step(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method of an algorithm; the last argument is its random generator."""
    *others, rng = arguments
    return method(*others, lambda: rng)


@dataclass
class Run:
    """A study that is played by hand: who is there, and whose replies are lost."""

    study: StudyRun
    agents: dict[str, Agent]
    server_round: int = 0
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def server(self) -> Server:
        return self.study.server

    @property
    def algorithm(self) -> Algorithm[Any]:
        return self.server.algorithm

    @property
    def state(self) -> Any:
        return self.server.state

    @state.setter
    def state(self, state: Any) -> None:
        self.server.state = state

    @staticmethod
    def begin(
        algorithm: Algorithm[Any],
        *,
        space: SearchSpace = SQUARE,
        num_agents: int = 3,
        seed: int = 1,
        objective: Objective | None = None,
        late: Iterable[str] = (),
        prior: dict[str, Trials] | None = None,
    ) -> Run:
        names, objective = [str(i) for i in range(num_agents)], objective or hills(space)
        histories = dict.fromkeys(names, Trials.empty(space.dimension)) | (prior or {})
        roles = {n: "curator" if i else "openbox" for i, n in enumerate(names) if algorithm.roles}
        algorithm.check(space)
        federation = Federation(space, tuple(n for n in names if n not in late), roles)
        server = server_of(algorithm, federation, seed)
        agents = {n: Agent(n, space, objective, seed, histories[n], server, roles.get(n, "")) for n in names}
        registry = AgentRegistry(space)
        for name, agent in agents.items():
            said = agent.client.get_properties({"key": bool(algorithm.secure_sums)})
            registry.agents[name] = Registered(Registration(agent=name, key=said.get("key", "")))
        settings, recorder = StrategySettings(seed=seed, label="contract"), Recorder("contract", space)
        study = StudyRun(server, settings, seed, STUDY, registry, recorder)
        study.note_agents()
        return Run(study, agents)

    def step(
        self, present: Iterable[str] | None = None, lost: Iterable[str] = (), backwards: bool = False
    ) -> Run:
        """Play one round; the replies of `lost` agents do not arrive, though they did the work."""
        self.server_round += 1
        for phase in self.server.phases:
            self.half(phase, present, lost, backwards)
        return self

    def half(self, phase: Phase, present=None, lost=(), backwards: bool = False) -> None:
        study, names = self.study, sorted(self.agents if present is None else present, key=natural_key)
        with single_thread():
            study.ask(phase, self.server_round, names)
            for name, sent in study.sent.items():
                agent, task = self.agents[name], sent.task
                packed = agent.reply(task, sent.envelope)
                report = None if name in lost else agent.report(task, sent.envelope, packed)
                self.exchanges.append(Exchange(phase, self.server_round, name, task, report, agent.log))
                if report is not None:
                    study.replies[name] = Reply(packed)
            if backwards:
                study.sent = dict(reversed(study.sent.items()))
            study.close(phase, self.server_round)
        refused = study.recorder.reasons.keys() - {NO_REPLY.kind}
        assert not refused, f"the server refused a report: {refused}"

    def steps(self, count: int, **options: Any) -> Run:
        for _ in range(count):
            self.step(**options)
        return self

    def fork(self) -> Run:
        """Return a run that goes on from here and leaves this one as it is."""
        return copy.deepcopy(self)

    def thaw(self, algorithm: Algorithm[Any]) -> None:
        """Go on as a server does that was stopped, and has only what was stored."""
        self.server.state = pickle.loads(pickle.dumps(self.server.state))
        self.study.algorithm = self.server.algorithm = algorithm

    def histories(self) -> dict[str, Trials]:
        return {name: agent.log for name, agent in self.agents.items()}


def over_grid(
    name: str,
    objective: Objective,
    space: SearchSpace,
    num_agents: int,
    num_rounds: int | None = None,
    *,
    seed: int = 0,
    faults: Any = None,
    disclose: str = "trials",
    journal: Path | None = None,
    **options: Any,
) -> Study:
    """Run an algorithm's strategy over Flower's messages in this process; return the study."""
    strategy = STRATEGIES[name](num_agents=num_agents, seed=seed, **options)
    app = client_app(objective, space, seed=seed, disclose=disclose)
    grid = InProcessGrid(app, num_agents, faults=faults)
    return strategy.start(grid, num_rounds=num_rounds, journal=journal).study


def differences(a: object, b: object, where: str = "") -> Iterator[str]:
    """Yield where two values differ, to the last bit, whatever they are made of; keys have no order."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        bits = [x.tolist() if x.dtype.hasobject else x.tobytes() for x in (a, b)]
        if a.dtype != b.dtype or a.shape != b.shape or bits[0] != bits[1]:
            one, two = (f"{x.dtype}{x.shape} {x.ravel()[:4]}..." for x in (a, b))
            yield f"{where}: {one} is not {two}"
    elif type(a) is not type(b) and not (hasattr(a, "keys") and hasattr(b, "keys")):
        yield f"{where}: a {type(a).__name__} is not a {type(b).__name__}"
    elif is_dataclass(a) and not isinstance(a, SearchSpace | type):
        for f in fields(a):
            yield from differences(getattr(a, f.name), getattr(b, f.name), f"{where}.{f.name}")
    elif hasattr(a, "keys"):
        if set(a) != set(b):
            yield f"{where}: keys {list(a)} are not {list(b)}"
        for key in a.keys() & b.keys():
            yield from differences(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, list | tuple):
        if len(a) != len(b):
            yield f"{where}: {len(a)} entries are not {len(b)}"
        for i, pair in enumerate(zip(a, b, strict=False)):
            yield from differences(*pair, f"{where}[{i}]")
    elif np.float64(a).tobytes() != np.float64(b).tobytes() if isinstance(a, float) else a != b:
        yield f"{where}: {a!r} is not {b!r}"


def same(a: object, b: object) -> bool:
    """Equal to the last bit, whatever they are made of."""
    return not any(differences(a, b))


def assert_same(a: object, b: object, what: str, why: str) -> None:
    """Fail with the first difference and the reason why there must be none."""
    found = next(differences(a, b, what), None)
    assert found is None, f"{found}. {why}"


def unmasked(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return exchanges without what a secure sum adds, which is drawn anew each time."""

    def without(message: Any) -> Any:
        arrays, values = (
            {name: value for name, value in content.items() if not name.startswith("secure.")}
            for content in (message.arrays, message.values)
        )
        return replace(message, arrays=arrays, values=values)

    return [
        replace(e, task=without(e.task), report=None if e.report is None else without(e.report))
        for e in exchanges
    ]


def leaks(report: Report, history: Trials) -> bool:
    """Whether a report repeats a coordinate or a value of the history, plain or standardised."""
    values = history.values[np.isfinite(history.values)]
    secrets = np.concatenate([history.points.ravel(), values, standardise(values)])
    secrets = secrets[~np.isin(secrets, (0.0, 0.5, 1.0))]
    sent = [np.asarray(array, dtype=np.float64).ravel() for array in report.arrays.values()]
    return any(np.isclose(array[:, None], secrets, rtol=1e-9, atol=1e-12).any() for array in sent)


FAILURES: tuple[Callable[[], Any], ...] = (
    lambda: 1 / 0, lambda: float("nan"), lambda: -np.inf, lambda: np.ones(2)[2]
)  # fmt: skip


@cache
def played(algorithm: Algorithm[Any], num_rounds: int, space: SearchSpace = SQUARE) -> Run:
    """The run of three agents that many tests look at; who goes on with it takes a `fork`."""
    return Run.begin(algorithm, space=space).steps(num_rounds)


class AlgorithmContract:
    """Subclass, and return the algorithm from `make`.

    `num_rounds` : of most tests; large enough for the algorithm to do all that it does
    `smallest` : agents of the smallest federation it allows
    `reports_values` : the paper lets evaluations travel
    `largest` : scale of an agent's values that the messages can hold
    """

    num_rounds: ClassVar[int] = 5
    smallest: ClassVar[int] = 1
    reports_values: ClassVar[bool] = False
    largest: ClassVar[float] = 1e307

    @pytest.fixture(autouse=True)
    def one_thread(self):
        """Compute as agents and strategies do: more BLAS threads may change the last bits."""
        with single_thread():
            yield

    def make(self) -> Algorithm[Any]:
        raise NotImplementedError

    def played(self, space: SearchSpace = SQUARE) -> Run:
        return played(self.make(), self.num_rounds, space)

    # -- points and randomness -----------------------------------------------------------------

    @pytest.mark.parametrize("space", [SQUARE, MIXED, FINITE], ids=["square", "mixed", "finite"])
    def test_points_stay_in_the_cube_and_stand_for_their_configurations(self, space):
        run = self.played(space)
        for history in run.histories().values():
            assert ((history.points >= 0) & (history.points <= 1)).all(), "a point left the cube: clip it"
            np.testing.assert_array_equal(space.snap(history.points), history.points)
            assert history.trials.tolist() == list(range(len(history))), "trials are not 0, 1, 2, ..."
        longest = max(map(len, run.histories().values()))
        assert longest > 0, "nothing was evaluated"
        if space is FINITE:
            assert longest > FINITE.num_configs, "it stops once every configuration was tried: repeat one"

    def test_the_seed_decides_the_run_also_when_it_is_resumed_and_replies_come_in_another_order(self):
        whole, run = self.played(), Run.begin(self.make())
        for _ in range(self.num_rounds):
            run.thaw(self.make())
            run.step(backwards=True)
        why = "The other run was resumed after every round, from what the states hold, and `tell` got its "
        why += "reports backwards: draw from `rng` only, and sort by agent before you sum or merge."
        assert_same(unmasked(whole.exchanges), unmasked(run.exchanges), "exchanges", why)
        assert_same(whole.state, run.state, "state", why)
        other = Run.begin(self.make(), seed=2).step()
        first = [e for e in whole.exchanges if e.server_round == 1]
        assert not same(unmasked(first), unmasked(other.exchanges)), (
            "seeds 1 and 2 gave the same points: use `rng`"
        )

    # -- values, not objects with a past -------------------------------------------------------

    def test_nothing_that_is_handed_in_is_changed(self):
        algorithm = self.make()
        run = Run.begin(algorithm)
        for _ in range(self.num_rounds):
            state, before = run.state, copy.deepcopy(run.state)
            run.step()
            assert_same(state, before, "state", "Do not write into the server's state.")
        for exchange in run.exchanges[-3:]:
            handed_in = run.state, exchange.task, exchange.report
            before = copy.deepcopy(handed_in)
            if exchange.phase in algorithm.phases:
                replies = Replies({exchange.agent: exchange.report}, algorithm.report_content)
                algorithm.tell(run.state, exchange.phase, replies)
            run.agents[exchange.agent].answer(algorithm, exchange.task)
            why = "A repeated task or `tell` wrote into what it was given; copy before writing."
            assert_same(before, handed_in, "(state, task, report)", why)

    def test_ask_twice_gives_the_same_tasks(self):
        algorithm, run = self.make(), self.played()
        names = list(run.agents)
        uniform = uniform_from(generator(3, "secret"))
        draws = algorithm.secret_draws(run.state, Phase.TRAIN, 9, names, uniform)
        state = informed(run.state, drawn=draws)
        one, two = (algorithm.ask(state, Phase.TRAIN, 9, names, generator(3, "ask")) for _ in range(2))
        assert_same(one, two, "(state, tasks)", "`ask` must depend on its arguments alone.")

    def test_options_survive_json(self):
        algorithm = self.make()
        again = type(algorithm).from_options(json.loads(json.dumps(algorithm.options())))
        assert again == algorithm, f"options changed on their way through JSON: {again} is not {algorithm}"

    # -- who is there --------------------------------------------------------------------------

    def test_smallest_federation_works(self):
        run = Run.begin(self.make(), num_agents=self.smallest).steps(self.num_rounds)
        longest = max(map(len, run.histories().values()))
        assert longest >= self.num_rounds, f"{self.smallest} agents alone made only {longest} trials"

    def lossy(self, *, resumed: bool = False) -> Run:
        """Four agents; nobody's report arrives in the first two rounds, later four in ten are lost."""
        run, chance = Run.begin(self.make(), num_agents=4), np.random.default_rng(0)
        for number in range(self.num_rounds + 3):
            if resumed:
                run.thaw(self.make())
            lost = [name for name in run.agents if number < 2 or chance.random() < 0.4]
            run.step(lost=lost, backwards=resumed)
        return run.step(backwards=resumed)

    def test_lost_reports_are_asked_for_again_and_nothing_is_done_twice(self, run: Run | None = None):
        run = run or self.lossy()
        first, again = ([e.task.trial for e in run.exchanges if e.server_round == r] for r in (1, 2))
        assert first == again, (
            "no report arrived, so `ask` must ask for the same trials again; count them in `tell`"
        )
        for name, agent in run.agents.items():
            history = agent.log
            assert history.trials.tolist() == list(range(len(history))), f"agent {name}: a trial is missing"
            assert agent.num_evaluations == len(history), (
                f"agent {name} evaluated {agent.num_evaluations} times for {len(history)} trials: a task "
                "that comes again was done again; compare `agent_state.next_trial` with `task.end`"
            )
            told = [e for e in run.exchanges if e.agent == name and e.report is not None]
            reported = [t for e in told for t in range(e.report.trial, e.report.trial + e.report.num_trials)]
            assert reported == list(range(len(history))), "every trial is told once, in order"

    def test_who_comes_late_takes_part_and_who_is_away_stops_nobody(self):
        run = Run.begin(self.make(), num_agents=4, late=["3"])
        run.steps(2, present=["0", "1", "2"]).step(present=())
        assert {e.server_round for e in run.exchanges} == {1, 2}, (
            "tasks in round 3, in which nobody was there"
        )
        before = len(run.agents["0"].log)
        run.steps(self.num_rounds, present=["0", "2", "3"])
        asked = sorted({e.agent for e in run.exchanges})
        assert "3" in asked, f"agent 3 joined in round 4 and got no task, only {asked} did"
        assert len(run.agents["0"].log) > before, "agent 0 got no trial once agent 1 had left"
        count = len(run.exchanges)
        run.step()
        assert len(run.exchanges) > count, "nobody was asked once everybody was back"

    def test_finish_is_answered(self):
        run = self.played().fork()
        evaluated = {name: agent.num_evaluations for name, agent in run.agents.items()}
        run.half(Phase.FINISH)
        run.half(Phase.EVALUATE)
        now = {name: agent.num_evaluations for name, agent in run.agents.items()}
        assert now == evaluated, f"evaluations: {now} after FINISH and EVALUATE, {evaluated} before"

    # -- what crosses the wire -----------------------------------------------------------------

    @pytest.mark.parametrize("space", [SQUARE, MIXED], ids=["square", "mixed"])
    def test_tasks_and_reports_cross_the_wire_exactly(self, space, run: Run | None = None):
        algorithm, run = self.make(), run or self.played(space)
        for exchange in run.exchanges:
            if exchange.report is None:
                continue
            envelope = wire.Envelope("study", exchange.agent, space.digest, algorithm.name, "{}")
            task, report = exchange.task, exchange.report
            packed = from_records(to_records(wire.encode_task(task, envelope)))
            got_task = wire.decode_task(packed, task_schema(algorithm, space))
            assert_same(got_task, task, "task", "It must cross the wire to the last bit.")
            nothing = wire.Disclosure()
            packed = from_records(to_records(wire.encode_report(report, task, envelope, nothing)))
            schema = run.server.report_schema()
            got, disclosed = wire.decode_report(packed, task, envelope, schema, space.dimension)
            run.server.check_report(task, got)
            assert_same(got, report, "report", "It must cross the wire to the last bit.")
            assert disclosed == nothing, f"a report disclosed {disclosed}, which the operator did not allow"

    def test_no_report_repeats_the_history(self, run: Run | None = None):
        if self.reports_values:
            pytest.skip("the paper lets evaluations travel")
        exchanges = (run or self.played()).exchanges
        leaking = sorted({f"agent {e.agent}, round {e.server_round}" for e in exchanges
                          if e.report and leaks(e.report, e.history)})  # fmt: skip
        assert not leaking, (
            f"a report repeats a coordinate or a value of the history: {'; '.join(leaking)}. If the paper "
            "sends them, set `reports_values = True` and say so in the record's `meanings`"
        )

    def test_task_sent_twice_is_done_once_and_answered_alike(self, run: Run | None = None):
        algorithm, run = self.make(), run or self.played().fork()
        for name, exchange in {e.agent: e for e in run.exchanges}.items():
            if exchange.report is None:
                continue
            agent = run.agents[name]
            before = agent.num_evaluations
            why = "A task that comes again must get the same answer."
            assert_same(agent.answer(algorithm, exchange.task), exchange.report, "report", why)
            if not (algorithm.secure_sums or algorithm.message_noise()):
                agent.memory.pop(f"{STATE_KEY}.report", None)  # too large to be stored, for instance
                assert_same(agent.answer(algorithm, exchange.task), exchange.report, "report", why)
            assert agent.num_evaluations == before, f"agent {name} evaluated again for a task it had done"

    # -- evaluations that fail -----------------------------------------------------------------

    def test_failing_evaluation_costs_its_trial_only(self):
        good = hills(SQUARE)

        def objective(config, context):
            place = context.trial + int(context.agent)
            return good(config, context) if place % 3 != 1 else FAILURES[place // 3 % len(FAILURES)]()

        run = Run.begin(self.make(), objective=objective).steps(self.num_rounds)
        for name, history in run.histories().items():
            failed = (history.trials + int(name)) % 3 == 1
            np.testing.assert_array_equal(np.isnan(history.values), failed)
            expected = set(history.trials[failed].tolist())
            assert set(history.reasons) == expected, f"agent {name}: failures are not those of {expected}"
        assert sum(e.report.num_failed for e in run.exchanges) == sum(
            len(h.reasons) for h in run.histories().values()
        )

    def test_agents_without_a_single_success_go_on(self):
        def objective(config, context):
            return hills(SQUARE)(config, context) if context.agent == "1" else math.nan

        algorithm = self.make()
        run = Run.begin(algorithm, objective=objective).steps(self.num_rounds)
        counts = {name: len(history) for name, history in run.histories().items()}
        assert counts["0"] == counts["2"], f"trials: {counts}; 0 and 2 have no success and must be alike"
        best = algorithm.best(run.agents["0"].agent_state)
        assert best is None, f"an agent without any success recommends {best}; expected None"
        everybody = Run.begin(algorithm, objective=lambda c, x: math.nan).steps(self.num_rounds)
        longest = max(map(len, everybody.histories().values()))
        assert longest >= self.num_rounds, f"without any success the agents stopped after {longest} trials"

    @pytest.mark.parametrize("scale", [0.0, 1e-200, 1.0], ids=["equal", "tiny", "huge"])
    def test_values_of_any_scale_work(self, scale):
        good, factors = hills(SQUARE), [scale, scale * self.largest, scale]
        run = Run.begin(self.make(), objective=lambda c, x: factors[int(x.agent)] * good(c, x))
        run.steps(self.num_rounds)
        finite = {name: np.isfinite(h.values).all() for name, h in run.histories().items()}
        assert all(finite.values()), f"values of scales {factors} became NaN or infinite: {finite}"

    def test_recommendation_is_the_best_point_of_the_history(self, run: Run | None = None):
        algorithm = self.make()
        best = algorithm.best(AgentState(SQUARE, Trials.empty(2)))
        assert best is None, f"an agent without trials recommends {best}; expected None"
        for agent in (run or self.played()).agents.values():
            history = agent.agent_state.history
            if len(history):
                best = algorithm.best(agent.agent_state)
                assert best is not None
                rows = (best.point == history.points).all(axis=1)
                assert best.value in history.values[rows], f"{best.value} was not measured at {best.point}"
                assert best.is_noisy or best.value == np.nanmax(history.values)

    # -- observations from before --------------------------------------------------------------

    def test_observations_from_before_the_study_are_used_and_keep_their_place(self):
        points = np.random.default_rng(3).random((6, 2))
        prior = {"1": Trials.prior(points, points.sum(axis=1))}
        run = Run.begin(self.make(), prior=prior).steps(self.num_rounds)
        history = run.histories()["1"]
        earlier, later = history.trials[:6].tolist(), history.trials[6:].tolist()
        assert earlier == list(range(-6, 0)), f"earlier observations are trials {earlier}, expected -6 to -1"
        assert later == list(range(len(later))), f"trials of the study are {later}, expected 0, 1, 2, ..."


def check_variant(
    algorithm: Algorithm[Any], contract: type[AlgorithmContract] = AlgorithmContract, **attributes: Any
) -> None:
    """Check what options could break; the whole contract is for one form of every algorithm.

    `attributes` : of the contract, such as `num_rounds`
    """
    members = {"make": lambda self: algorithm, **attributes}
    case = type("Variant", (contract,), members)()
    with single_thread():
        run = case.lossy()
        why = "The other run was resumed after every round, and its replies came backwards."
        assert_same(*(unmasked(r.exchanges) for r in (run, case.lossy(resumed=True))), "exchanges", why)
        case.test_options_survive_json()
        case.test_lost_reports_are_asked_for_again_and_nothing_is_done_twice(run)
        case.test_tasks_and_reports_cross_the_wire_exactly(SQUARE, run)
        case.test_task_sent_twice_is_done_once_and_answered_alike(run)
        case.test_recommendation_is_the_best_point_of_the_history(run)
        if not case.reports_values:
            case.test_no_report_repeats_the_history(run)
