import numpy as np
import pytest
from contract import FINITE, MIXED, SQUARE, Run, hills
from scipy.stats import ttest_rel

from fbo_flower.algorithms import RandomSearch, ThompsonSampling
from fbo_flower.algorithms.records import AgentState, History
from fbo_flower.algorithms.requests import alone
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.space import Categorical, Float, SearchSpace

SMALL = {"num_candidates": 64, "num_path_features": 64}


def test_thompson_sampling_beats_random_search_on_smooth_functions():
    # paired t-test over 24 seeds, 12 evaluations
    def best(algorithm, seed):
        run = Run.begin(algorithm, num_agents=1, seed=seed, objective=hill(seed)).steps(10)
        return run.histories()["0"].values.max()

    def hill(seed):
        centre = np.random.default_rng(seed).random(2)
        return lambda c, x: -float(np.hypot(c["x"] - centre[0], c["y"] - centre[1]) ** 2)

    ts, rs = (np.array([best(a, s) for s in range(24)]) for a in (ThompsonSampling(), RandomSearch()))
    assert ttest_rel(ts, rs, alternative="greater").statistic > 3
    half = ttest_rel(rs[:12], rs[12:], alternative="greater").statistic  # control: random against itself
    assert abs(half) < 3


CONDITIONAL = SearchSpace(
    {
        "kind": Categorical(["a", "b"]),
        "g": Float(0.0, 1.0, active_when={"kind": "a"}),
        "h": Float(0.0, 1.0, active_when={"kind": "b"}),
        "C": Float(0.0, 1.0),
    }
)


@pytest.mark.parametrize("space", [SQUARE, MIXED, CONDITIONAL], ids=["square", "mixed", "conditional"])
def test_no_point_comes_close_to_an_earlier_one(space):
    algorithm = ThompsonSampling()
    run = Run.begin(algorithm, space=space, num_agents=5, objective=hills(space, noise=0.0)).steps(15)
    for agent in run.agents.values():
        features = space.features(agent.agent_state.history.points)
        for i in range(algorithm.num_initial, len(features)):
            distance = np.linalg.norm(features[:i] - features[i], axis=1).min()
            assert distance >= algorithm.distance(agent.agent_state) - 1e-12


def test_an_inactive_parameter_does_not_move_the_maximiser():
    # flat in everything active, steep in `g`: where `g` is inactive the climb must not leave through it
    features = draw_features(40, np.array([1e3, 1e3, 0.3, 1e3, 1e3]), 5, np.random.default_rng(0))
    function = LinearFunction(features, np.random.default_rng(1).standard_normal(40))
    algorithm = ThompsonSampling()
    agent_state = AgentState(CONDITIONAL, History.empty(4))
    for seed in range(5):
        (point,) = alone(algorithm.maximising(function, agent_state, np.random.default_rng(seed))).points
        np.testing.assert_array_equal(CONDITIONAL.snap(point[None])[0], point)
        grid = CONDITIONAL.snap(np.random.default_rng(9).random((2000, 4)))
        assert (
            function(CONDITIONAL.features(point[None]))[0]
            >= function(CONDITIONAL.features(grid)).max() - 1e-3
        )


def test_a_finite_space_is_searched_completely_before_anything_repeats_by_choice():
    run = Run.begin(ThompsonSampling(num_initial=1), space=FINITE, num_agents=4).steps(4)
    for history in run.histories().values():
        assert len(np.unique(history.points, axis=0)) == FINITE.num_configs


def test_one_dimension_has_room_for_many_trials():
    line = SearchSpace({"x": Float(0.0, 1.0)})
    algorithm = ThompsonSampling()
    run = Run.begin(algorithm, space=line, num_agents=1, objective=hills(line)).steps(60)
    points = np.sort(run.histories()["0"].points[:, 0])
    assert np.diff(points).min() >= 0.001 - 1e-12


def test_hyperparameters_are_refitted_on_schedule():
    run = Run.begin(ThompsonSampling(**SMALL), num_agents=1)
    fitted = []
    for _ in range(22):
        run.step()
        fitted.append(int(run.agents["0"].agent_state.arrays["fitted_at"][0]))
    # every observation up to 10, then after a fifth more
    assert fitted[:8] == [3, 4, 5, 6, 7, 8, 9, 10]
    assert sorted(set(fitted[7:])) == [10, 12, 14, 16, 19, 22]


def test_posterior_draws_explore_before_they_exploit():
    spread = []
    for scale in (0.0, 3.0):
        run = Run.begin(
            ThompsonSampling(deviation_scale=scale), num_agents=3, objective=hills(SQUARE, 0.0)
        ).steps(12)
        spread.append(np.mean([h.points[6:].std(axis=0).mean() for h in run.histories().values()]))
    assert spread[1] > 1.3 * spread[0]
