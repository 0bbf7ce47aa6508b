"""A space with fixed parameters: every point that an agent evaluates has the agent's own values there."""

import pickle

import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.space import Categorical, Float, Int, SearchSpace
from fbo_flower.space.held import HeldSpace, held_space

SPACE = SearchSpace({
    "x": Float(0.0, 1.0),
    "C": Float(1e-3, 1e3, log=True),
    "depth": Int(1, 9),
    "kernel": Categorical(["rbf", "linear"]),
    "gamma": Float(0.0, 2.0, active_when={"kernel": ["rbf"]}),
})  # fmt: skip


def test_snapping_puts_fixed_parameters_to_their_values():
    space = held_space(SPACE, {"C": 1.0, "depth": 9, "kernel": "linear"})
    points = space.snap(np.random.default_rng(0).random((50, 5)))
    configs = [space.decode(point) for point in points]
    assert all(c["C"] == pytest.approx(1.0) and c["depth"] == 9 and c["kernel"] == "linear" for c in configs)
    assert all("gamma" not in c for c in configs)
    assert len({c["x"] for c in configs}) == 50
    np.testing.assert_array_equal(space.snap(points), points)
    assert [SPACE.names[axis] for axis in space.continuous] == ["x", "gamma"]


def test_features_and_json_are_those_of_the_shared_space():
    space = held_space(SPACE, {"depth": 3})
    points = np.random.default_rng(0).random((5, 5))
    np.testing.assert_array_equal(space.features(points), SPACE.features(points))
    assert space.to_json() == SPACE.to_json()
    assert space.whole is SPACE
    for other in (SPACE, held_space(SPACE, {"depth": 4})):
        assert (space == other, space.digest == other.digest) == (False, False)
    assert pickle.loads(pickle.dumps(space)) == space  # our own


def test_text_of_an_operator_is_read():
    space = held_space(SPACE, "C=1.0, depth=3, kernel=rbf")
    assert isinstance(space, HeldSpace)
    assert space.fixed == {"C": 1.0, "depth": 3, "kernel": "rbf"}
    assert held_space(SPACE, "") is SPACE


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"y": 0.5}, "expected parameters of the search space"),
        ({"x": 1.5}, r"expected a number in \[0.0, 1.0\]"),
        ({"kernel": ["rbf"]}, "expected one of"),
        ({"x": 0.5, "C": 1.0, "depth": 1, "kernel": "rbf", "gamma": 1.0}, "at least one of 5 parameters"),
        (["x"], "expected a dict"),
        ("x=1,x=2", "expected text such as"),
    ],
)
def test_nonsense_is_refused(fixed, message):
    with pytest.raises(ConfigError, match=message):
        held_space(SPACE, fixed)
