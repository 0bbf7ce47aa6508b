"""While all values are equal, `ei` goes where it learns most; once two differ, it improves."""

import numpy as np
import pytest

from fbo_flower import Categorical, Float, Int, SearchSpace
from fbo_flower.algorithms import ExpectedImprovement, FedEI
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import AgentState, Phase, Task, Trials
from fbo_flower.algorithms.search import farthest
from fbo_flower.numerics.surrogates.transforms import all_equal
from fbo_flower.space.held import held_space

CUBE = SearchSpace({name: Float(0.0, 1.0) for name in "abc"})
MIXED = SearchSpace(
    {
        "kind": Categorical(["u", "v", "w"]),
        "rate": Float(1e-4, 1.0, log=True),
        "depth": Int(1, 40),
        "drop": Float(0.0, 1.0, active_when={"kind": "w"}),
    }
)
FIXED = held_space(CUBE, {"b": 0.0})
SPACES = {"cube": CUBE, "mixed": MIXED, "fixed": FIXED}
TWO = Aims.of(False, {"gain": "max", "speed": "max"}, {})


def agent(space, values, aims=NUMBER):
    points = space.snap(np.random.default_rng(1).random((len(values), space.dimension)))
    outputs = values if values.ndim == 2 else None
    first = values if outputs is None else values[:, 0]
    history = Trials(points, first, np.arange(len(values)), outputs=outputs)
    return AgentState(space, history, aims=aims)


def next_point(state, algorithm):
    task = Task(Phase.TRAIN, 1, state.next_trial, 1, {}, {})
    return algorithm.step(task, state, np.random.default_rng(2))[0].points


@pytest.mark.parametrize("algorithm", [ExpectedImprovement(), FedEI()], ids=["ei", "fed-ei without a pool"])
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("aims", [NUMBER, TWO], ids=["value", "two objectives"])
def test_equal_values_send_an_agent_to_the_farthest_point(algorithm, name, aims):
    space = SPACES[name]
    values = np.full(4, 0.1) if aims is NUMBER else np.tile([0.1, 7.0], (4, 1))
    state = agent(space, values, aims)
    expected = farthest(space, state.history.points, np.random.default_rng(2))
    np.testing.assert_array_equal(next_point(state, algorithm), expected)
    values = values.copy()
    values[2] += 0.01
    assert not np.array_equal(next_point(agent(space, values, aims), algorithm), expected)


@pytest.mark.parametrize("name", SPACES)
def test_the_farthest_points_spread_inside_the_cube(name):
    """Random points come closer to each other, and to the surface."""
    space, rng = SPACES[name], np.random.default_rng(3)
    seen = np.empty((0, space.dimension))
    for _ in range(8):
        seen = np.concatenate([seen, farthest(space, seen, rng)])
    free = [axis for axis in range(space.dimension) if np.ptp(seen[:, axis]) > 0.0]
    free = [axis for axis in free if axis not in space.categorical]
    assert len(free) == space.dimension - 1 if name != "cube" else len(free) == 3
    assert np.minimum(seen, 1.0 - seen)[:, free].min() > 0.05
    distances = [np.linalg.norm(seen[:i, free] - seen[i, free], axis=1).min() for i in range(1, 8)]
    assert name == "mixed" or min(distances) > 0.2
    if name == "mixed":
        assert {space.decode(point)["kind"] for point in seen} == {"u", "v", "w"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.1, 0.1], True),
        ([0.0, -0.0], True),
        ([0.3, 0.1 + 0.2], True),
        ([1e6, 1e6 + 1e-7], True),
        ([1e6, 1e6 + 0.5, 1e6 + 0.25 + 1e-9], False),
        (np.float32([2.3025851, 2.3025853]).astype(float), True),
        ([0.1, 0.1 + 1e-9], False),
        ([1e308, -1e308], False),
        ([0.1], True),
        ([], True),
        ([[0.1, 1.0], [0.1, 2.0]], False),
        ([[0.1, 1.0], [0.1, 1.0]], True),
    ],
)
def test_values_are_equal_up_to_rounding_in_their_precision(values, expected):
    assert all_equal(np.array(values, dtype=np.float64)) is expected
