"""PF-PNE over Flower: the plain driver's regrets to the last digit, and whoever drops out."""

import numpy as np
import pytest

from fbo_flower import strategies
from fbo_flower.algorithms import PFPNE, FedPNE, make_algorithm
from fbo_flower.algorithms.records import Federation, Phase, Report
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Keep, simulate
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace


def test_no_gap_is_fed_pne_and_a_large_one_is_local_pne_bit_for_bit():
    def trials(name, **options):
        algorithm, keep = make_algorithm(name, {"budget": 600, **options}), Keep(label="a")
        return simulate("himmelblau", None, 3, algorithm, seed=5, engine="inline", keep=keep).trials

    assert trials("pf-pne", gap=0.0) == trials("fed-pne")
    assert trials("pf-pne", gap=2.0) == trials("local-pne")
    assert trials("pf-pne") != trials("local-pne")


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


def test_a_report_of_other_cells_is_no_evidence():
    algorithm = FedPNE(budget=100)
    rng = np.random.default_rng(0)
    state = algorithm.init(Federation(SearchSpace({"x": Float(0.0, 1.0)}), ("0", "1")), rng)
    state, tasks = algorithm.ask(state, Phase.TRAIN, 1, ["0", "1"], rng)
    wrong = {"means": np.zeros(7), "counts": np.ones(7, dtype=np.int64)}
    state = algorithm.tell(state, Phase.TRAIN, {"0": Report(0, tasks["0"].num_trials, 0, wrong)})
    assert state.reports == {}
