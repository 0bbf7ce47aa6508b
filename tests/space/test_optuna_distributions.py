"""Spaces as distributions of Optuna, and back."""

from __future__ import annotations

import sys

import pytest

from fbo_flower import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.errors import ConfigError
from fbo_flower.space.optuna import from_distributions, to_distributions

optuna = pytest.importorskip("optuna", reason="needs fbo-flower[optuna]")
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402


def test_each_kind_becomes_its_distribution() -> None:
    space = SearchSpace(
        {
            "a": Float(-1, 2),
            "b": Float(1e-4, 1e2, log=True),
            "c": Int(-3, 8),
            "d": Int(1, 1000, log=True),
            "e": Categorical(["x", 1, False, None]),
            "f": Ordinal([16, 32, 64], active_when={"e": "x"}),
        }
    )
    assert to_distributions(space) == {
        "a": FloatDistribution(-1, 2),
        "b": FloatDistribution(1e-4, 1e2, log=True),
        "c": IntDistribution(-3, 8),
        "d": IntDistribution(1, 1000, log=True),
        "e": CategoricalDistribution(("x", 1, False, None)),
        "f": CategoricalDistribution((16, 32, 64)),
    }


def test_distributions_become_parameters_and_steps_become_ordered_choices() -> None:
    space = from_distributions(
        {
            "lr": FloatDistribution(1e-5, 1e-1, log=True),
            "dropout": FloatDistribution(0.0, 0.5, step=0.25),
            "layers": IntDistribution(1, 4),
            "units": IntDistribution(32, 96, step=32),
            "act": CategoricalDistribution(("relu", "tanh")),
            "fixed": IntDistribution(7, 7),
        }
    )
    assert space == SearchSpace(
        {
            "lr": Float(1e-5, 1e-1, log=True),
            "dropout": Ordinal([0.0, 0.25, 0.5]),
            "layers": Int(1, 4),
            "units": Ordinal([32, 64, 96]),
            "act": Categorical(["relu", "tanh"]),
            "fixed": Categorical([7]),
        }
    )


def test_a_space_without_ordinals_and_conditions_comes_back() -> None:
    space = SearchSpace({"x": Float(0, 1), "n": Int(1, 9, log=True), "k": Categorical(["a", "b"])})
    assert from_distributions(to_distributions(space)) == space


def test_what_the_other_side_would_round_or_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"big: expected integers up to 2\*\*53"):
        to_distributions(SearchSpace({"big": Int(2**60, 2**60 + 9)}))
    with pytest.raises(ConfigError, match="x: expected at most 10000 steps"):
        from_distributions({"x": FloatDistribution(0, 1, step=1e-6)})
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'fbo-flower\[optuna\]'"):
        to_distributions(SearchSpace({"x": Float(0, 1)}))
