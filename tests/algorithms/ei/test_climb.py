import numpy as np
import pytest
from contract import MIXED, SQUARE

from fbo_flower.algorithms.ei.climb import best_point, neighbours, variations
from fbo_flower.space import Categorical, Float, Int, SearchSpace

RNG = np.random.default_rng(0)
NO_CENTRES = np.empty((0, 2))


class Bowl:
    """`-|z - centre|^2`."""

    def __init__(self, centre):
        self.centre = np.asarray(centre)

    def __call__(self, z):
        return -((z - self.centre) ** 2).sum(axis=1)

    def value_and_gradient(self, z):
        return self(z), -2 * (z - self.centre)


@pytest.mark.parametrize("centre", [(0.3, 0.7), (-0.2, 0.5), (1.4, 1.2)])
def test_the_maximum_within_the_bounds_is_found(centre):
    point = best_point(Bowl(centre), SQUARE, NO_CENTRES, NO_CENTRES, 64, 0.0, RNG)
    np.testing.assert_allclose(point[0], np.clip(centre, 0, 1), atol=1e-4)


def test_the_point_keeps_its_distance_from_points_seen():
    seen = np.array([[0.3, 0.7]])
    point = best_point(Bowl((0.3, 0.7)), SQUARE, seen, seen, 64, 0.01, RNG)
    assert np.linalg.norm(point - seen) >= 0.01


def test_discrete_parameters_change_one_at_a_time_until_nothing_improves():
    space = SearchSpace({"n": Int(1, 1000), "kind": Categorical(list("abcdefgh")), "x": Float(0, 1)})
    target = space.features(space.encode({"n": 777, "kind": "f", "x": 0.25})[None, :])[0]
    point = best_point(Bowl(target), space, np.empty((0, 3)), np.empty((0, 3)), 4, 0.0, RNG)
    found = space.decode(point[0])
    assert found["kind"] == "f"
    assert abs(found["x"] - 0.25) < 1e-3


def test_neighbours_differ_in_one_active_discrete_parameter():
    point = MIXED.encode({"C": 1.0, "kernel": "rbf", "gamma": 0.1, "size": "small"})
    found = [MIXED.decode(p) for p in neighbours(MIXED, point)]
    assert sorted(c["kernel"] for c in found) == ["linear", "poly", "rbf", "rbf"]
    assert sorted(c["size"] for c in found if c["kernel"] == "rbf") == ["large", "medium"]


def test_variations_stay_in_the_cube_and_near_their_centres_in_continuous_coordinates():
    centres = np.array([[0.0, 1.0], [0.5, 0.5]])
    points = variations(SQUARE, centres, RNG)
    assert len(points) == 64
    assert ((points >= 0) & (points <= 1)).all()
    assert np.abs(points - np.repeat(centres, 32, axis=0)).mean() < 0.1
    assert len(variations(SQUARE, NO_CENTRES, RNG)) == 0
