"""Co-KG: `central = "auto"`, added points, and without a barrier points under way as fantasies."""

import numpy as np
import pytest
from acquisition_cases import fantasies
from contract import SQUARE, Run, same

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg.central import AGAINST, ENOUGH, central_product, disagree, frame, pools
from fbo_flower.algorithms.co_kg.state import CoKGState
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.server import informed
from fbo_flower.numerics.acquisition.expected_improvement import centred_draws
from fbo_flower.numerics.surrogates import gp
from fbo_flower.space import Int, SearchSpace

SMALL = {"central": "auto", "num_points": 100, "num_draws": 16, "num_starts": 1}
CENTRES = ((0.21, 0.83), (0.77, 0.34), (0.32, 0.18), (0.9, 0.9))


def hills(differ, noise=0.05):
    """One hill for all agents at (.21, .83), or each agent's own."""

    def objective(config, context):
        x, y = CENTRES[int(context.agent) if differ else 0]
        distance = (config["x"] - x) ** 2 + (config["y"] - y) ** 2
        return float(np.exp(-6.0 * distance)) + noise * context.rng.standard_normal()

    return objective


def state_with(*evidence):
    return CoKGState(SQUARE, evidence=tuple(enumerate(evidence)))


def test_it_begins_with_the_barycenter_and_follows_the_evidence_both_ways():
    auto = CoKG(central="auto")
    assert not pools(auto, state_with())
    assert not disagree(auto, state_with())
    assert pools(auto, state_with(-9.0, ENOUGH + 0.1))
    assert not pools(auto, state_with(9.0, ENOUGH - 0.1))
    assert disagree(auto, state_with(9.0, AGAINST - 0.1))
    assert not disagree(auto, state_with(-9.0, AGAINST + 0.1))
    for other in (CoKG(), CoKG(central="product")):
        assert not disagree(other, state_with(-99.0))
        assert pools(other, state_with(-99.0, 99.0)) == (other.central == "product")


def test_agents_with_one_objective_are_pooled_and_the_evidence_is_reported():
    run = Run.begin(CoKG(**SMALL), num_agents=4, objective=hills(False)).steps(10)
    assert run.state.evidence[-1][1] > ENOUGH
    assert run.state.recommended[-1].agent == ""
    assert {e.agent for e in run.exchanges if e.task.round == 10 and "point" in e.task.arrays} == set("0123")
    assert run.algorithm.results(run.state) is not None
    np.testing.assert_allclose(run.state.recommended[-1].point, CENTRES[0], atol=0.1)
    found = run.algorithm.results(run.state).found["evidence"]
    assert [row["round"] for row in found] == list(range(2, 11))
    lines = run.algorithm.progress_lines(run.state, CoKGState(SQUARE))
    assert any("central model: product" in line for line in lines)
    assert run.algorithm.progress_lines(run.state, run.state) == []


def test_agents_with_their_own_objectives_choose_for_themselves():
    run = Run.begin(CoKG(**SMALL), num_agents=4, objective=hills(True)).steps(10)
    alone = Run.begin(
        CoKG(**{**SMALL, "central": "barycenter"}, framework="no-collaboration"),
        num_agents=4, objective=hills(True),
    ).steps(2)  # fmt: skip
    for agent, history in alone.histories().items():
        np.testing.assert_array_equal(run.histories()[agent].points[: len(history)], history.points)
    assert run.state.evidence[-1][1] < AGAINST
    assert run.state.recommended[-1].agent != ""
    assert not [e for e in run.exchanges if e.task.round == 10 and "point" in e.task.arrays]


