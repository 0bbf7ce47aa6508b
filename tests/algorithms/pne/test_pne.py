"""PF-PNE and its variants over Flower: who drops out, comes late or fails, and what travels."""

import copy

import numpy as np
import pytest
from contract import SQUARE, Run, same

from fbo_flower import strategies
from fbo_flower.algorithms import PFPNE, Fed1UCB, FedPNE, LocalPNE
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.pne.gp import GPPNE
from fbo_flower.algorithms.pne.racing import RacingPNE, _packed, unpacked
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.aggregation import shared_mean
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace

LINE = SearchSpace({"x": Float(0.0, 1.0)})


def test_no_gap_is_fed_pne_and_a_large_one_is_local_pne_bit_for_bit():
    def points(kind, **options):
        run = Run.begin(kind(budget=300, **options), objective=cusp).steps(12)
        return [log.points.tobytes() for log in run.histories().values()]

    assert points(PFPNE, gap=0.0) == points(FedPNE)
    assert points(PFPNE, gap=2.0) == points(LocalPNE) != points(PFPNE)


def test_a_run_whose_agents_never_come_back_ends_with_a_clear_error():
    app = client_app(lambda config, context: config["x"], LINE, seed=0)
    faults = {m: Fault("down", rounds=range(3, 1000)) for m in range(2)}
    options = {"budget": 100, "max_evaluations_per_round": 10, "round_timeout": 0.1}
    strategy = strategies.LocalPNE(num_agents=2, seed=0, **options)
    with pytest.raises(ConfigError, match="none was connected"):
        strategy.start(InProcessGrid(app, 2, faults=faults), num_rounds=None)
    assert strategy.study.settings["runs"][0]["status"] == "failed"


class StageOne:
    """A server and four agents at the root, who answer as they are asked."""

    def __init__(self, **options):
        self.algorithm, self.rng, self.rounds = PFPNE(budget=10_000, **options), np.random.default_rng(0), 0
        self.state = self.algorithm.init(Federation(LINE, tuple("0123")), self.rng)

    def ask(self, agents="0123"):
        self.rounds += 1
        self.state, tasks = self.algorithm.ask(self.state, Phase.TRAIN, self.rounds, list(agents), self.rng)
        return {agent: task for agent, task in tasks.items() if "cells" in task.arrays}

    def tell(self, tasks, without_pulls=()):
        reports = {}
        for agent, task in tasks.items():
            counts = task.arrays["pulls"] * (agent not in without_pulls)
            arrays = {"means": np.full(counts.shape, 0.5), "counts": counts}
            reports[agent] = Report(task.trial, task.num_trials, 0, arrays)
        self.state = self.algorithm.tell(self.state, Phase.TRAIN, Replies(reports))


def test_nothing_is_eliminated_on_fewer_pulls_than_the_depth_wants():
    stage = StageOne()
    for _ in range(5):  # down to a depth that wants several pulls of each cell
        stage.tell(stage.ask())
    tasks = stage.ask()
    depth, wanted = stage.state.depth, stage.algorithm.constants(4).pulls(stage.state.depth)
    stage.tell({a: tasks[a] for a in "01"})  # half are lost
    tasks = stage.ask("01")  # and do not come back
    assert stage.state.depth == depth
    assert set(tasks) == {"0", "1"}
    stage.tell(tasks)
    assert (np.sum([stage.state.reports[a][1] for a in "01"], axis=0) >= wanted).all()
    stage.ask("01")
    assert stage.state.depth == depth + 1


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_an_agent_that_claims_no_pulls_is_waited_for_twice_its_work_and_no_longer(aggregate):
    stage, honest = (StageOne(gap=0.05, aggregate=aggregate) for _ in range(2))
    spent = 0
    while not stage.state.stage_two:
        depth, wanted = stage.state.depth, int(np.sum(stage.state.wanted))
        tasks = stage.ask()
        if "3" in tasks:
            spent = tasks["3"].num_trials + (spent if stage.state.depth == depth else 0)
            assert spent <= 3 * max(wanted, int(np.sum(stage.state.wanted)))
        stage.tell(tasks, without_pulls="3")
        assert stage.rounds < 100, "stage 1 does not end"
    while not honest.state.stage_two:
        honest.tell(honest.ask())
    assert stage.rounds <= 5 * honest.rounds
    assert stage.state.progress.of("3") < 10_000, "its budget need not end first"


