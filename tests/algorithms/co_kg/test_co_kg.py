"""Co-KG: what all agents share, how the prior is estimated, and the server against theory."""

import numpy as np
import pytest
from acquisition_cases import fantasies
from contract import SQUARE, Run, over_grid

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg.central import (
    AGAINST,
    ENOUGH,
    agent_weights,
    best_of_agents,
    central_barycenter,
    central_product,
    disagree,
    frame,
    pools,
    settle,
)
from fbo_flower.algorithms.co_kg.central import fitted as shared_hyperparameters
from fbo_flower.algorithms.co_kg.state import CoKGState, SharedPrior, WarmUp, WhitenedPosterior, Work
from fbo_flower.algorithms.messages import Replies, Summand, summands_of
from fbo_flower.algorithms.records import Phase, Report, Task
from fbo_flower.algorithms.server import informed
from fbo_flower.errors import WireError
from fbo_flower.numerics.acquisition.expected_improvement import centred_draws
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric as pack_lower
from fbo_flower.numerics.acquisition.knowledge_gradient import knowledge_gradient_from_factor
from fbo_flower.numerics.aggregation.agreement import moments
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates import shared_hyperparameters as grid
from fbo_flower.numerics.surrogates.shared_hyperparameters import own
from fbo_flower.space import Categorical, Float, Int, SearchSpace

SMALL = {"num_points": 49, "num_draws": 16, "num_starts": 1}


def test_beta_is_log_2t_plus_1_or_1_or_falling_or_a_number():
    assert [CoKG().weight(t) for t in (1, 7)] == [np.log(3), np.log(15)]
    assert CoKG(beta="constant").weight(9) == 1.0
    assert CoKG(beta="exp").weight(4) == np.exp(-2)
    assert CoKG(beta=0.25).weight(3) == 0.25
    assert CoKG(framework="barycenter-qkg").weight(3) == 0.0


def test_a_configuration_is_in_the_point_set_once():
    space = SearchSpace({"kind": Categorical(["a", "b"]), "x": Float(0.0, 1.0)})
    points = CoKG(mesh=8).points(space)
    assert points.shape == (16, 2)
    assert len(np.unique(points, axis=0)) == 16
    np.testing.assert_array_equal(space.snap(points), points)


def test_hyperparameters_are_averaged_as_logarithms_in_the_shared_units():
    told = np.array([3.0, 0.0, 2.0])
    thetas = [np.log([0.2, 0.2, 8.0, 0.4]), np.log([0.8, 0.8, 2.0, 0.1])]  # in units of the values
    warm_ups = {a: WarmUp(told, theta) for a, theta in zip("01", thetas, strict=True)}
    h = settle(CoKG(), SQUARE, warm_ups, None).hyperparameters
    np.testing.assert_allclose(h.lengthscales, 0.4)
    assert h.outputscale == pytest.approx(4.0 / 2.0**2)
    assert h.noise_variance == pytest.approx(0.2 / 2.0**2)
    known = settle(CoKG(noise_variance=0.02), SQUARE, warm_ups, None).hyperparameters
    assert known.noise_variance == pytest.approx(0.02 / 2.0**2)
    floored = settle(CoKG(noise_floor=0.5), SQUARE, warm_ups, None).hyperparameters
    assert floored.noise_variance == pytest.approx(0.5)


def test_before_three_successes_an_agent_says_nothing_of_its_values():
    def objective(config, context):
        return config["x"] if context.trial < 2 else None

    run = Run.begin(CoKG(num_points=49), objective=objective).steps(2)
    assert all(e.report.arrays == {} for e in run.exchanges)
    assert run.state.setting is None