@pytest.mark.parametrize("central", ["product", "auto"])
def test_added_points_are_among_the_pivots_and_the_product_stays_the_pooled_posterior(central):
    options = {**SMALL, "central": central, "num_refined": 16, "refine_every": 2, "rank_cut": 1e-8}
    run = Run.begin(CoKG(**options), num_agents=2, objective=hills(False)).steps(8)
    setting = run.state.setting
    assert setting.version == 1 + run.state.renewals
    assert run.state.renewals == 3
    mesh = run.algorithm.points(SQUARE)
    assert any(not (mesh == pivot).all(axis=1).any() for pivot in setting.pivots)
    grid = frame(run.algorithm, SQUARE, setting, run.state.refined)
    assert len(grid.points) == len(mesh) + 16
    found = central_product(grid, [p.increment for p in run.state.posteriors.values()])
    logs = [agent.log for agent in run.agents.values()]
    y = (np.concatenate([log.values for log in logs]) - setting.shift) / setting.scale
    pooled = gp.posterior(np.concatenate([log.points for log in logs]), y, setting.hyperparameters)
    deviation = np.abs(found.mean - pooled.predict(grid.points)[0]) / np.sqrt(
        setting.hyperparameters.outputscale
    )
    assert deviation.max() < 0.02  # the warm-up lies between the points of the set


BOARD = SearchSpace({"a": Int(0, 4), "b": Int(0, 4)})  # 25 configurations, all of them in the point set
OPTIONS = {"num_points": 25, "num_draws": 32, "num_starts": 1, "rank_cut": 1e-10}


def bowl(config, context):
    a, b = (config[name] / 4 for name in ("a", "b"))
    return 3.0 - (a - 0.7) ** 2 - 2 * (b - 0.3) ** 2 + 0.1 * context.rng.standard_normal()


class Unwaited:
    """A federation in which any agent may be asked or may answer at any time."""

    def __init__(self, num_agents=3, **options):
        algorithm = CoKG(**{**OPTIONS, **options})
        self.run = Run.begin(algorithm, space=BOARD, objective=bowl, num_agents=num_agents)
        self.algorithm, self.under_way = algorithm, dict[str, Task]()

    @property
    def state(self):
        return self.run.state

    def ask(self, server_round, agents, seed=0, phase=Phase.TRAIN):
        run, rng = self.run, np.random.default_rng(seed)
        run.state = informed(run.state, under_way=dict(self.under_way))
        run.state, tasks = self.algorithm.ask(run.state, phase, server_round, agents, rng)
        self.under_way |= tasks
        return tasks

    def answer(self, *agents, phase=Phase.TRAIN):
        run = self.run
        reports = {a: run.agents[a].answer(self.algorithm, self.under_way.pop(a)) for a in agents}
        run.state = self.algorithm.tell(run.state, phase, Replies(reports))

    def warmed_up(self, rounds=3):
        names = list(self.run.agents)
        for number in range(1, rounds + 1):
            self.ask(number, names)
            self.answer(*names)
        return self


def test_a_proposal_is_the_best_one_given_fantasies_at_the_points_under_way():
    """The product is the posterior of all trials; the oracle conditions this exact process."""
    federation = Unwaited(central="product", beta=0.0).warmed_up()
    federation.ask(4, ["0", "1"])
    pending = [federation.under_way[a].arrays["point"] for a in ("0", "1")]
    task = federation.ask(4, ["2"], seed=7)["2"]

    algorithm, setting = federation.algorithm, federation.state.setting
    points = algorithm.points(BOARD)
    history = [agent.log for agent in federation.run.agents.values()]
    x = BOARD.features(np.concatenate([log.points for log in history]))
    y = (np.concatenate([log.values for log in history]) - setting.shift) / setting.scale
    exact = gp.posterior(x, y, setting.hyperparameters)
    mean, covariance = exact.mean(BOARD.features(points)), exact.covariance(BOARD.features(points))
    index = [int(np.flatnonzero((points == p).all(axis=1))[0]) for p in pending]
    draws = centred_draws(OPTIONS["num_draws"], 3, np.random.default_rng(7))
    noise = setting.hyperparameters.noise_variance
    gains = [fantasies(mean, covariance, noise, [*index, z], draws).max(axis=1).mean() for z in range(25)]
    np.testing.assert_array_equal(task.arrays["point"], points[int(np.argmax(gains))])


