"""Many pulls of HCT at once are the pulls one by one."""

import numpy as np
import pytest

from fbo_flower.numerics.bandits import hct, partition
from studies.papers.pne.reference import pull_many


@pytest.mark.parametrize(("dim", "arity"), [(1, 2), (2, 2), (2, 4), (3, 8)])
@pytest.mark.parametrize("observed", [False, True])
def test_runs_in_parts_and_steps_are_one_run(dim, arity, observed):
    def value(depth, index):
        x = partition.centre(depth, index, dim, arity)
        return float(0.5 + 0.4 * np.sin(13 * x).prod() - ((x - 0.37) ** 2).sum() / 4)

    noise, options = (
        np.random.default_rng(1).uniform(-0.1, 0.1, 1500),
        hct.HCTOptions(dim, arity, observed=observed),
    )
    whole, parts, steps = (hct.Tree(options) for _ in range(3))
    expected = pull_many(whole, len(noise), value, noise).tolist()
    assert [
        c for part in np.array_split(noise, 7) for c in pull_many(parts, len(part), value, part)
    ] == expected
    for cell, e in zip(expected, noise, strict=True):
        assert steps.select() == cell
        steps.learn(cell, value(steps.depth[cell], steps.index[cell]) + e)
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(array, parts.arrays()[name])
        np.testing.assert_array_equal(array, steps.arrays()[name])