PIVOTS = np.random.default_rng(0).random((3, 2))
PRIOR = SharedPrior(1, gp.Hyperparameters("rbf", np.full(2, 0.3), 1.0, 0.01), 0.0, 1.0, PIVOTS)
NO_COVARIANCE = pack_lower(np.diag([1.0, -0.1, 1.0]))
BEST = {"best": np.array([3]), "best_mean": np.array([0.5])}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"mean": np.zeros(3), "covariance": NO_COVARIANCE}, "positive semi-definite"),
        ({"mean": np.zeros(3), "covariance": pack_lower(2 * np.eye(3))}, "up to the prior's 1, got 2"),
        ({"mean": np.zeros(3), "covariance": pack_lower(np.eye(4))}, r"expected \(6,\), got \(10,\)"),
        ({"mean": np.zeros(2), "covariance": pack_lower(np.eye(3))}, r"mean: expected \(3,\)"),
        ({"mean": np.zeros(3)}, "covariance: expected"),
        ({"precision": pack_lower(-np.eye(3)), "shift": np.zeros(3)}, "precision: expected positive semi"),
        ({"precision": pack_lower(np.eye(3))}, "shift: expected"),
        *(({"moments": np.array(m, dtype=float)}, "moments: expected") for m in (
            (0, 1, 1), (2.5, 1, 1), (1e300, 1, 1), (3, 1, -1),
        )),
        ({"theta": np.zeros(4)}, "theta: expected with moments"),
        *(({name: array}, "best_mean") for name, array in BEST.items()),
    ],
)  # fmt: skip
def test_a_report_of_impossible_values_is_refused(arrays, message):
    task = PRIOR.work().task(Phase.TRAIN, 3, 7, 0)
    CoKG().check_report(task, Report(7, 0, 0, BEST))
    with pytest.raises(WireError, match=message):
        CoKG().check_report(task, Report(7, 0, 0, arrays))


def test_an_agent_that_sends_noise_weighs_little_by_reliability_and_as_much_as_others_uniformly():
    run = Run.begin(CoKG(**SMALL), num_agents=4, objective=lambda c, x: -((c["x"] - 0.4) ** 2)).steps(5)
    grid = frame(run.algorithm, SQUARE, run.state.setting, None)
    posteriors = [run.state.posteriors[a] for a in "0123"]
    noise = 5.0 * np.random.default_rng(0).standard_normal(len(posteriors[3].mean))
    posteriors[3] = WhitenedPosterior(1, 5, noise, posteriors[3].covariance)
    np.testing.assert_allclose(agent_weights(run.algorithm, grid, posteriors), 0.25)
    weights = agent_weights(CoKG(weights="reliability", num_points=49), grid, posteriors)
    assert weights[3] < 0.02
    assert weights.sum() == pytest.approx(1.0)


def test_of_equal_maxima_the_first_agent_is_named_and_an_agent_that_weighs_little_recommends_nothing():
    algorithm = CoKG(num_points=16)
    setting = settle(algorithm, SQUARE, {"0": WarmUp(np.array([3.0, 0.0, 1.0]))}, None)
    grid = frame(algorithm, SQUARE, setting, None)
    at, identity = np.linalg.pinv(grid.basis), np.eye(grid.basis.shape[1])

    def best(means, weights=None):
        posteriors = {agent: WhitenedPosterior(1, 2, mean, identity) for agent, mean in means.items()}
        return best_of_agents(grid, posteriors, 4, weights)

    equal = best({"10": at[:, 5], "2": at[:, 5]})
    assert (equal.agent, equal.round) == ("2", 4)
    np.testing.assert_array_equal(equal.point, grid.points[5])
    weights = None, np.array([0.8, 0.2]), np.array([0.7, 0.3])
    assert [best({"0": at[:, 5], "1": 9.0 * at[:, 7]}, w).agent for w in weights] == ["1", "0", "1"]


# -- one agent lies ----------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-3, -1e300])
def test_by_reliability_one_liar_does_not_spoil_the_units_and_the_prior(factor):
    """Three agents say about the same, but the last says `factor` times as much."""
    rng, theta = np.random.default_rng(5), np.log([0.3, 0.3, 4.0, 0.04])
    told = {a: (moments(rng.normal(3.0, 2.0, 5)), theta + 0.1 * rng.standard_normal(4)) for a in "0123"}
    truth = {a: WarmUp(*said) for a, said in told.items()}
    lie = truth["3"].moments * np.array([1.0, factor, abs(factor)])
    lying = {**truth, "3": WarmUp(lie, theta + np.log(abs(factor)))}
    careful = CoKG(weights="reliability")
    honest, found, spoilt = (
        settle(options, SQUARE, warm_ups, None)
        for options, warm_ups in ((careful, truth), (careful, lying), (CoKG(), lying))
    )
    assert abs(found.shift - honest.shift) < 3.0 * honest.scale
    assert 0.4 < found.scale / honest.scale < 6.0
    right, *others = (s.hyperparameters.lengthscales for s in (honest, found, spoilt))
    np.testing.assert_allclose(others[0], right, rtol=0.2)
    assert np.abs(np.log(others[1] / right)).min() > np.log(3.0)  # as the plain mean is