@pytest.mark.parametrize(
    ("framework", "acquisition"),
    [("barycenter-qkg", "kg"), ("barycenter-qkg", "es"), ("data-communication", "ei")],
)
def test_a_point_under_way_sends_the_next_agent_elsewhere(framework, acquisition):
    options = {"framework": framework, "acquisition": acquisition, "noise_variance": 1e-6}
    alone, after = (Unwaited(**options).warmed_up() for _ in range(2))
    own = alone.ask(4, ["2"], seed=7)["2"].arrays["point"]
    after.under_way["0"] = Task(Phase.TRAIN, 4, 7, 1, {"point": own})
    assert not (after.ask(4, ["2"], seed=7)["2"].arrays["point"] == own).all()


def test_with_own_gains_it_is_eq_6_with_the_entries_of_agents_at_work_given():
    first, second = (Unwaited(beta=1.0, num_agents=2).warmed_up() for _ in range(2))
    both = first.ask(4, ["0", "1"], seed=3)
    second.under_way["0"] = both["0"]
    np.testing.assert_array_equal(
        second.ask(4, ["1"], seed=3)["1"].arrays["point"], both["1"].arrays["point"]
    )  # no agent moves alone in the joint optimum


def test_if_nobody_is_at_work_the_tasks_are_those_of_a_round():
    ours = Unwaited().warmed_up(2)
    usual = Run.begin(CoKG(**OPTIONS), space=BOARD, objective=bowl)
    for number in (1, 2, 3):
        rng = np.random.default_rng(0)
        usual.state, tasks = usual.algorithm.ask(usual.state, Phase.TRAIN, number, ["0", "1", "2"], rng)
        if number == 3:
            assert same(tasks, ours.ask(3, ["0", "1", "2"]))
            return
        reports = {a: usual.agents[a].answer(usual.algorithm, t) for a, t in tasks.items()}
        usual.state = usual.algorithm.tell(usual.state, Phase.TRAIN, Replies(reports))


def test_an_answer_under_an_earlier_prior_is_not_read_as_one_under_the_present():
    federation = Unwaited(central="product", refit=3).warmed_up(5)
    federation.ask(6, ["0", "1", "2"])
    federation.answer("1", "2")
    version = federation.state.setting.version
    for number in (7, 8, 9):
        federation.ask(number, ["1", "2"])
        federation.answer("1", "2")
    assert federation.state.setting.version > version
    known = set(federation.state.known("keep"))
    assert known == {"1", "2"}
    federation.answer("0")
    assert set(federation.state.known("keep")) == known
    assert "point" not in federation.ask(9, ["0"])["0"].arrays, "it chooses for itself once"
    federation.answer("0")
    assert set(federation.state.known("keep")) == {"0", "1", "2"}
    assert "point" in federation.ask(9, ["0"])["0"].arrays


def test_a_point_under_way_that_left_the_point_set_still_counts():
    federation = Unwaited(central="product", num_refined=6, refine_every=1, beta=0.0).warmed_up(4)
    gone = BOARD.snap(np.array([[0.5, 0.5]]))[0] + 0.01
    federation.under_way["0"] = Task(Phase.TRAIN, 4, 9, 1, {"point": gone})
    state = federation.state
    grid = frame(federation.algorithm, BOARD, state.setting, state.refined)
    assert not (grid.points == gone).all(axis=1).any()
    point = federation.ask(5, ["2"])["2"].arrays["point"]
    assert (point == grid.points).all(axis=1).any() or (point == gone).all()


def test_agents_that_work_when_the_study_ends_get_what_the_server_knows():
    for options in ({}, {"central": "product"}, {"framework": "data-communication"}):
        federation = Unwaited(**options).warmed_up(3)
        federation.ask(4, ["0", "1", "2"])
        federation.answer("1", "2")
        assert set(federation.ask(5, ["1", "2"], phase=Phase.FINISH)) == {"1", "2"}
        federation.answer("1", "2", phase=Phase.FINISH)
        assert set(federation.algorithm.results(federation.state).recommendations) == {"0", "1", "2"}
