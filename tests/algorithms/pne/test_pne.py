"""PF-PNE and its variants over Flower: who drops out, comes late or fails, and what travels."""

import numpy as np
import pytest
from contract import SQUARE, Run, over_grid

from fbo_flower.algorithms import PFPNE, Fed1UCB, FedPNE, LocalPNE
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.pne.gp import GPPNE
from fbo_flower.algorithms.pne.racing import RacingPNE
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.simulation.grids import Fault
from fbo_flower.space import Float, SearchSpace

LINE = SearchSpace({"x": Float(0.0, 1.0)})


def test_no_gap_is_fed_pne_and_a_large_one_is_local_pne_bit_for_bit():
    def points(kind, **options):
        run = Run.begin(kind(budget=300, **options), objective=cusp).steps(12)
        return [log.points.tobytes() for log in run.histories().values()]

    assert points(PFPNE, gap=0.0) == points(FedPNE)
    assert points(PFPNE, gap=2.0) == points(LocalPNE) != points(PFPNE)


def test_a_run_whose_agents_never_come_back_ends_with_a_clear_error():
    faults = {m: Fault("down", rounds=range(3, 1000)) for m in range(2)}
    options = {"budget": 100, "max_evaluations_per_round": 10, "round_timeout": 0.1}
    with pytest.raises(ConfigError, match="none was connected"):
        over_grid("local-pne", hill, SQUARE, 2, faults=faults, **options)


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
    stage.tell({a: tasks[a] for a in "01"})  # half are lost, and do not come back
    stage.tell(stage.ask("01"))
    assert stage.state.depth == depth
    assert (np.sum([stage.state.reports[a][1] for a in "01"], axis=0) >= wanted).all()
    stage.ask("01")
    assert stage.state.depth == depth + 1


def test_an_agent_that_claims_no_pulls_is_waited_for_twice_its_work_and_no_longer():
    stage, honest = (StageOne(gap=0.05) for _ in range(2))
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
    log = run.steps(3).histories()["2"]
    assert log.values[0] > 0.9  # its first point is not a point of the design


def test_a_task_outside_the_federation_or_out_of_turn_is_refused():
    state, outside = AgentState(SQUARE, Trials.empty(2)), {"agents": 2, "design_seed": 1, "place": 2}
    with pytest.raises(WireError, match="place"):
        GPPNE().session(Task(Phase.TRAIN, 1, 0, 5, {}, {"exchange": 0, **outside}), state, None, None)
    with pytest.raises(WireError, match="shared"):  # stage 2 without what stage 1 found
        RacingPNE(budget=100).session(Task(Phase.TRAIN, 1, 0, 5), state, None, None)


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
    assert sorted(e.agent for e in second if e.task.arrays) == ["0", "1", "2"]  # once each


def shared(run, **each):
    """Play rounds of racing until stage 1 has ended; return the run."""
    while run.state.shared is None:
        run.step(**each)
    return run


def test_one_who_is_away_for_the_whole_of_stage_one_is_told_of_it_and_pulls_all_its_cells():
    begun = Run.begin(RacingPNE(budget=300), num_agents=4).step(lost=["3"])  # its reports do not count
    run = shared(begun, present=["0", "1", "2"]).steps(4)
    log = run.histories()["3"]
    assert len(log) == 300
    assert len(np.unique(log.points, axis=0)) >= run.state.shared.cells.size
    first = next(e for e in run.exchanges if e.agent == "3" and "shared_pulled" in e.task.arrays).task
    assert not first.arrays["shared_pulled"].any()
    other = next(e for e in run.exchanges if e.agent == "0" and "shared_pulled" in e.task.arrays).task
    assert other.arrays["shared_pulled"].all()


@pytest.mark.parametrize(
    ("algorithm", "known"),
    [(FedPNE(budget=100), "reports"), (RacingPNE(budget=100), "heard"), (Fed1UCB(budget=400), "counts")],
)
def test_a_report_of_other_cells_or_arms_is_no_evidence(algorithm, known):
    run = Run.begin(algorithm)
    _, tasks = algorithm.ask(run.state, Phase.TRAIN, 1, ["0", "1"], np.random.default_rng(0))
    report = run.agents["0"].answer(algorithm, tasks["0"])
    for size, heard in ((2, {}), (1, {"0"})):
        arrays = {name: np.tile(array, size) for name, array in report.arrays.items()}
        told = Report(report.trial, report.num_trials, 0, arrays)
        state = algorithm.tell(run.state, Phase.TRAIN, Replies({"0": told}))
        assert set(getattr(state, known)) == set(heard)
