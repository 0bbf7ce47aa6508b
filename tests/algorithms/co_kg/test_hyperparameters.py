"""The shared prior is estimated from all agents' observations, whatever the unit of the objective."""

from __future__ import annotations

import numpy as np
import pytest
from contract import SQUARE, Run

from fbo_flower.algorithms import CoKG
from fbo_flower.algorithms.co_kg.agent import first_points
from fbo_flower.algorithms.co_kg.central import fitted as shared_hyperparameters
from fbo_flower.algorithms.co_kg.state import WarmUp, Work
from fbo_flower.algorithms.messages import Summand
from fbo_flower.algorithms.records import Phase
from fbo_flower.numerics.surrogates import shared_hyperparameters as grid
from fbo_flower.numerics.surrogates.shared_hyperparameters import own

SMALL = {"num_points": 49, "num_draws": 16, "num_starts": 1}
NOISE_STDDEV = 0.3


def hill(factor=1.0, offset=0.0):
    """One hill for all agents, with a lot of noise, in another unit."""

    def objective(config, context):
        distance = (config["x"] - 0.7) ** 2 + (config["y"] - 0.2) ** 2
        noise = NOISE_STDDEV * context.rng.standard_normal()
        return offset + factor * (3.0 * np.exp(-8.0 * distance) + noise)

    return objective


def data(agent, num_points=8):
    rng = np.random.default_rng(agent)
    x = rng.random((num_points, 2))
    return x, np.sin(4.0 * x[:, 0]) + 0.3 * rng.standard_normal(num_points)


def warm_up(options, agent, factor=1.0):
    x, y = data(agent)
    log_likelihoods, theta = own(x, factor * y, options.kernel, 1.0, isotropic=options.isotropic)
    return WarmUp(np.array([8.0, 0.0, 1.0]), theta, log_likelihoods)


# -- the warm-up -------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_points", "num_repeated", "num_different"), [
    (5, 1, 4), (5, 0, 5), (3, 1, 3), (4, 1, 3), (5, 4, 3), (16, 4, 12), (16, 100, 8),
])  # fmt: skip
def test_the_warm_up_repeats_its_first_points_and_has_three_different_ones(
    num_points, num_repeated, num_different
):
    points = first_points(CoKG(num_repeated=num_repeated), num_points, 2, np.random.default_rng(0))
    assert points.shape == (num_points, 2)
    assert len(np.unique(points, axis=0)) == num_different
    np.testing.assert_array_equal(points[num_different:], points[: num_points - num_different])


def test_the_noise_of_the_warm_up_is_of_the_right_size():
    """Median of 5 federations; without a repeated point, as a control, it is not."""
    found = {}
    for num_repeated in (0, 1):
        noises = []
        for seed in range(5):
            algorithm = CoKG(**SMALL, num_repeated=num_repeated)
            setting = Run.begin(algorithm, num_agents=4, seed=seed, objective=hill()).steps(2).state.setting
            noises.append(setting.hyperparameters.noise_variance * setting.scale**2)
        found[num_repeated] = float(np.median(noises)) / NOISE_STDDEV**2
    assert 1 / 3 < found[1] < 3
    assert found[0] < 1 / 3


def test_a_refit_uses_values_in_the_shared_units():
    run = Run.begin(CoKG(**SMALL, refit=2), num_agents=4, objective=hill(factor=50.0)).steps(2)
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
        np.testing.assert_allclose(
            e.report.arrays["log_likelihoods"], grid.log_likelihoods(log.points[seen], y, "rbf", np.ones(2))
        )


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
    layout = CoKG(secure_sums=2).summands(task, SQUARE)
    assert layout["power_sums"] == Summand((5, 3), 1e15)
    sums = {name: np.zeros(summand.shape) for name, summand in layout.items()}
    for agent in told:
        sums["power_sums"] += np.round(agent.to_sums().power_sums * 2.0**64) / 2.0**64  # fixed point
    found = WarmUp.from_sums(sums).moments
    assert found[0] == 10.0
    assert found[1] == pytest.approx(-factor, rel=1e-9)
    assert found[2] == pytest.approx(factor * np.sqrt((4.0 + 0.25) / 2 + 4.0), rel=1e-9)