def warm_up(options, agent):
    rng = np.random.default_rng(agent)
    x = rng.random((8, 2))
    y = np.sin(4.0 * x[:, 0]) + 0.3 * rng.standard_normal(8)
    log_likelihoods, theta = own(x, y, options.kernel, 1.0, isotropic=options.isotropic)
    return WarmUp(np.array([8.0, 0.0, 1.0]), theta, log_likelihoods)


def test_by_reliability_one_liar_does_not_decide_the_prior():
    options = CoKG(weights="reliability")
    honest = [warm_up(options, agent) for agent in range(4)]
    lie = np.full(grid.SIZE, grid.LOWEST)
    lie[0] = -grid.LOWEST  # the shortest lengthscale, the least noise
    lying = [*honest[:3], WarmUp(honest[3].moments, None, lie)]
    truth, found, spoilt = (
        shared_hyperparameters(o, w, 1.0, 2).to_array()
        for o, w in ((options, honest), (options, lying), (CoKG(), lying))
    )
    assert np.abs(found - truth).max() < np.log(4.0)
    assert np.abs(spoilt - truth).max() > np.log(100.0)


def test_one_lengthscale_per_parameter_has_the_ratios_of_the_agents_fits():
    told = [warm_up(CoKG(isotropic=False), agent) for agent in range(3)]
    found = np.log(shared_hyperparameters(CoKG(isotropic=False), told, 1.0, 2).lengthscales)
    assert np.diff(found) == pytest.approx(np.diff(np.mean([w.theta[:2] for w in told], axis=0)))
    scale = grid.estimate(sum(w.log_likelihoods for w in told))[0]
    assert found.mean() == pytest.approx(np.log(grid.reference(2)) + scale)


@pytest.mark.parametrize("factor", [1e-15, 1.0, 1e15])
def test_secure_sums_find_the_units_of_small_and_large_values(factor):
    told = [WarmUp(np.array([5.0, factor * m, factor * s])) for m, s in ((1.0, 2.0), (-3.0, 0.5))]
    task = Work(fit=True).task(Phase.TRAIN, 1, 0, 1)
    layout = summands_of(CoKG(secure_sums=2), SQUARE, task)
    assert layout["power_sums"] == Summand((5, 3), 1e15)
    sums = {name: np.zeros(summand.shape) for name, summand in layout.items()}
    for agent in told:
        sums["power_sums"] += np.round(agent.to_sums().power_sums * 2.0**64) / 2.0**64  # fixed point
    found = WarmUp.from_sums(sums).moments
    assert found[0] == 10.0
    assert found[1] == pytest.approx(-factor, rel=1e-9)
    assert found[2] == pytest.approx(factor * np.sqrt((4.0 + 0.25) / 2 + 4.0), rel=1e-9)


BOARD = SearchSpace({"a": Int(0, 4), "b": Int(0, 4)})  # every configuration is in the point set
EXACT = {"num_points": 25, "num_draws": 32, "rank_cut": 1e-10}
FEW = {"num_points": 49, "num_draws": 16}


def bowl(config, context):
    """One smooth objective for all agents, with noise from the trial's own generator."""
    a, b = (config[name] / 4 for name in ("a", "b"))
    return 3.0 - (a - 0.7) ** 2 - 2 * (b - 0.3) ** 2 + 0.1 * context.rng.standard_normal()


def exact(agent, setting):
    """An agent's posterior by the textbook."""
    y = (agent.log.values - setting.shift) / setting.scale
    return gp.posterior(agent.space.features(agent.log.points), y, setting.hyperparameters)


