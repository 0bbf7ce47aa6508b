"""PF-PNE over Flower: the plain driver's regrets to the last digit, and whoever drops out."""

import numpy as np
import pytest
from contract import AlgorithmContract

from fbo_flower import strategies
from fbo_flower.algorithms import HCT, PFPNE, FedPNE, LocalPNE, make_algorithm
from fbo_flower.algorithms.records import Federation, Phase, Report
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Keep, make_problem, simulate
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace


def cumulative(study, num_agents):
    return np.array([study.regret.where(agent=str(m))["cumulative"][-1] for m in range(num_agents)])


def test_no_gap_is_fed_pne_and_a_large_one_is_local_pne_bit_for_bit():
    for options, other in (({"gap": 0.0}, "fed-pne"), ({"gap": 2.0}, "local-pne")):
        one = simulate(
            "himmelblau",
            agents=3,
            algorithm=make_algorithm("pf-pne", {"budget": 600, **options}),
            seed=5,
            engine="inline",
            keep=Keep(label="a"),
        )
        two = simulate(
            "himmelblau",
            agents=3,
            algorithm=make_algorithm(other, {"budget": 600}),
            seed=5,
            engine="inline",
            keep=Keep(label="a"),
        )
        assert one.trials == two.trials
    apart = simulate(
        "himmelblau",
        agents=3,
        algorithm=make_algorithm("pf-pne", {"budget": 600}),
        seed=5,
        engine="inline",
        keep=Keep(label="a"),
    )
    assert apart.trials != two.trials


def test_stage_two_sends_nothing_back_but_the_number_of_trials():
    study = simulate(
        "garland", agents=3, algorithm=make_algorithm("pf-pne", {"budget": 3000}), engine="inline"
    )
    app_rounds = study.rounds["bytes_up"]
    problem = make_problem("garland", 3, 0, {})
    quiet = client_app(problem, problem.space, seed=0)
    run = (
        strategies.PFPNE(num_agents=3, seed=0, budget=3000)
        .start(InProcessGrid(quiet, 3), num_rounds=None)
        .study
    )
    assert len(run.trials) == 0
    assert (run.rounds["bytes_up"] <= app_rounds).all()
    first, last = run.rounds["bytes_up"][0], run.rounds["bytes_up"][-1]
    assert last < first  # the first round of stage 1 carries one cell; the last round no array at all


def test_a_run_whose_agents_never_come_back_ends_with_a_clear_error():
    app = client_app(lambda config, context: config["x"], SearchSpace({"x": Float(0.0, 1.0)}), seed=0)
    faults = {m: Fault("down", rounds=range(3, 1000)) for m in range(2)}
    strategy = strategies.LocalPNE(
        num_agents=2, seed=0, budget=100, max_evaluations_per_round=10, round_timeout=0.3
    )
    with pytest.raises(ConfigError, match="none was connected"):
        strategy.start(InProcessGrid(app, 2, faults=faults), num_rounds=None)
    assert strategy.study is not None
    assert strategy.study.settings["runs"][0]["status"] == "failed"


def test_nothing_is_eliminated_on_fewer_pulls_than_the_depth_wants():
    algorithm = PFPNE(budget=10_000)
    rng = np.random.default_rng(0)
    space = SearchSpace({"x": Float(0.0, 1.0)})
    state = algorithm.init(Federation(space, tuple("0123")), rng)
    for _ in range(5):  # down to a depth that wants several pulls of each cell
        state, tasks = algorithm.ask(state, Phase.TRAIN, 1, list("0123"), rng)
        state = algorithm.tell(state, Phase.TRAIN, {a: answer(task) for a, task in tasks.items()})
    state, tasks = algorithm.ask(state, Phase.TRAIN, 6, list("0123"), rng)
    depth, wanted = state.depth, algorithm.constants(4).pulls(state.depth)
    state = algorithm.tell(state, Phase.TRAIN, {a: answer(tasks[a]) for a in "01"})  # half are lost
    state, tasks = algorithm.ask(state, Phase.TRAIN, 7, ["0", "1"], rng)  # and do not come back
    assert state.depth == depth
    assert set(tasks) == {"0", "1"}
    state = algorithm.tell(state, Phase.TRAIN, {a: answer(task) for a, task in tasks.items()})
    counts = np.sum([state.reports[a][1] for a in "01"], axis=0)
    assert (counts >= wanted).all()
    state, _ = algorithm.ask(state, Phase.TRAIN, 8, ["0", "1"], rng)
    assert state.depth == depth + 1


