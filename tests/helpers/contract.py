"""What every algorithm must hold. Subclass `AlgorithmContract`, give `make()`, and add a test against theory.

The driver plays server and agents with plain calls, without Flower, and draws its generators under the same
names as the real ones, so that a run over the in-process grid must equal it bit for bit.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.clientapp import ClientApp

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    Federation,
    History,
    Outcome,
    Phase,
    Query,
    Report,
    Task,
    natural_key,
)
from fbo_flower.algorithms.requests import alone, stepping
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.clients import client_app
from fbo_flower.clients.objective import ObjectiveContext, evaluate
from fbo_flower.errors import ObjectiveError
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.transforms import standardise
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.storage.serialization import dumps, loads
from fbo_flower.strategies import STRATEGIES, TuningStrategy
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


def packed(point: np.ndarray) -> np.ndarray:
    """What a site's model of a point is where there are no models."""
    return np.frombuffer(point.tobytes(), dtype=np.uint8)


def roles_of(names: Iterable[str]) -> dict[str, str]:
    """The first is the openbox, the others are curators."""
    return {name: "curator" if place else "openbox" for place, name in enumerate(names)}


@dataclass
class Agent:
    """An agent as `TuningAgent` is one, without messages."""

    name: str
    space: SearchSpace
    objective: Objective
    seed: int
    agent_state: AgentState
    is_site: bool = False  # trains models where others have an objective
    num_evaluations: int = 0
    log: History | None = None  # all that was evaluated, whatever the algorithm keeps of it

    def __post_init__(self) -> None:
        self.log = self.agent_state.history

    def answer(self, algorithm: Algorithm[Any], task: Task) -> Report:
        def draws(purpose: str, *keys: int) -> np.random.Generator:
            return generator(self.seed, "agent", self.name, purpose, str(task.phase), *keys)

        evaluate = partial(self.evaluate, task=task)
        result = alone(run_task(algorithm, task, self.agent_state, evaluate, draws))
        self.agent_state = result.agent_state
        return result.report

    def evaluate(self, query: Query, first: int, task: Task) -> Outcome:
        assert query.points.ndim == 2
        assert query.points.shape[1] == self.space.dimension
        assert ((query.points >= 0) & (query.points <= 1)).all(), "a proposal left the cube"
        points = self.space.snap(query.points)
        spans = np.ones(len(points), dtype=np.int64) if query.repeats is None else query.repeats
        trials = first + np.cumsum(spans) - spans
        values, deviations, failures = np.full(len(points), np.nan), np.zeros(len(points)), {}
        counts = np.zeros(len(points), dtype=np.int64)
        every: list[tuple[np.ndarray, float, int]] = []
        reasons: dict[int, str] = {}
        for i, point in enumerate(points):
            seen = []
            for trial in range(int(trials[i]), int(trials[i] + spans[i])):
                self.num_evaluations += 1
                rng = generator(self.seed, "agent", self.name, "objective", trial)
                context = ObjectiveContext(self.name, int(self.name), trial, task.round, rng)
                every.append((point, np.nan, trial))
                try:
                    seen += evaluate(self.objective, self.space.decode(point), context)
                    every[-1] = (point, seen[-1], trial)
                except ObjectiveError as error:
                    reasons[trial] = str(error)
                    failures.setdefault(int(trials[i]), str(error))
            counts[i] = len(seen)
            if seen:
                with np.errstate(over="ignore"):
                    values[i] = np.mean(seen)
                    deviations[i] = np.sum(np.square(seen - values[i]))
        rows = (np.array(column) for column in zip(*every, strict=True))
        if task.num_trials:
            self.log = self.log.extend(Outcome(*rows, reasons))
        if self.is_site:
            model = None if query.artifact is not None or failures else packed(points)
            measures = {"num_rows": np.full(len(points), 10.0 + int(self.name))}
            return Outcome(points, values, trials, failures, measures=measures, artifact=model)
        if query.repeats is None:
            return Outcome(points, values, trials, failures)
        return Outcome(points, values, trials, failures, counts, spans, deviations)


