"""What every algorithm must hold. Subclass `AlgorithmContract`, give `make()`, and add a test against theory.

The driver plays server and agents with plain calls, without Flower, and draws its generators under the same
names as the real ones, so that a run over the in-process grid must equal it bit for bit.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.clientapp import ClientApp

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials, natural_key
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.algorithms.server import Server, informed
from fbo_flower.clients import client_app
from fbo_flower.clients.guards import sum_guard, task_schema
from fbo_flower.clients.objective import ObjectiveContext, evaluate
from fbo_flower.errors import ObjectiveError
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.numerics.threads import single_thread
from fbo_flower.secure import keys
from fbo_flower.secure.member import identity_arrays
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.storage.files import dumps, loads, task_key
from fbo_flower.strategies import STRATEGIES, TuningStrategy
from fbo_flower.strategies.study_run import server_of
from fbo_flower.study import Study
from fbo_flower.wire.flower_records import from_records, to_records

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
    """An agent as `TuningAgent` is one, without messages."""

    name: str
    space: SearchSpace
    objective: Objective
    seed: int
    agent_state: AgentState
    is_site: bool = False  # trains models where others have an objective; a model is its point
    num_evaluations: int = 0
    log: Trials | None = None  # all that was evaluated, whatever the algorithm keeps of it
    sent: dict[str, Report] = field(default_factory=dict)  # a task of a secure sum is answered once

    def __post_init__(self) -> None:
        self.log = self.agent_state.history

    def card(self, study: str) -> bytes:
        """Return the agent's card; its keys and the study are in its state then, and are always the same."""
        private, identity = (generator(7, "key", self.name, what).bytes(32) for what in ("masks", "signs"))
        self.agent_state = self.agent_state.write(**identity_arrays(private, identity, study))
        return keys.make_card(identity, private)

    def answer(self, algorithm: Algorithm[Any], task: Task) -> Report:
        def draws(purpose: str, *keys: int) -> np.random.Generator:
            return generator(self.seed, "agent", self.name, purpose, str(task.phase), *keys)

        evaluate = partial(self.evaluate, task=task)
        guard = sum_guard(algorithm)
        if guard is not None and task_key(task) in self.sent:
            return self.sent[task_key(task)]
        state = self.agent_state if guard is None else guard.admit(task, self.agent_state)
        accepted = algorithm.accept(task, state)
        result = run_task(algorithm, task, accepted, evaluate, draws, guard=guard)
        self.agent_state = result.agent_state
        if guard is not None:
            self.sent = {**self.sent, task_key(task): result.report}
        return result.report

    def evaluate(self, query: Trials, first: int, task: Task) -> Trials:
        assert query.points.shape[1:] == (self.space.dimension,)
        assert ((query.points >= 0) & (query.points <= 1)).all(), "a proposal left the cube"
        points = self.space.snap(query.points)
        spans = query.spans
        trials = first + np.cumsum(spans) - spans
        rows, texts = [], []
        for point, start, span in zip(points, trials.tolist(), spans.tolist(), strict=True):
            made = [self.trial(point, trial, task) for trial in range(start, start + span)]
            reasons, seen = [r for _, r in made if r], [value for value, reason in made if not reason]
            texts.append(reasons[0] if reasons else "")
            mean, square = float("nan"), 0.0
            if seen:
                with np.errstate(over="ignore"):
                    mean = np.mean(seen)
                    square = np.sum(np.square(seen - mean))
            rows.append((mean, len(seen), square))
        values, counts, squares = map(np.array, zip(*rows, strict=True))
        failures = np.array(texts, dtype=object) if any(texts) else None
        if self.is_site:
            model = np.frombuffer(points.tobytes(), dtype=np.uint8)
            model = None if query.artifact is not None or any(texts) else model
            measures = {"num_rows": np.full(len(points), 10.0 + int(self.name))}
            return Trials(points, values, trials, failures, measures=measures, artifact=model)
        if query.pulls is None:
            return Trials(points, values, trials, failures)
        return Trials(points, values, trials, failures, spans, counts, squares)

    def trial(self, point: np.ndarray, trial: int, task: Task) -> tuple[float, str]:
        """Evaluate a point once, and log it; return the value and why there is none."""
        self.num_evaluations += 1
        rng, value, reason = generator(self.seed, "agent", self.name, "objective", trial), np.nan, ""
        try:
            context = ObjectiveContext(self.name, int(self.name), trial, task.round, rng)
            (value,) = evaluate(self.objective, self.space.decode(point), context)
        except ObjectiveError as error:
            reason = str(error)
        if task.num_trials:
            row = np.array([point]), np.array([value]), np.array([trial])
            self.log = self.log.concat(Trials(*row, np.array([reason], dtype=object)))
        return value, reason


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
    """A federation of agents and the server's state."""

    server: Server
    agents: dict[str, Agent]
    seed: int
    server_round: int = 0
    exchanges: list[Exchange] = field(default_factory=list)

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
        agents = {
            n: Agent(n, space, objective, seed, AgentState(space, histories[n]), bool(algorithm.roles))
            for n in names
        }
        roles = {n: "curator" if i else "openbox" for i, n in enumerate(names) if algorithm.roles}
        federation = Federation(space, tuple(n for n in names if n not in late), roles)
        algorithm.check(space)
        return Run(server_of(algorithm, federation, seed), agents, seed)

    def step(
        self, present: Iterable[str] | None = None, lost: Iterable[str] = (), backwards: bool = False
    ) -> Run:
        """Play one round; the replies of `lost` agents do not arrive, though they did the work."""
        self.server_round += 1
        for phase in self.server.phases:
            self.half(phase, present, lost, backwards)
        return self

    def half(self, phase: Phase, present=None, lost=(), backwards: bool = False) -> None:
        names = sorted(self.agents if present is None else present, key=natural_key)
        rng = generator(self.seed, "server", "ask", str(phase), self.server_round)
        uniform = uniform_from(generator(self.seed, "server", "secret", str(phase), self.server_round))
        with single_thread():
            if self.algorithm.secure_sums:
                cards = {name: agent.card("study") for name, agent in self.agents.items()}
                self.server.register_cards("study", cards)
            drawn = self.algorithm.secret_draws(self.state, phase, self.server_round, names, uniform)
            self.server.state = informed(self.state, drawn=drawn)
            tasks = self.server.ask(phase, self.server_round, names, rng)
            assert set(tasks) <= set(names), "a task for an agent that is not there"
            reports: dict[str, Report] = {}
            for name in sorted(tasks, key=natural_key):
                agent, task = self.agents[name], tasks[name]
                assert task.phase is phase
                report = agent.answer(self.algorithm, task)
                kept = None if name in lost else report
                self.exchanges.append(Exchange(phase, self.server_round, name, task, kept, agent.log))
                if kept is not None:
                    reports[name] = kept
            if backwards:
                reports = dict(reversed(reports.items()))
            self.server.tell(phase, reports)

    def steps(self, count: int, **options: Any) -> Run:
        for _ in range(count):
            self.step(**options)
        return self

    def fork(self) -> Run:
        """Return a run that goes on from here and leaves this one as it is."""
        agents = {name: copy.copy(agent) for name, agent in self.agents.items()}
        return replace(self, server=copy.copy(self.server), agents=agents, exchanges=list(self.exchanges))

    def thaw(self, algorithm: Algorithm[Any]) -> None:
        """Go on as a server and agents do that were stopped, and have only what was stored."""
        self.server = pickle.loads(pickle.dumps(self.server))
        self.server.algorithm = algorithm
        for agent in self.agents.values():
            kept, history = agent.agent_state, pickle.loads(pickle.dumps(agent.agent_state.history))
            agent.agent_state = replace(kept, arrays=loads(dumps(kept.arrays, {}))[0], history=history)

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
    lambda: 1 / 0, lambda: float("nan"), lambda: None, lambda: "0.5", lambda: float("inf"),
    lambda: -np.inf, lambda: True, lambda: 10**400, lambda: np.ones(2),
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
    """

    num_rounds: ClassVar[int] = 5
    smallest: ClassVar[int] = 1
    reports_values: ClassVar[bool] = False

    @pytest.fixture(autouse=True)
    def one_thread(self):
        """Compute as agents and strategies do: more BLAS threads may change the last bits."""
        with single_thread():
            yield

    def make(self) -> Algorithm[Any]:
        raise NotImplementedError

    def app(self, seed: int) -> ClientApp:
        """Return a ClientApp of three agents on the hills."""
        return client_app(hills(SQUARE), SQUARE, seed=seed, disclose="trials", algorithms=[type(self.make())])

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

    def test_driver_and_grid_agree_to_the_last_bit(self):
        algorithm, run = self.make(), self.played().fork()
        run.half(Phase.FINISH)

        class Strategy(TuningStrategy):
            algorithm_class = type(algorithm)

        options = {k: getattr(algorithm, k) for k in algorithm.options()}
        strategy = Strategy(num_agents=3, seed=run.seed, **options)
        study = strategy.start(InProcessGrid(self.app(run.seed), 3), num_rounds=self.num_rounds).study
        for name, history in run.histories().items():
            mine = study.trials.where(agent=name)
            assert mine["pulls"].sum() == len(history)
            if algorithm.budget_option:  # a bandit's row is the mean over a cell's pulls of one round
                total = float(np.dot(mine["pulls"], mine["value"]))
                assert total == pytest.approx(history.values.sum(), rel=1e-12)
                assert {json.dumps(c) for c in mine["config"]} == {
                    json.dumps(SQUARE.decode(p)) for p in history.points
                }
                continue
            np.testing.assert_array_equal(mine["value"], history.values)
            assert mine["config"].tolist() == [SQUARE.decode(p) for p in history.points]

    # -- values, not objects with a past -------------------------------------------------------

    def test_nothing_that_is_handed_in_is_changed(self):
        algorithm = self.make()
        run = Run.begin(algorithm)
        for _ in range(self.num_rounds):
            held = run.state, [agent.agent_state for agent in run.agents.values()]
            before = copy.deepcopy(held)
            run.step()
            why = "A method of the algorithm wrote into the state of server or agent; return a new one."
            assert_same(held, before, "(state, agent_states)", why)
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
            return hills(SQUARE)(config, context) if context.agent == "1" else None

        algorithm = self.make()
        run = Run.begin(algorithm, objective=objective).steps(self.num_rounds)
        counts = {name: len(history) for name, history in run.histories().items()}
        assert counts["0"] == counts["2"], f"trials: {counts}; 0 and 2 have no success and must be alike"
        best = algorithm.best(run.agents["0"].agent_state)
        assert best is None, f"an agent without any success recommends {best}; expected None"
        everybody = Run.begin(algorithm, objective=lambda c, x: None).steps(self.num_rounds)
        longest = max(map(len, everybody.histories().values()))
        assert longest >= self.num_rounds, f"without any success the agents stopped after {longest} trials"

    @pytest.mark.parametrize("scales", [(0.0, 0.0, 0.0), (1e-200, 1e307, 1.0)], ids=["equal", "extreme"])
    def test_values_of_any_scale_work(self, scales):
        good = hills(SQUARE)
        run = Run.begin(self.make(), objective=lambda c, x: scales[int(x.agent)] * good(c, x))
        run.steps(self.num_rounds)
        finite = {name: np.isfinite(h.values).all() for name, h in run.histories().items()}
        assert all(finite.values()), f"values of scale {scales} became NaN or infinite: {finite}"

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
