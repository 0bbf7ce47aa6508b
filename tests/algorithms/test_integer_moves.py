"""`integer_moves`: integers and ordinals follow the function, as floats follow its gradient."""

import numpy as np
import pytest
from contract import MIXED, SQUARE, Run, same

from fbo_flower.algorithms import ThompsonSampling
from fbo_flower.algorithms.search import maximiser
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.surrogates import rff
from fbo_flower.space import Float, Int, Ordinal, SearchSpace

COUNTS = SearchSpace({f"n{i}": Int(1, 40) for i in range(4)})
TWO = SearchSpace({"n": Int(1, 9), "size": Ordinal(["s", "m", "l"]), "x": Float(0, 1)})


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
    return maximiser(function, space, seen, num_candidates, distance, rng, integer_moves=moves)


@pytest.mark.parametrize("seed", range(5))
def test_integers_reach_the_optimum_that_no_candidate_holds(seed):
    centre = np.random.default_rng(seed).random(4)
    optimum = COUNTS.snap(centre[None, :])
    assert same(best(Bowl(centre), COUNTS, True, seed=seed), optimum)
    assert not same(best(Bowl(centre), COUNTS, False, seed=seed), optimum)


@pytest.mark.parametrize("seed", range(8))
def test_the_value_never_gets_worse(seed):
    draws = np.random.default_rng(seed)
    for space in (COUNTS, TWO, MIXED):
        features = rff.draw_features(40, 0.3, space.num_features, draws)
        function = LinearFunction(features, draws.standard_normal(40))
        values = [function(space.features(best(function, space, m, seed=seed)))[0] for m in (False, True)]
        assert values[1] >= values[0] - 1e-12


def test_the_result_is_the_best_of_all_configurations_of_a_small_space():
    # a bowl has no local optimum besides its global one, so moves find the one of brute force
    space = SearchSpace({"n": Int(1, 9), "size": Ordinal(["s", "m", "l"])})
    configs = [{"n": n, "size": s} for n in range(1, 10) for s in ("s", "m", "l")]
    points = np.array([space.encode(config) for config in configs])
    for seed in range(6):
        function = Bowl(np.random.default_rng(seed).random(2))
        expected = points[np.argmax(function(space.features(points)))]
        assert same(best(function, space, True, seed=seed, num_candidates=2)[0], expected)


def test_moves_keep_the_distance_from_points_that_were_seen():
    optimum = COUNTS.snap(np.full((1, 4), 0.5))
    found = best(Bowl(np.full(4, 0.5)), COUNTS, True, seen=optimum, distance=0.03)
    assert np.linalg.norm(COUNTS.features(found) - COUNTS.features(optimum)) >= 0.03


def test_floats_are_polished_after_a_move():
    found = best(Bowl(TWO.features(TWO.snap(np.array([[0.7, 0.9, 0.123456]])))[0]), TWO, True)
    assert found[0, 2] == pytest.approx(0.123456, abs=1e-3)


def test_a_space_of_floats_gives_the_same_trials():
    small = {"num_candidates": 64, "num_path_features": 32}
    runs = [Run.begin(ThompsonSampling(**small, integer_moves=moves)).steps(5) for moves in (False, True)]
    assert same(runs[0].histories(), runs[1].histories())
    assert runs[0].agents["0"].space == SQUARE


def test_the_option_is_a_flag():
    with pytest.raises(ConfigError, match="integer_moves: expected True or False, got 1"):
        ThompsonSampling(integer_moves=1)
