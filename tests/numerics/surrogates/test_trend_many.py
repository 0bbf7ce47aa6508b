"""Trends that are solved together are those of `ridge_weights` without the agent's own part."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.errors import ConfigError, NumericalError
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.numerics.surrogates.trend import ridge_weights, statistics
from fbo_flower.numerics.surrogates.trend_many import others_weights

M = 20
FEATURES = draw_features(M, 0.5, 2, np.random.default_rng(0))


def sums(n: int, count: int = 4):
    """Return observations of agents, and the sums over all of them."""
    rng = np.random.default_rng(n)
    x, y = rng.random((count, n, 2)), rng.standard_normal((count, n))
    own = [statistics(FEATURES(x[b]), y[b]) for b in range(count)]
    others = statistics(FEATURES(rng.random((30, 2))), rng.standard_normal(30))
    gram, moment = (np.sum([part[i] for part in (*own, others)], axis=0) for i in (0, 1))
    return x, y, own, gram, moment


@pytest.mark.parametrize("n", [0, 1, 6])
def test_each_trend_is_the_regression_without_the_own_part(n: int) -> None:
    x, y, own, gram, moment = sums(n)
    phi = np.array([FEATURES(points) for points in x])
    found = others_weights([gram, gram, gram.copy(), gram], np.tile(moment, (4, 1)), phi, y, 0.1)
    for b, (own_gram, own_moment) in enumerate(own):
        expected = ridge_weights(gram - own_gram, moment - own_moment, 0.1)
        np.testing.assert_allclose(found[b], expected, rtol=1e-7, atol=1e-9)


def test_sums_that_agents_cannot_have_sent_are_refused() -> None:
    x, y, _, gram, moment = sums(6, 1)
    with pytest.raises(NumericalError):
        others_weights([-gram], moment[None], FEATURES(x[0])[None], y, 0.1)
    with pytest.raises(ConfigError, match="gram: expected 210 numbers"):
        others_weights([gram[1:]], moment[None], FEATURES(x[0])[None], y, 0.1)