@dataclass
class Exchange:
    """One task and what came back; `report` is None where it was lost."""

    phase: Phase
    server_round: int
    agent: str
    task: Task
    report: Report | None
    history: History


def step(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method of an algorithm that may be a generator; the last argument is its random generator."""
    *others, rng = arguments
    return alone(stepping(method(*others, lambda: rng)))


@dataclass
class Run:
    """A federation of agents and the server's state."""

    algorithm: Algorithm[Any]
    agents: dict[str, Agent]
    state: Any
    seed: int
    server_round: int = 0
    exchanges: list[Exchange] = field(default_factory=list)

    @staticmethod
    def begin(
        algorithm: Algorithm[Any],
        *,
        space: SearchSpace = SQUARE,
        num_agents: int = 3,
        seed: int = 1,
        objective: Objective | None = None,
        late: Iterable[str] = (),
        prior: dict[str, History] | None = None,
    ) -> Run:
        names = [str(i) for i in range(num_agents)]
        empty = History.empty(space.dimension)
        agents = {
            n: Agent(
                n,
                space,
                objective or hills(space),
                seed,
                AgentState(space, (prior or {}).get(n, empty)),
                bool(algorithm.roles),
            )
            for n in names
        }
        site_roles = roles_of(names) if algorithm.roles else {}
        federation = Federation(space, tuple(n for n in names if n not in late), site_roles)
        algorithm.check(space)
        state = algorithm.init(federation, generator(seed, "server", "init"))
        return Run(algorithm, agents, state, seed)

    def step(
        self, present: Iterable[str] | None = None, lost: Iterable[str] = (), backwards: bool = False
    ) -> Run:
        """Play one round; the replies of `lost` agents do not arrive, though they did the work."""
        self.server_round += 1
        for phase in self.algorithm.phases:
            self.half(phase, present, lost, backwards)
        return self

    def half(self, phase: Phase, present=None, lost=(), backwards: bool = False) -> None:
        names = sorted(self.agents if present is None else present, key=natural_key)
        rng = generator(self.seed, "server", "ask", str(phase), self.server_round)
        uniform = uniform_from(generator(self.seed, "server", "secret", str(phase), self.server_round))
        with single_thread():
            drawn = self.algorithm.secret_draws(self.state, phase, self.server_round, names, uniform)
            self.state = self.algorithm.with_draws(self.state, drawn)
            self.state, tasks = self.algorithm.ask(self.state, phase, self.server_round, names, rng)
            assert set(tasks) <= set(names), "a task for an agent that is not there"
            reports: dict[str, Report] = {}
            for name in sorted(tasks, key=natural_key):
                agent, task = self.agents[name], tasks[name]
                assert task.phase is phase
                report = agent.answer(self.algorithm, task)
                kept = None if name in lost else report
                history = agent.log
                self.exchanges.append(Exchange(phase, self.server_round, name, task, kept, history))
                if kept is not None:
                    reports[name] = kept
            if backwards:
                reports = dict(reversed(reports.items()))
            self.state = self.algorithm.tell(self.state, phase, reports)

    def steps(self, count: int, **options: Any) -> Run:
        for _ in range(count):
            self.step(**options)
        return self

    def fork(self) -> Run:
        """Return a run that goes on from here and leaves this one as it is."""
        agents = {name: copy.copy(agent) for name, agent in self.agents.items()}
        return replace(self, agents=agents, exchanges=list(self.exchanges))

    def histories(self) -> dict[str, History]:
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
    **options: Any,
) -> Study:
    """Run an algorithm's strategy over Flower's messages in this process; return the study."""
    strategy = STRATEGIES[name](num_agents=num_agents, seed=seed, **options)
    app = client_app(objective, space, seed=seed, disclose=disclose)
    return strategy.start(InProcessGrid(app, num_agents, faults=faults), num_rounds=num_rounds).study