def answer(task):
    cells, pulls = task.arrays["cells"], task.arrays["pulls"]
    return Report(task.trial, task.num_trials, 0, {"means": cells * 0.0 + 0.5, "counts": pulls.copy()})


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_an_agent_that_claims_no_pulls_is_waited_for_twice_its_work_and_no_longer(aggregate):
    algorithm = PFPNE(budget=10_000, gap=0.05, aggregate=aggregate)
    rng = np.random.default_rng(0)
    state = algorithm.init(Federation(SearchSpace({"x": Float(0.0, 1.0)}), tuple("0123")), rng)
    honest = algorithm.init(Federation(SearchSpace({"x": Float(0.0, 1.0)}), tuple("0123")), rng)
    spent = rounds = needed = 0
    while not state.stage_two:
        rounds += 1
        depth, wanted = state.depth, int(np.sum(state.wanted))
        state, tasks = algorithm.ask(state, Phase.TRAIN, rounds, list("0123"), rng)
        reports = {agent: answer(task) for agent, task in tasks.items() if "cells" in task.arrays}
        if "3" in reports:
            zeros = np.zeros_like(tasks["3"].arrays["pulls"])
            reports["3"] = Report(tasks["3"].trial, tasks["3"].num_trials, 0,
                                  {"means": zeros * 0.0, "counts": zeros})  # fmt: skip
            spent = spent + tasks["3"].num_trials if state.depth == depth else tasks["3"].num_trials
            assert spent <= 3 * max(wanted, int(np.sum(state.wanted)))
        state = algorithm.tell(state, Phase.TRAIN, reports)
        assert rounds < 100, "stage 1 waits for ever"
    while not honest.stage_two:
        needed += 1
        honest, tasks = algorithm.ask(honest, Phase.TRAIN, needed, list("0123"), rng)
        reports = {a: answer(task) for a, task in tasks.items() if "cells" in task.arrays}
        honest = algorithm.tell(honest, Phase.TRAIN, reports)
    assert rounds <= 5 * needed
    assert state.progress.of("3") < 10_000, "its budget need not end first"


@pytest.mark.parametrize("num_agents", [1, 3])
def test_a_region_without_a_value_is_left_and_the_rest_is_searched(num_agents):
    """Every agent's objective fails in the upper half: nobody can give what stage 1 wants of it."""

    def objective(config, context):
        if config["x"] > 0.5:
            raise RuntimeError("out of memory")
        return 0.5 - abs(config["x"] - 0.3)

    space = SearchSpace({"x": Float(0.0, 1.0)})
    app = client_app(objective, space, seed=0, disclose="trials")
    strategy = strategies.PFPNE(num_agents=num_agents, seed=0, budget=400)
    study = strategy.start(InProcessGrid(app, num_agents), num_rounds=80).study
    for best in study.best.values():
        assert abs(best["config"]["x"] - 0.3) < 0.05
    failed = ~np.isfinite(study.trials["value"])
    assert study.trials["pulls"][failed].sum() < 0.6 * study.trials["pulls"].sum()


def test_a_report_of_other_cells_is_no_evidence():
    algorithm = FedPNE(budget=100)
    rng = np.random.default_rng(0)
    state = algorithm.init(Federation(SearchSpace({"x": Float(0.0, 1.0)}), ("0", "1")), rng)
    state, tasks = algorithm.ask(state, Phase.TRAIN, 1, ["0", "1"], rng)
    wrong = {"means": np.zeros(7), "counts": np.ones(7, dtype=np.int64)}
    state = algorithm.tell(state, Phase.TRAIN, {"0": Report(0, tasks["0"].num_trials, 0, wrong)})
    assert state.reports == {}


def test_failing_evaluations_cost_their_pulls():
    space = SearchSpace({"x": Float(0.0, 1.0)})

    def objective(config, context):
        if context.trial % 3 == 0:
            raise RuntimeError("no luck")
        return 0.5 - abs(config["x"] - 0.3)

    app = client_app(objective, space, seed=0, disclose="trials")
    study = (
        strategies.PFPNE(num_agents=2, seed=0, budget=300).start(InProcessGrid(app, 2), num_rounds=60).study
    )
    assert study.rounds["failed_trials"].sum() > 0
    assert abs(study.best["0"]["config"]["x"] - 0.3) < 0.2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"budget": 0}, "budget"),
        ({"rho": 1.0}, "rho"),
        ({"h0": "floor"}, "h0"),
        ({"arity": "ternary"}, "arity"),
    ],
)
def test_options_out_of_bounds_are_named(options, named):
    with pytest.raises(ConfigError, match=named):
        LocalPNE(**options)


class TestPFPNEContract(AlgorithmContract):
    reports_values = True  # a mean of one pull is a value: the paper lets means of cells travel

    def make(self):
        return PFPNE(budget=60, max_evaluations_per_round=9)


class TestFedPNEContract(AlgorithmContract):
    reports_values = True

    def make(self):
        return FedPNE(budget=60)


class TestLocalPNEContract(AlgorithmContract):
    def make(self):
        return LocalPNE(budget=60, max_evaluations_per_round=7)


class TestHCTContract(AlgorithmContract):
    def make(self):
        return HCT(budget=60, max_evaluations_per_round=7)