# -- the Gaussian-process variant -------------------------------------------------------------------


def hill(config, context):
    return 1.0 - (config["x"] - 0.3) ** 2 - (config["y"] - 0.7) ** 2


def test_agents_find_the_top_of_a_hill_in_twenty_pulls():
    run = Run.begin(GPPNE(budget=20), num_agents=4, objective=hill).steps(24)
    assert {len(log) for log in run.histories().values()} == {20}
    assert all(log.values.max() > 0.995 for log in run.histories().values())


def test_an_agent_receives_the_sums_of_the_others_only():
    run = Run.begin(GPPNE(budget=12), num_agents=3, objective=hill).steps(4)
    told = [e for e in run.exchanges if e.task.num_trials == 0]
    sent = {e.agent: e.report for e in told if "precision" in e.report.arrays}
    got = {e.agent: e.task for e in run.exchanges if "others_precision" in e.task.arrays}
    place = int(got["0"].arrays["chosen"][2])
    expected = sent["1"].arrays["precision"][place] + sent["2"].arrays["precision"][place]
    np.testing.assert_allclose(got["0"].arrays["others_precision"], expected)


def test_a_late_joiner_starts_from_what_the_others_know():
    run = Run.begin(GPPNE(budget=14), num_agents=3, late=["2"], objective=hill)
    while run.state.chosen is None:
        run.step(present=["0", "1"])
    run.steps(12)
    log = run.histories()["2"]
    assert len(log) == 14
    assert log.values[0] > 0.9  # its first point is not a point of the design


def test_an_agent_whose_objective_fails_at_first_makes_the_design_longer():
    def objective(config, context):
        if context.agent == "0" and context.trial < 7:
            raise RuntimeError("no luck")
        return hill(config, context)

    run = Run.begin(GPPNE(budget=20), num_agents=2, objective=objective).steps(24)
    for name, log in run.histories().items():
        assert len(log) == 20
        assert len(log.reasons) == (7 if name == "0" else 0)
        assert np.nanmax(log.values) > 0.85


def test_after_many_points_the_best_are_repeated(monkeypatch):
    monkeypatch.setattr(shared_mean, "MAX_POINTS", 8)
    run = Run.begin(GPPNE(budget=20), num_agents=2, objective=hill).steps(20)
    for log in run.histories().values():
        assert len(log) == 20
        assert len(np.unique(log.points, axis=0)) == 8


@pytest.mark.parametrize(
    ("algorithm", "values", "match"),
    [
        (GPPNE(), {"exchange": 0, "agents": 2, "design_seed": 1, "place": 2}, "place"),
        (RacingPNE(budget=100), {}, "shared"),  # stage 2 without what stage 1 found
    ],
)
def test_a_task_outside_the_federation_or_out_of_turn_is_refused(algorithm, values, match):
    state = AgentState(SQUARE, Trials.empty(2))
    with pytest.raises(WireError, match=match):
        algorithm.session(Task(Phase.TRAIN, 1, 0, 5, {}, values), state, lambda *keys: None, None)


# -- racing ------------------------------------------------------------------------------------------


def cusp(config, context):
    """One objective for all agents: they share cells for several rounds."""
    noise = 0.001 * context.rng.standard_normal()
    return 1.0 - abs(config["x"] - 0.3) ** 0.5 - abs(config["y"] - 0.7) + noise


def test_stage_two_sends_nothing_but_the_number_of_evaluations():
    run = Run.begin(RacingPNE(budget=200, max_evaluations_per_round=20)).steps(25)
    assert run.algorithm.finished(run.state)
    second = [e for e in run.exchanges if "cells_depth" not in e.task.arrays]
    assert len(second) > 10
    assert all(e.report.arrays == {} and e.report.values == {} for e in second)
    synced = [e.agent for e in second if e.task.arrays]
    assert sorted(synced) == ["0", "1", "2"]  # once each


