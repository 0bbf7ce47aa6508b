"""Co-KG: the contract under every framework, what all agents share, and how the prior is estimated."""

import numpy as np
import pytest
from contract import SQUARE, AlgorithmContract, Run, check_variant

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg.central import agent_weights, best_of_agents, frame, settle
from fbo_flower.algorithms.co_kg.central import fitted as shared_hyperparameters
from fbo_flower.algorithms.co_kg.co_kg import check_posterior, check_warm_up, first_points
from fbo_flower.algorithms.co_kg.state import SharedPrior, WarmUp, WhitenedPosterior, Work
from fbo_flower.algorithms.messages import Summand, summands_of
from fbo_flower.algorithms.records import Phase, Report, Task
from fbo_flower.errors import WireError
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric as pack_lower
from fbo_flower.numerics.aggregation.agreement import moments
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.surrogates import shared_hyperparameters as grid
from fbo_flower.numerics.surrogates.shared_hyperparameters import own
from fbo_flower.space import Categorical, Float, SearchSpace

SMALL = {"num_points": 49, "num_draws": 16, "num_starts": 1}


class TestBarycenter(AlgorithmContract):
    def make(self):
        return CoKG(**SMALL)


class TestAuto(AlgorithmContract):
    def make(self):
        return CoKG(**SMALL, central="auto", refit="doubling", refine_every=2)


@pytest.mark.parametrize(
    "options",
    [
        {"central": "product", "num_refined": 25, "refine_every": 1, "acquisition": "ei"},
        {"weights": "reliability", "stale": "drop", "refit": 1, "mean_noise_stddev": 0.1},
        {"framework": "no-collaboration", "transform": "asinh"},
        {"framework": "data-communication", "isotropic": False, "acquisition": "es", "kernel": "matern52"},
    ],
    ids=["product", "reliability", "no-collaboration", "data-communication"],
)
def test_options_break_nothing_that_every_algorithm_keeps(options):
    discloses = options.get("framework") == "data-communication"
    check_variant(CoKG(**SMALL, **options), AlgorithmContract, reports_values=discloses)


# -- options -----------------------------------------------------------------------------------


def test_beta_is_log_2t_plus_1_or_1_or_falling_or_a_number():
    assert [CoKG().weight(t) for t in (1, 7)] == [np.log(3), np.log(15)]
    assert CoKG(beta="constant").weight(9) == 1.0
    assert CoKG(beta="exp").weight(4) == np.exp(-2)
    assert CoKG(beta=0.25).weight(3) == 0.25
    assert CoKG(framework="barycenter-qkg").weight(3) == 0.0


# -- the point set -----------------------------------------------------------------------------


def test_a_configuration_is_in_the_point_set_once():
    space = SearchSpace({"kind": Categorical(["a", "b"]), "x": Float(0.0, 1.0)})
    points = CoKG(mesh=8).points(space)
    assert points.shape == (16, 2)
    assert len(np.unique(points, axis=0)) == 16
    np.testing.assert_array_equal(space.snap(points), points)


# -- units and prior ---------------------------------------------------------------------------


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


# -- reports -----------------------------------------------------------------------------------


def setting_of(size):
    pivots = np.random.default_rng(0).random((size, 2))
    return SharedPrior(1, gp.Hyperparameters("rbf", np.full(2, 0.3), 1.0, 0.01), 0.0, 1.0, pivots)


NO_COVARIANCE = pack_lower(np.diag([1.0, -0.1, 1.0]))


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
    ],
)
def test_a_report_that_is_no_posterior_is_refused(arrays, message):
    with pytest.raises(WireError, match=message):
        check_posterior(Report(0, 1, 0, arrays), setting_of(3))


