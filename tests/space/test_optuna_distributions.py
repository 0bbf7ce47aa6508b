"""Spaces as distributions of Optuna, and back."""

import math
import sys
import warnings

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fbo_flower import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.errors import ConfigError
from fbo_flower.space.optuna import from_distributions, to_distributions

optuna = pytest.importorskip("optuna", reason="needs fbo-flower[optuna]")
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402

PAIRS = [
    (Float(-1, 2), FloatDistribution(-1, 2)),
    (Float(1e-4, 1e2, log=True), FloatDistribution(1e-4, 1e2, log=True)),
    (Float(0.0, 0.5, step=0.25), FloatDistribution(0.0, 0.5, step=0.25)),
    (Int(-3, 8), IntDistribution(-3, 8)),
    (Int(1, 1000, log=True), IntDistribution(1, 1000, log=True)),
    (Int(32, 96, step=32), IntDistribution(32, 96, step=32)),
    (Categorical(["x", 1, False, None]), CategoricalDistribution(("x", 1, False, None))),
]


def test_each_kind_becomes_its_distribution_and_comes_back():
    space = SearchSpace({f"p{i}": parameter for i, (parameter, _) in enumerate(PAIRS)})
    distributions = {f"p{i}": distribution for i, (_, distribution) in enumerate(PAIRS)}
    assert to_distributions(space) == distributions
    assert from_distributions(distributions) == space
    more = SearchSpace({"e": PAIRS[-1][0], "f": Ordinal([16, 32], active_when={"e": "x"})})
    assert to_distributions(more)["f"] == CategoricalDistribution((16, 32))
    assert from_distributions({"fixed": IntDistribution(7, 7)}) == SearchSpace({"fixed": Categorical([7])})


NUMBERS = st.integers(-(10**6), 10**6).map(lambda n: n / 1000) | st.floats(-1e6, 1e6)
STEPS = st.sampled_from([0.1, 0.3, 0.05, 0.7, 1e-3, 2.5, 1 / 3]) | st.floats(1e-3, 1e3)


@given(low=NUMBERS, width=st.floats(0, 100), step=STEPS)
@example(low=0.0, width=3.0, step=0.1)
def test_every_value_of_a_step_survives_both_ways(low, width, step):
    """What Optuna samples can be encoded, and what a space decodes is a value for Optuna."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Optuna lowers `high` to the last step
        distribution = FloatDistribution(low, low + width * step, step=step)
        assume(FloatDistribution(low, distribution.high, step=step) == distribution)  # it may lower it again
        assume(not distribution.single())
        space = from_distributions({"x": distribution})
        assert to_distributions(space) == {"x": distribution}
    number = space.num_configs
    assert number is not None
    for index in {0, 1, number // 2, number - 1}:
        value = min(low + index * step, distribution.high)  # as Optuna computes it
        point = space.encode({"x": value})
        decoded = float(str(space.decode(point)["x"]))
        assert abs(decoded - value) <= 1e-8 * step + 1e-9
        assert distribution.low <= decoded <= distribution.high
        if (
            distribution._contains(value) and math.ulp(value) < 1e-9 * step
        ):  # far from 0 Optuna does not know its own values again
            assert distribution._contains(decoded)
        assert (space.snap([point]) == point).all()
    with pytest.raises(ConfigError, match="in steps of"):
        space.encode({"x": low + step / 2})


def test_what_the_other_side_would_round_or_cannot_hold_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=r"big: expected integers up to 2\*\*53"):
        to_distributions(SearchSpace({"big": Int(2**60, 2**60 + 9)}))
    with pytest.raises(ConfigError, match=r"x: expected 0 < step .*at most 2\*\*40 different values"):
        from_distributions({"x": FloatDistribution(0, 1, step=1e-15)})
    with (
        pytest.warns(UserWarning, match="Choices"),
        pytest.raises(ConfigError, match="k: expected choices to be str, int"),
    ):
        from_distributions({"k": CategoricalDistribution(((1, 2), (3,)))})
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'fbo-flower\[optuna\]'"):
        to_distributions(SearchSpace({"x": Float(0, 1)}))