def test_given_smoothness_is_used():
    def deepest(**options):
        run = Run.begin(RacingPNE(budget=300, **options), num_agents=1, objective=cusp).steps(2)
        return len(np.unique(run.histories()["0"].points, axis=0))

    assert deepest(nu=5.0, rho=0.9) > 1.5 * deepest(), "bounds that fall slowly spread the pulls"


def shared(run, **each):
    """Play rounds of racing until stage 1 has ended; return the run."""
    while run.state.shared is None:
        run.step(**each)
    return run


def test_one_who_is_away_for_the_whole_of_stage_one_is_told_of_it_and_pulls_all_its_cells():
    run = shared(Run.begin(RacingPNE(budget=300), num_agents=4), present=["0", "1", "2"]).steps(4)
    log = run.histories()["3"]
    assert len(log) == 300
    assert len(np.unique(log.points, axis=0)) >= run.state.shared.cells.size
    first = next(e for e in run.exchanges if e.agent == "3").task
    assert not first.arrays["shared_pulled"].any()
    other = next(e for e in run.exchanges if e.agent == "0" and "shared_pulled" in e.task.arrays).task
    assert other.arrays["shared_pulled"].all()


def test_the_merged_means_do_not_contain_an_agent_whose_reports_were_lost():
    run = shared(Run.begin(RacingPNE(budget=300)).step(lost=["2"]), present=["0", "1"])
    _, tasks = run.algorithm.ask(run.state, Phase.TRAIN, 99, ["2"], np.random.default_rng(0))
    assert not tasks["2"].arrays["shared_pulled"].any()
    assert run.agents["2"].num_evaluations > 0


def test_a_late_joiner_takes_part_in_the_batch_that_is_open():
    run = Run.begin(RacingPNE(budget=4000), num_agents=4, late=["3"], objective=cusp)
    run.step(present=["0", "1", "2"]).step(present=["0", "1", "2"]).step()
    assert "cells_depth" in run.exchanges[-1].task.arrays
    assert run.exchanges[-1].agent == "3"
    run.step()
    assert run.state.rows == ("0", "1", "2", "3")
    assert (run.state.gathering.counts[3] == 0).any()
    assert (run.state.gathering.counts[3] > 0).any()


def test_the_tree_grows_again_from_its_cells_and_means():
    state = shared(Run.begin(RacingPNE(budget=4000), objective=cusp)).state
    cells, message = state.shared.cells, _packed(state.shared, state.gathering, state.rows, "1")
    got, heard = unpacked(message.arrays, cells.options)
    assert got.cells.size == cells.size > 31
    for name in ("depth", "index", "parent", "first_child", "anchor"):
        found, expected = (getattr(tree, name)[: cells.size] for tree in (got.cells, cells))
        np.testing.assert_array_equal(found, expected)
    assert heard.all()


# -- of all with cells or arms ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "known"),
    [
        (FedPNE(budget=100), "reports"),
        (RacingPNE(budget=100), "heard"),
        (Fed1UCB(budget=400, arms_seed=1), "counts"),
    ],
)
def test_a_report_of_other_cells_or_arms_is_no_evidence(algorithm, known):
    run = Run.begin(algorithm)
    _, tasks = algorithm.ask(run.state, Phase.TRAIN, 1, ["0", "1"], np.random.default_rng(0))
    report = run.agents["0"].answer(algorithm, tasks["0"])
    before = copy.deepcopy(run.state)
    for size, heard in ((2, {}), (1, {"0"})):
        arrays = {name: np.tile(array, size) for name, array in report.arrays.items()}
        told = Report(report.trial, report.num_trials, 0, arrays)
        state = algorithm.tell(run.state, Phase.TRAIN, Replies({"0": told}))
        assert set(getattr(state, known)) == set(heard)
    assert same(before, run.state)