@pytest.mark.parametrize(
    "arrays",
    [
        *({"moments": np.array(m, dtype=float)} for m in ((0, 1, 1), (2.5, 1, 1), (1e300, 1, 1), (3, 1, -1))),
        {"theta": np.zeros(4)},
    ],
)
def test_moments_that_are_none_are_refused(arrays):
    with pytest.raises(WireError, match=r"moments|theta"):
        check_warm_up(Report(0, 1, 0, arrays))


# -- the central model -------------------------------------------------------------------------


def test_a_maximiser_without_its_value_or_the_other_way_round_is_refused():
    arrays = {"best": np.array([3]), "best_mean": np.array([0.5])}
    task = Task(Phase.FINISH, 9, 7, 0)
    CoKG().check_report(task, Report(7, 0, 0, arrays))
    for name, array in arrays.items():
        with pytest.raises(WireError, match="best_mean"):
            CoKG().check_report(task, Report(7, 0, 0, {name: array}))


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


def mesh_frame():
    algorithm = CoKG(num_points=16)
    setting = settle(algorithm, SQUARE, {"0": WarmUp(np.array([3.0, 0.0, 1.0]))}, None)
    grid = frame(algorithm, SQUARE, setting, None)
    return grid, np.linalg.pinv(grid.basis), np.eye(grid.basis.shape[1])


def test_of_equal_maxima_the_first_agent_is_named():
    grid, at, identity = mesh_frame()
    best = best_of_agents(grid, {a: WhitenedPosterior(1, 2, at[:, 5], identity) for a in ("10", "2")}, 4)
    assert (best.agent, best.round) == ("2", 4)
    np.testing.assert_array_equal(best.point, grid.points[5])


def test_an_agent_that_weighs_little_recommends_nothing():
    grid, at, identity = mesh_frame()
    means = {"0": at[:, 5], "1": 9.0 * at[:, 7]}
    posteriors = {a: WhitenedPosterior(1, 2, mean, identity) for a, mean in means.items()}
    weights = None, np.array([0.8, 0.2]), np.array([0.7, 0.3])
    assert [best_of_agents(grid, posteriors, 4, w).agent for w in weights] == ["1", "0", "1"]


# -- one agent lies ----------------------------------------------------------------------------


def lying(factor):
    """Four agents that say about the same, but the last says `factor` times as much."""
    rng = np.random.default_rng(5)
    told = {str(n): rng.normal(3.0, 2.0, size=5) for n in range(4)}
    theta = np.log([0.3, 0.3, 4.0, 0.04])
    honest = {a: WarmUp(moments(y), theta + 0.1 * rng.standard_normal(4)) for a, y in told.items()}
    lie = honest["3"].moments * np.array([1.0, factor, factor])
    return {**honest, "3": WarmUp(lie, honest["3"].theta + np.log(factor))}


@pytest.mark.parametrize("factor", [1e3, 1e-3, -1e300, 1e300])
def test_by_reliability_one_liar_does_not_spoil_the_units_and_the_prior(factor):
    warm_ups = lying(abs(factor))
    warm_ups["3"].moments[1] *= np.sign(factor)
    careful = CoKG(weights="reliability")
    honest, found, spoilt = (
        settle(options, SQUARE, told, None)
        for options, told in ((careful, lying(1.0)), (careful, warm_ups), (CoKG(), warm_ups))
    )
    assert abs(found.shift - honest.shift) < 3.0 * honest.scale
    assert 0.4 < found.scale / honest.scale < 6.0
    right, *others = (s.hyperparameters.lengthscales for s in (honest, found, spoilt))
    np.testing.assert_allclose(others[0], right, rtol=0.2)
    assert np.abs(np.log(others[1] / right)).min() > np.log(3.0)  # as the plain mean is


NOISE_STDDEV = 0.3


def hill(config, context):
    """One hill for all agents, with a lot of noise."""
    distance = (config["x"] - 0.7) ** 2 + (config["y"] - 0.2) ** 2
    return 3.0 * np.exp(-8.0 * distance) + NOISE_STDDEV * context.rng.standard_normal()