@pytest.mark.parametrize("central", ["barycenter", "product"])
def test_the_server_holds_each_agents_posterior_on_the_whole_point_set(central):
    algorithm = CoKG(central=central, **EXACT)
    run = Run.begin(algorithm, space=BOARD, objective=bowl).steps(6)
    setting = run.state.setting
    grid = frame(algorithm, BOARD, setting, None)
    for name, agent in run.agents.items():
        belief, posterior = run.state.posteriors[name], exact(agent, setting)
        features = BOARD.features(grid.points)
        np.testing.assert_allclose(grid.basis @ belief.mean, posterior.predict(features)[0], atol=1e-6)
        covariance = grid.basis @ belief.covariance @ grid.basis.T
        np.testing.assert_allclose(covariance, posterior.covariance(features), atol=1e-6)
        alone = central_barycenter(algorithm, grid, [belief], np.ones(1), None)  # one agent is its own
        np.testing.assert_allclose(alone.mean, grid.basis @ belief.mean, atol=1e-9)
        np.testing.assert_allclose(alone.factor @ alone.factor.T, covariance, atol=1e-6)
    if central == "product":  # it is the posterior of all trials together
        logs = run.histories().values()
        y = (np.concatenate([log.values for log in logs]) - setting.shift) / setting.scale
        x = BOARD.features(np.concatenate([log.points for log in logs]))
        pooled = gp.posterior(x, y, setting.hyperparameters)
        found = central_product(grid, [belief.increment for belief in run.state.posteriors.values()])
        np.testing.assert_allclose(found.mean, pooled.predict(features)[0], atol=1e-6)
        np.testing.assert_allclose(found.factor @ found.factor.T, pooled.covariance(features), atol=1e-6)


def test_limits_of_co_kg_are_its_comparators():
    def points(**options):
        run = Run.begin(CoKG(**EXACT, **options), space=BOARD, objective=bowl).steps(6)
        return [log.points.tobytes() for log in run.histories().values()]

    comparators = [points(framework=f) for f in ("data-communication", "no-collaboration", "barycenter-qkg")]
    assert points(central="product", beta=0) == comparators[0]
    assert points(beta=1e6) == comparators[1]
    assert points(beta=0) == comparators[2]
    assert len({*map(tuple, comparators), tuple(points(beta=1))}) == 4


def test_without_collaboration_every_agent_follows_its_own_exact_knowledge_gradient():
    algorithm = CoKG(framework="no-collaboration", num_points=25, rank_cut=1e-10)
    run = Run.begin(algorithm, space=BOARD, objective=bowl).steps(4)
    setting, points, expected = run.state.setting, algorithm.points(BOARD), {}
    for name, agent in run.agents.items():
        posterior, features = exact(agent, setting), BOARD.features(points)
        variances, axes = np.linalg.eigh(posterior.covariance(features))
        belief = posterior.predict(features)[0], axes * np.sqrt(variances.clip(0))
        gain = knowledge_gradient_from_factor(*belief, setting.hyperparameters.noise_variance)
        expected[name] = points[np.argmax(gain)]
    run.step()
    for name, point in expected.items():
        np.testing.assert_array_equal(run.agents[name].log.points[-1], point)
    assert not any("point" in e.task.arrays for e in run.exchanges)
    assert not any({"mean", "covariance"} & set(e.report.arrays) for e in run.exchanges)


@pytest.mark.parametrize("stale", ["keep", "drop"])
def test_an_agent_that_did_not_answer_counts_with_its_last_posterior_or_not_at_all(stale):
    run = Run.begin(CoKG(stale=stale, **FEW), num_agents=3).steps(3).step(lost=["1"])
    assert set(run.state.known(stale)) == ({"0", "1", "2"} if stale == "keep" else {"0", "2"})
    run.step()
    tasks = {e.agent: e.task for e in run.exchanges[-3:]}
    gone = {"1"} if stale == "drop" else set()
    assert {a for a, t in tasks.items() if "point" in t.arrays} == set(run.state.posteriors) - gone


