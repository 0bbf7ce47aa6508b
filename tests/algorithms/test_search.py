"""The maximisers, and Thompson sampling: integers follow the function, floats its gradient."""

import numpy as np
from contract import MIXED, same

from fbo_flower.algorithms.search import maximise, neighbours, search
from fbo_flower.space import Float, Int, Ordinal, SearchSpace
from fbo_flower.space.held import held_space

COUNTS = SearchSpace({f"n{i}": Int(1, 40) for i in range(4)})
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


def test_the_result_is_the_best_of_all_configurations_of_a_small_space():
    # a bowl has no local optimum besides its global one, so moves find the one of brute force
    space = SearchSpace({"n": Int(1, 9), "size": Ordinal(["s", "m", "l"])})
    points = np.array([space.encode({"n": n, "size": s}) for n in range(1, 10) for s in ("s", "m", "l")])
    for seed in range(4):
        function, rng = Bowl(np.random.default_rng(seed).random(2)), np.random.default_rng(seed)
        (found,) = maximise(function, space, NO_CENTRES, 2, 0.0, rng, integer_moves=True)
        assert same(found, points[np.argmax(function(space.features(points)))])


def test_the_maximum_over_the_free_coordinates_of_a_space_is_that_of_the_slice():
    """Oracle: the maximiser of a quadratic on a slice is the centre's projection onto it."""
    centre, seen = np.array([0.2, 0.9, 0.6, 0.4]), np.empty((0, 4))
    space = held_space(SearchSpace({name: Float(0.0, 1.0) for name in "abcd"}), {"b": 0.1, "d": 0.75})
    for found in (
        maximise(Bowl(centre), space, seen, 64, 0.0, RNG),
        search(Bowl(centre), space, seen, centre[None, :], 64, 0.0, RNG),
    ):
        np.testing.assert_allclose(found, [[0.2, 0.1, 0.6, 0.75]], atol=1e-4)


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