def warm_up(options, agent):
    rng = np.random.default_rng(agent)
    x = rng.random((8, 2))
    y = np.sin(4.0 * x[:, 0]) + 0.3 * rng.standard_normal(8)
    log_likelihoods, theta = own(x, y, options.kernel, 1.0, isotropic=options.isotropic)
    return WarmUp(np.array([8.0, 0.0, 1.0]), theta, log_likelihoods)


# -- the warm-up -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "repeated", "different"),
    [(5, 1, 4), (5, 0, 5), (3, 1, 3), (4, 1, 3), (5, 4, 3), (16, 4, 12), (16, 100, 8)],
)
def test_the_warm_up_repeats_its_first_points_and_has_three_different_ones(number, repeated, different):
    points = first_points(CoKG(num_repeated=repeated), number, 2, np.random.default_rng(0))
    assert points.shape == (number, 2)
    assert len(np.unique(points, axis=0)) == different
    np.testing.assert_array_equal(points[different:], points[: number - different])


def test_the_noise_of_the_warm_up_is_of_the_right_size():
    """Median of 5 federations; without a repeated point, as a control, it is not."""
    found = {}
    for num_repeated in (0, 1):
        noises = []
        for seed in range(5):
            algorithm = CoKG(**SMALL, num_repeated=num_repeated)
            setting = Run.begin(algorithm, num_agents=4, seed=seed, objective=hill).steps(2).state.setting
            noises.append(setting.hyperparameters.noise_variance * setting.scale**2)
        found[num_repeated] = float(np.median(noises)) / NOISE_STDDEV**2
    assert 1 / 3 < found[1] < 3
    assert found[0] < 1 / 3


def test_a_refit_uses_values_in_the_shared_units():
    run = Run.begin(CoKG(**SMALL, refit=2), num_agents=4, objective=lambda c, x: 50.0 * hill(c, x)).steps(2)
    setting = run.state.setting
    run.steps(3)
    renewed = run.state.setting
    assert renewed.version == 2
    assert (renewed.shift, renewed.scale) == (setting.shift, setting.scale)
    at = [e for e in run.exchanges if "log_likelihoods" in e.report.arrays and e.task.round > 1]
    total = sum(e.report.arrays["log_likelihoods"] for e in at)
    expected = shared_hyperparameters(run.algorithm, [WarmUp(np.ones(3), None, total)], setting.scale, 2)
    np.testing.assert_allclose(renewed.hyperparameters.to_array(), expected.to_array(), rtol=1e-9)
    for e in at:
        log = run.agents[e.agent].log
        seen = log.trials < e.task.end
        y = (log.values[seen] - setting.shift) / setting.scale
        expected = grid.log_likelihoods(log.points[seen], y, "rbf", np.ones(2))
        np.testing.assert_allclose(e.report.arrays["log_likelihoods"], expected)


# -- what the server makes of it -----------------------------------------------------------------


def test_summed_likelihoods_give_the_estimate_of_single_ones():
    options = CoKG()
    single = [warm_up(options, agent) for agent in range(3)]
    together = WarmUp(single[0].moments, None, sum(w.log_likelihoods for w in single))
    one, other = (shared_hyperparameters(options, w, 1.0, 2).to_array() for w in (single, [together]))
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_one_lengthscale_per_parameter_has_the_ratios_of_the_agents_fits():
    options = CoKG(isotropic=False)
    told = [warm_up(options, agent) for agent in range(3)]
    found = shared_hyperparameters(options, told, 1.0, 2).lengthscales
    fitted = np.mean([w.theta[:2] for w in told], axis=0)
    assert np.log(found[1] / found[0]) == pytest.approx(fitted[1] - fitted[0])
    scale = grid.estimate(sum(w.log_likelihoods for w in told))[0]
    assert np.log(found).mean() == pytest.approx(np.log(grid.reference(2)) + scale)


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


# -- the unit of the objective ---------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-15, 1e-9, 1.0, 1e3, 1e15])
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