def difference(a: object, b: object, where: str = "") -> str:  # noqa: PLR0911  # one return per kind
    """Say where two values first differ, to the last bit and whatever they are made of; "": nowhere."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes():
            return ""
        return f"{where}: {a.dtype}{a.shape} {a.ravel()[:4]}... is not {b.dtype}{b.shape} {b.ravel()[:4]}..."
    if type(a) is not type(b) and not (hasattr(a, "keys") and hasattr(b, "keys")):
        return f"{where}: a {type(a).__name__} is not a {type(b).__name__}"
    if is_dataclass(a) and not isinstance(a, SearchSpace | type):
        parts = ((f"{where}.{f.name}", getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
        return first_difference(parts)
    if hasattr(a, "keys"):
        if list(a) != list(b):
            return f"{where}: keys {list(a)} are not {list(b)}"
        return first_difference((f"{where}[{k!r}]", a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{where}: {len(a)} entries are not {len(b)}"
        return first_difference((f"{where}[{i}]", *pair) for i, pair in enumerate(zip(a, b, strict=True)))
    if isinstance(a, float):
        return "" if np.float64(a).tobytes() == np.float64(b).tobytes() else f"{where}: {a!r} is not {b!r}"
    return "" if a == b else f"{where}: {a!r} is not {b!r}"


def first_difference(parts: Iterable[tuple[str, object, object]]) -> str:
    """Return the first difference among parts, each with its place."""
    return next(filter(None, (difference(a, b, where) for where, a, b in parts)), "")


def same(a: object, b: object) -> bool:
    """Equal to the last bit, whatever they are made of."""
    return not difference(a, b)


def assert_same(a: object, b: object, what: str, why: str) -> None:
    """Fail with the first difference and the reason why there must be none."""
    found = difference(a, b, what)
    assert not found, f"{found}. {why}"


def numbers(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """All numbers of some arrays, in one row."""
    flat = [np.asarray(a, dtype=np.float64).ravel() for a in arrays]
    return np.concatenate(flat) if flat else np.empty(0)


def leaks(report: Report, history: History) -> bool:
    """Whether a report repeats a coordinate or a value of the history, plain or standardised."""
    values = history.values[np.isfinite(history.values)]
    secrets = numbers([history.points, values, standardise(values)])
    secrets = secrets[~np.isin(secrets, (0.0, 0.5, 1.0))]
    sent = numbers(report.arrays.values())
    return bool(np.isclose(sent[:, None], secrets[None, :], rtol=1e-9, atol=1e-12).any())


FAILURES: dict[str, Callable[[], Any]] = {
    "raises": lambda: 1 / 0,
    "nan": lambda: float("nan"),
    "none": lambda: None,
    "text": lambda: "0.5",
    "inf": lambda: float("inf"),
    "minus-inf": lambda: -np.inf,
    "bool": lambda: True,
    "huge-int": lambda: 10**400,
    "array": lambda: np.ones(2),
}


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

    def test_same_seed_gives_the_same_run_also_when_resumed_after_every_round(self):
        whole, run = self.played(), Run.begin(self.make())
        for _ in range(self.num_rounds):
            run = replace(run, algorithm=self.make(), state=pickle.loads(pickle.dumps(run.state)))
            for agent in run.agents.values():
                agent.agent_state = thawed(agent.agent_state)
            run.step()
        why = "The resumed run differs: draw from `rng` only, and keep nothing outside the states."
        assert_same(whole.exchanges, run.exchanges, "exchanges", why)
        assert_same(whole.state, run.state, "state", why)

    def test_another_seed_gives_another_run(self):
        one, two = (Run.begin(self.make(), seed=s).steps(2) for s in (1, 2))
        assert not same(one.histories(), two.histories()), "seeds 1 and 2 gave the same points: use `rng`"

    def test_order_of_replies_does_not_matter(self):
        run = Run.begin(self.make()).steps(self.num_rounds, backwards=True)
        why = "`tell` got the reports in another order; it must sort by agent before it sums or merges."
        assert_same(self.played().exchanges, run.exchanges, "exchanges", why)

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
            if algorithm.finishes:  # a bandit's row is the mean over a cell's pulls of one round
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
            before = copy.deepcopy(run.state)
            held = run.state
            notebooks = {
                name: (a.agent_state, copy.deepcopy(a.agent_state)) for name, a in run.agents.items()
            }
            run.step()
            assert_same(held, before, "state", "`ask` or `tell` wrote into the state; return a new one.")
            for held_agent_state, copied in notebooks.values():
                why = "`propose`, `learn` or `summarise` wrote into the agent's state; return a new one."
                assert_same(held_agent_state, copied, "agent_state", why)
        for exchange in run.exchanges[-3:]:
            state, task, report = map(copy.deepcopy, (run.state, exchange.task, exchange.report))
            algorithm.tell(run.state, exchange.phase, {exchange.agent: exchange.report})
            run.agents[exchange.agent].answer(algorithm, exchange.task)
            handed_in = (run.state, exchange.task, exchange.report)
            why = "A repeated task or `tell` wrote into what it was given; copy before writing."
            assert_same((state, task, report), handed_in, "(state, task, report)", why)

    def test_ask_twice_gives_the_same_tasks(self):
        algorithm, run = self.make(), self.played()
        names = list(run.agents)
        uniform = uniform_from(generator(3, "secret"))
        draws = algorithm.secret_draws(run.state, Phase.TRAIN, 9, names, uniform)
        state = algorithm.with_draws(run.state, draws)
        one, two = (algorithm.ask(state, Phase.TRAIN, 9, names, generator(3, "ask")) for _ in range(2))
        assert_same(one, two, "(state, tasks)", "`ask` must depend on its arguments alone.")

    def test_options_survive_json(self):
        algorithm = self.make()
        options = json.loads(json.dumps(algorithm.options()))
        again = type(algorithm).from_options(options)
        assert again == algorithm, f"options changed on their way through JSON: {again} is not {algorithm}"

    # -- who is there --------------------------------------------------------------------------

    def test_smallest_federation_works(self):
        run = Run.begin(self.make(), num_agents=self.smallest).steps(self.num_rounds)
        longest = max(map(len, run.histories().values()))
        assert longest >= self.num_rounds, f"{self.smallest} agents alone made only {longest} trials"

    def test_lost_reports_are_asked_for_again_and_nothing_is_done_twice(self):
        run = Run.begin(self.make(), num_agents=4)
        chance = np.random.default_rng(0)
        for _ in range(self.num_rounds + 3):
            run.step(lost=[name for name in run.agents if chance.random() < 0.4])
        run.step()
        assert any(e.report is None for e in run.exchanges)
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

    def test_nobody_answering_leaves_the_algorithm_where_it_was(self):
        run = Run.begin(self.make()).steps(2, lost=("0", "1", "2"))
        done = {name: (a.num_evaluations, len(a.log)) for name, a in run.agents.items()}
        assert all(count == trials for count, trials in done.values()), (
            f"(evaluations, trials): {done}; a task that comes again was done again"
        )
        first, again = run.exchanges[:3], run.exchanges[-3:]
        assert [e.task.trial for e in first] == [e.task.trial for e in again], (
            "no report arrived, so `ask` must ask for the same trials again; count them in `tell`"
        )

    def test_nobody_there_means_no_tasks(self):
        run = Run.begin(self.make()).steps(2).step(present=()).step()
        rounds = {e.server_round for e in run.exchanges}
        assert rounds == {1, 2, 4}, f"tasks in rounds {sorted(rounds)}; in round 3 nobody was there"

    def test_late_joiners_take_part(self):
        run = Run.begin(self.make(), num_agents=4, late=["3"])
        run.steps(2, present=["0", "1", "2"]).steps(self.num_rounds)
        asked = sorted({e.agent for e in run.exchanges})
        assert "3" in asked, f"agent 3 joined in round 3 and got no task, only {asked} did"

    def test_vanished_agents_do_not_stop_the_others(self):
        run = Run.begin(self.make(), num_agents=4).steps(2)
        before = {name: len(history) for name, history in run.histories().items()}
        run.steps(self.num_rounds, present=["0", "2"]).step()
        after = {name: len(history) for name, history in run.histories().items()}
        assert after["0"] > before["0"], "agent 0 got no trial once agents 1 and 3 had left"
        assert run.exchanges[-1].report is not None, "nobody was asked once everybody was back"

    def test_finish_is_answered(self):
        run = self.played().fork()
        evaluated = {name: agent.num_evaluations for name, agent in run.agents.items()}
        run.half(Phase.FINISH)
        run.half(Phase.EVALUATE)
        now = {name: agent.num_evaluations for name, agent in run.agents.items()}
        assert now == evaluated, f"evaluations: {now} after FINISH and EVALUATE, {evaluated} before"

    # -- what crosses the wire -----------------------------------------------------------------

    @pytest.mark.parametrize("space", [SQUARE, MIXED], ids=["square", "mixed"])
    def test_tasks_and_reports_cross_the_wire_exactly(self, space):
        algorithm = self.make()
        for exchange in self.played(space).exchanges:
            envelope = wire.Envelope("study", exchange.agent, space.digest, algorithm.name, "{}")
            task, report = exchange.task, exchange.report
            packed = from_records(to_records(wire.encode_task(task, envelope)))
            got_task = wire.decode_task(packed, algorithm.task_schema(space))
            assert_same(got_task, task, "task", "It must cross the wire to the last bit.")
            nothing = wire.Disclosure()
            packed = from_records(to_records(wire.encode_report(report, task, envelope, nothing)))
            schema = algorithm.report_schema(space)
            got, disclosed = wire.decode_report(packed, task, envelope, schema, space.dimension)
            algorithm.check_report(task, got)
            assert_same(got, report, "report", "It must cross the wire to the last bit.")
            assert disclosed == nothing, f"a report disclosed {disclosed}, which the operator did not allow"

    def test_no_report_repeats_the_history(self):
        if self.reports_values:
            pytest.skip("the paper lets evaluations travel")
        leaking = sorted({f"agent {e.agent}, round {e.server_round}" for e in self.played().exchanges
                          if leaks(e.report, e.history)})  # fmt: skip
        assert not leaking, (
            f"a report repeats a coordinate or a value of the history: {'; '.join(leaking)}. If the paper "
            "sends them, set `reports_values = True` and say so in the record's `meanings`"
        )

    def test_task_sent_twice_is_done_once_and_answered_alike(self):
        algorithm, run = self.make(), self.played().fork()
        last = {e.agent: e for e in run.exchanges}
        for name, exchange in last.items():
            agent = run.agents[name]
            before = agent.num_evaluations
            why = "A task that comes again must get the same answer."
            assert_same(agent.answer(algorithm, exchange.task), exchange.report, "report", why)
            assert agent.num_evaluations == before, f"agent {name} evaluated again for a task it had done"

    # -- evaluations that fail -----------------------------------------------------------------

    def test_failing_evaluation_costs_its_trial_only(self):
        good, kinds = hills(SQUARE), list(FAILURES.values())

        def objective(config, context):
            place = context.trial + int(context.agent)
            return good(config, context) if place % 3 != 1 else kinds[place // 3 % len(kinds)]()

        run = Run.begin(self.make(), objective=objective).steps(self.num_rounds)
        for name, history in run.histories().items():
            failed = (history.trials + int(name)) % 3 == 1
            np.testing.assert_array_equal(np.isnan(history.values), failed)
            expected = set(history.trials[failed].tolist())
            assert set(history.failures) == expected, f"agent {name}: failures are not those of {expected}"
        assert sum(e.report.num_failed for e in run.exchanges) == sum(
            len(h.failures) for h in run.histories().values()
        )

    def test_agents_without_a_single_success_go_on(self):
        def objective(config, context):
            return hills(SQUARE)(config, context) if context.agent == "1" else None

        algorithm = self.make()
        run = Run.begin(algorithm, objective=objective).steps(self.num_rounds)
        counts = {name: len(history) for name, history in run.histories().items()}
        assert counts["0"] == counts["2"], f"trials: {counts}; 0 and 2 have no success and must be alike"
        best = algorithm.recommend(run.agents["0"].agent_state)
        assert best is None, f"an agent without any success recommends {best}; expected None"
        everybody = Run.begin(algorithm, objective=lambda c, x: None).steps(self.num_rounds)
        longest = max(map(len, everybody.histories().values()))
        assert longest >= self.num_rounds, f"without any success the agents stopped after {longest} trials"

    @pytest.mark.parametrize("scale", [0.0, 1e-200, 1e307])
    def test_values_of_any_scale_work(self, scale):
        good = hills(SQUARE)
        run = Run.begin(self.make(), objective=lambda c, x: scale * good(c, x)).steps(self.num_rounds)
        finite = {name: np.isfinite(h.values).all() for name, h in run.histories().items()}
        assert all(finite.values()), f"values of scale {scale:g} became NaN or infinite: {finite}"

    def test_recommendation_is_the_best_point_of_the_history(self):
        algorithm = self.make()
        best = algorithm.recommend(AgentState(SQUARE, History.empty(2)))
        assert best is None, f"an agent without trials recommends {best}; expected None"
        for agent in self.played().agents.values():
            history = agent.agent_state.history
            if len(history):
                believed = algorithm.best_mean(agent.agent_state)
                best = history.points[int(np.argmax(history.values))] if believed is None else believed[0]
                assert (best == history.points).all(axis=1).any(), f"{best} was not evaluated"
                np.testing.assert_array_equal(algorithm.recommend(agent.agent_state), best)

    # -- observations from before --------------------------------------------------------------

    def test_observations_from_before_the_study_are_used_and_keep_their_place(self):
        points = np.random.default_rng(3).random((6, 2))
        prior = {"1": History.prior(points, points.sum(axis=1))}
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
        case.test_same_seed_gives_the_same_run_also_when_resumed_after_every_round()
        case.test_order_of_replies_does_not_matter()
        if not algorithm.roles:  # sites disclose less
            case.test_driver_and_grid_agree_to_the_last_bit()
        case.test_options_survive_json()
        case.test_lost_reports_are_asked_for_again_and_nothing_is_done_twice()
        case.test_tasks_and_reports_cross_the_wire_exactly(SQUARE)
        case.test_task_sent_twice_is_done_once_and_answered_alike()
        case.test_recommendation_is_the_best_point_of_the_history()
        if not case.reports_values:
            case.test_no_report_repeats_the_history()


def thawed(agent_state: AgentState) -> AgentState:
    """The agent's state as an agent finds it after it has been away."""
    history = agent_state.history
    arrays, values = loads(
        dumps(
            {
                **agent_state.arrays,
                "points": history.points,
                "values": history.values,
                "trials": history.trials,
            },
            {"failures": {str(t): reason for t, reason in history.failures.items()}},
        )
    )
    points, observed, trials = (arrays.pop(name) for name in ("points", "values", "trials"))
    failures = {int(t): reason for t, reason in values["failures"].items()}
    return AgentState(
        agent_state.space, History(points, observed, trials, failures), arrays, agent_state.passed
    )