def test_a_study_says_what_was_recommended_and_which_agent_has_another_objective():
    def objective(config, context):
        return bowl(config, context) * (-1.0 if context.agent == "2" else 1.0)

    study = over_grid("co-kg", objective, BOARD, 4, 8, central="product", num_points=25, num_draws=16)
    found = study.settings["runs"][0]["found"]
    assert [row["round"] for row in found["recommended"]] == [2, 3, 4, 5, 6, 7, 8]
    assert [row["round"] for row in found["agreement"]] == [2, 4, 8]
    p_values = found["agreement"][-1]["p_values"]
    assert min(p_values, key=p_values.get) == "2"
    assert p_values["2"] < 1e-4
    configs = [row["config"] for row in study.recommendations]
    assert configs == [found["recommended"][-1]["config"]] * 4


def test_hyperparameters_are_estimated_again_on_schedule():
    run = Run.begin(CoKG(**FEW, refit=2), num_agents=2)
    versions, asked = [], []
    for _ in range(8):
        run.step()
        versions.append(0 if run.state.setting is None else run.state.setting.version)
        asked.append("fit" in run.exchanges[-1].task.values)
    assert asked == [True, False, False, True, False, True, False, True]
    assert versions == [0, 1, 1, 1, 2, 2, 3, 3]
    assert all(belief.version == 3 for belief in run.state.posteriors.values())


AUTO = {"central": "auto", "num_points": 100, "num_draws": 16, "num_starts": 1}
CENTRES = ((0.21, 0.83), (0.77, 0.34), (0.32, 0.18), (0.9, 0.9))


def peaks(differ):
    """One hill for all agents at (.21, .83), or each agent's own."""

    def objective(config, context):
        x, y = CENTRES[int(context.agent) if differ else 0]
        distance = (config["x"] - x) ** 2 + (config["y"] - y) ** 2
        return float(np.exp(-6.0 * distance)) + 0.05 * context.rng.standard_normal()

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


def test_agents_with_their_own_objectives_choose_for_themselves():
    run = Run.begin(CoKG(**AUTO), num_agents=4, objective=peaks(True)).steps(10)
    assert run.state.evidence[-1][1] < AGAINST
    assert run.state.recommended[-1].agent != ""
    assert not [e for e in run.exchanges if e.task.round == 10 and "point" in e.task.arrays]


def test_agents_with_one_objective_are_pooled_and_the_evidence_is_reported():
    run = Run.begin(CoKG(**AUTO), num_agents=4, objective=peaks(False)).steps(10)
    assert run.state.evidence[-1][1] > ENOUGH
    assert run.state.recommended[-1].agent == ""
    assert {e.agent for e in run.exchanges if e.task.round == 10 and "point" in e.task.arrays} == set("0123")
    np.testing.assert_allclose(run.state.recommended[-1].point, CENTRES[0], atol=0.1)
    found = run.algorithm.results(run.state).found["evidence"]
    assert [row["round"] for row in found] == list(range(2, 11))
    lines = run.algorithm.progress_lines(run.state, CoKGState(SQUARE))
    assert any("central model: product" in line for line in lines)
    assert run.algorithm.progress_lines(run.state, run.state) == []


class Unwaited:
    """A federation in which any agent may be asked or may answer at any time."""

    def __init__(self, num_agents=3, **options):
        algorithm = CoKG(**{**EXACT, **options})
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
    draws = centred_draws(EXACT["num_draws"], 3, np.random.default_rng(7))
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
    point = federation.ask(5, ["2"])["2"].arrays["point"]
    grid = frame(federation.algorithm, BOARD, federation.state.setting, federation.state.refined)
    assert (point == np.vstack([grid.points, gone])).all(axis=1).any()


def test_agents_that_work_when_the_study_ends_get_what_the_server_knows():
    for options in ({}, {"central": "product"}, {"framework": "data-communication"}):
        federation = Unwaited(**options).warmed_up(3)
        federation.ask(4, ["0", "1", "2"])
        federation.answer("1", "2")
        assert set(federation.ask(5, ["1", "2"], phase=Phase.FINISH)) == {"1", "2"}
        federation.answer("1", "2", phase=Phase.FINISH)
        assert set(federation.algorithm.results(federation.state).recommendations) == {"0", "1", "2"}
