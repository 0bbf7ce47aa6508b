"""The maximisers, and Thompson sampling: integers follow the function, floats its gradient."""

import numpy as np
import pytest
from contract import FINITE, MIXED, SQUARE, Run, hills, same
from scipy.stats import ttest_rel

from fbo_flower.algorithms import RandomSearch, ThompsonSampling
from fbo_flower.algorithms.records import AgentState, Trials
from fbo_flower.algorithms.search import maximise, neighbours, search, variations
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.space.held import held_space

COUNTS = SearchSpace({f"n{i}": Int(1, 40) for i in range(4)})
TWO = SearchSpace({"n": Int(1, 9), "size": Ordinal(["s", "m", "l"]), "x": Float(0, 1)})
RNG = np.random.default_rng(0)
NO_CENTRES = np.empty((0, 2))


class Bowl:
    """Minus the squared distance from a centre `(F,)`."""

    def __init__(self, centre):
        self.centre = np.asarray(centre)

    def __call__(self, z):
        return -((z - self.centre) ** 2).sum(axis=1)

    def value_and_gradient(self, z):
        return self(z), -2 * (z - self.centre)


def best(function, space, moves, seen=None, seed=0, num_candidates=32, distance=0.0):
    seen = np.empty((0, space.dimension)) if seen is None else seen
    rng = np.random.default_rng(seed)
    return maximise(function, space, seen, num_candidates, distance, rng, integer_moves=moves)


@pytest.mark.parametrize("seed", range(2))
def test_integers_reach_the_optimum_that_no_candidate_holds_and_keep_the_distance_from_seen_points(seed):
    centre = np.random.default_rng(seed).random(4)
    optimum = COUNTS.snap(centre[None, :])
    assert same(best(Bowl(centre), COUNTS, True, seed=seed), optimum)
    assert not same(best(Bowl(centre), COUNTS, False, seed=seed), optimum)
    apart = best(Bowl(centre), COUNTS, True, seen=optimum, seed=seed, distance=0.03)
    assert np.linalg.norm(COUNTS.features(apart) - COUNTS.features(optimum)) >= 0.03


def test_the_result_is_the_best_of_all_configurations_of_a_small_space():
    # a bowl has no local optimum besides its global one, so moves find the one of brute force
    space = SearchSpace({"n": Int(1, 9), "size": Ordinal(["s", "m", "l"])})
    points = np.array([space.encode({"n": n, "size": s}) for n in range(1, 10) for s in ("s", "m", "l")])
    for seed in range(6):
        function = Bowl(np.random.default_rng(seed).random(2))
        expected = points[np.argmax(function(space.features(points)))]
        assert same(best(function, space, True, seed=seed, num_candidates=2)[0], expected)


def test_floats_are_polished_after_a_move():
    found = best(Bowl(TWO.features(TWO.snap(np.array([[0.7, 0.9, 0.123456]])))[0]), TWO, True)
    assert found[0, 2] == pytest.approx(0.123456, abs=1e-3)


# -- of expected improvement: candidates, climbing, changes of discrete values ---------------------------


@pytest.mark.parametrize("centre", [(0.3, 0.7), (-0.2, 0.5), (1.4, 1.2)])
def test_the_maximum_within_the_bounds_is_found(centre):
    point = search(Bowl(centre), SQUARE, NO_CENTRES, NO_CENTRES, 64, 0.0, RNG)
    np.testing.assert_allclose(point[0], np.clip(centre, 0, 1), atol=1e-4)


def test_the_maximum_over_the_free_coordinates_of_a_space_is_that_of_the_slice():
    """Oracle: the maximiser of a quadratic on a slice is the centre's projection onto it."""
    centre, seen = np.array([0.2, 0.9, 0.6, 0.4]), np.empty((0, 4))
    space = held_space(SearchSpace({name: Float(0.0, 1.0) for name in "abcd"}), {"b": 0.1, "d": 0.75})
    for found in (
        maximise(Bowl(centre), space, seen, 64, 0.0, RNG),
        search(Bowl(centre), space, seen, centre[None, :], 64, 0.0, RNG),
    ):
        np.testing.assert_allclose(found, [[0.2, 0.1, 0.6, 0.75]], atol=1e-4)


def test_discrete_parameters_change_one_at_a_time_until_nothing_improves():
    space = SearchSpace({"n": Int(1, 1000), "kind": Categorical(list("abcdefgh")), "x": Float(0, 1)})
    target = space.features(space.encode({"n": 777, "kind": "f", "x": 0.25})[None, :])[0]
    point = search(Bowl(target), space, np.empty((0, 3)), np.empty((0, 3)), 4, 0.0, RNG)
    found = space.decode(point[0])
    assert found["kind"] == "f"
    assert abs(found["x"] - 0.25) < 1e-3


def test_neighbours_differ_in_one_active_discrete_parameter():
    point = MIXED.encode({"C": 1.0, "kernel": "rbf", "gamma": 0.1, "size": "small"})
    found = [MIXED.decode(p) for p in neighbours(MIXED, point, tried=point[None, :])]
    assert sorted(c["kernel"] for c in found) == ["linear", "poly", "rbf", "rbf"]
    assert sorted(c["size"] for c in found if c["kernel"] == "rbf") == ["large", "medium"]
    assert sorted(MIXED.decode(p)["size"] for p in neighbours(MIXED, point)) == ["large", "medium"]
    for farthest, moves in ((None, [1, 2, 4, 8, 16]), (8, [1, 2, 4, 8]), (3, [1, 2])):
        near = neighbours(COUNTS, COUNTS.encode({f"n{i}": 20 for i in range(4)}), farthest)
        first = {COUNTS.decode(p)["n0"] - 20 for p in near} - {0}
        assert first == {*moves, *(-step for step in moves)}


def test_variations_stay_in_the_cube_and_near_their_centres_in_continuous_coordinates():
    centres = np.array([[0.0, 1.0], [0.5, 0.5]])
    points = variations(SQUARE, centres, RNG)
    assert len(points) == 64
    assert ((points >= 0) & (points <= 1)).all()
    assert np.abs(points - np.repeat(centres, 32, axis=0)).mean() < 0.1
    assert len(variations(SQUARE, NO_CENTRES, RNG)) == 0


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
    scales, draws = np.array([1e3, 0.3, 1e3, 1e3]), np.random.default_rng(0)
    features = draw_features(40, scales, 4, draws, categories=CONDITIONAL.categorical)
    function = LinearFunction(features, np.random.default_rng(1).standard_normal(40))
    algorithm = ThompsonSampling()
    agent_state = AgentState(CONDITIONAL, Trials.empty(4))
    for seed in range(5):
        (point,) = algorithm.maximise(function, agent_state, np.random.default_rng(seed)).points
        np.testing.assert_array_equal(CONDITIONAL.snap(point[None])[0], point)
        grid = CONDITIONAL.snap(np.random.default_rng(9).random((2000, 4)))
        found, *others = function(CONDITIONAL.features(np.vstack([point, grid])))
        assert found >= max(others) - 1e-3


def test_a_finite_space_is_searched_completely_before_anything_repeats_by_choice():
    run = Run.begin(ThompsonSampling(num_initial=1), space=FINITE, num_agents=4).steps(4)
    for history in run.histories().values():
        assert len(np.unique(history.points, axis=0)) == FINITE.num_configs
