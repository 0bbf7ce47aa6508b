"""The bridge to ConfigSpace: spaces go there and back, and both sides allow the same configurations."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.space.configspace import from_configspace, to_configspace

cs_module = pytest.importorskip("ConfigSpace", reason="needs the extra fbo-flower[configspace]")
from ConfigSpace import (  # noqa: E402  # after the skip
    AndConjunction,
    ConfigurationSpace,
    EqualsCondition,
    ForbiddenEqualsClause,
    InCondition,
    NotEqualsCondition,
    OrConjunction,
)
from ConfigSpace import hyperparameters as hp  # noqa: E402

SPACE = SearchSpace({
    "C": Float(1e-3, 1e3, log=True),
    "kernel": Categorical(["rbf", "linear", "poly"]),
    "gamma": Float(1e-4, 10, log=True, active_when={"kernel": ["rbf", "poly"]}),
    "degree": Int(2, 5, active_when={"kernel": "poly"}),
    "coef0": Float(-1, 1, active_when={"degree": (3, 5), "shrinking": True}),
    "shrinking": Categorical([True, False]),
    "tol": Ordinal([1e-4, 1e-3, 1e-2]),
    "iterations": Int(1, 1000, log=True),
    "weight": Categorical(["balanced", None, 2, 0.5]),
})  # fmt: skip


def test_a_space_goes_to_configspace_and_back():
    back = from_configspace(to_configspace(SPACE))
    assert dict(back.parameters) == dict(SPACE.parameters)
    again = from_configspace(to_configspace(back))
    assert again == back  # with the order ConfigSpace gave it, also the digest
    assert again.digest == back.digest


def test_our_configurations_are_legal_in_configspace():
    cs = to_configspace(SPACE)
    for point in np.random.default_rng(0).random((100, SPACE.dimension)):
        config = SPACE.decode(point)
        theirs = dict(cs_module.Configuration(cs, values=config))
        assert theirs == {  # it rounds floats to about 13 digits
            name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            for name, value in config.items()
        }


def test_configurations_of_configspace_are_legal_here():
    cs = to_configspace(SPACE)
    cs.seed(0)
    for name in ("C", "gamma", "coef0"):  # the scales agree
        for unit in (0.0, 0.25, 1.0):
            assert SPACE.parameters[name].value(unit) == pytest.approx(cs[name].to_value(unit), rel=1e-9)
    for configuration in cs.sample_configuration(100):
        config = dict(configuration)
        decoded = SPACE.decode(SPACE.encode(config))
        assert decoded.keys() == config.keys()
        for name, value in config.items():
            expected = pytest.approx(value, rel=1e-12) if isinstance(SPACE.parameters[name], Float) else value
            assert decoded[name] == expected


def test_both_sides_refuse_the_same_changes():
    cs = to_configspace(SPACE)
    rng = np.random.default_rng(1)
    pool = SPACE.decode(np.full(SPACE.dimension, 0.9)) | {"coef0": 0.3, "degree": 3, "gamma": 1.0}
    pool |= {"C": 2e3, "kernel": "sigmoid", "iterations": 1001, "tol": 0.5, "alpha": 1}
    verdicts = []
    for _ in range(200):
        config = SPACE.decode(rng.random(SPACE.dimension))
        name = rng.choice(list(pool))
        if rng.random() < 0.5:
            config[name] = pool[name]
        else:
            config.pop(name, None)
        try:
            cs_module.Configuration(cs, values=config)
            theirs = True
        except (ValueError, KeyError):
            theirs = False
        try:
            SPACE.encode(config)
            ours = True
        except ConfigError:
            ours = False
        assert ours == theirs, config
        verdicts.append(ours)
    assert 25 < sum(verdicts) < 175


def test_what_configspace_writes_differently_is_understood():
    cs = ConfigurationSpace({"a": (0, 5), "b": (0.5, 2.5), "c": ["x", "y"], "d": 7})
    cs.add(EqualsCondition(cs["b"], cs["c"], "x"), InCondition(cs["a"], cs["c"], ["y"]))
    assert dict(from_configspace(cs).parameters) == {
        "a": Int(0, 5, active_when={"c": "y"}),
        "b": Float(0.5, 2.5, active_when={"c": "x"}),
        "c": Categorical(["x", "y"]),
        "d": Categorical([7]),
    }
    cs = ConfigurationSpace()  # equal weights are no weights
    cs.add(hp.CategoricalHyperparameter("c", ["x", "y"], weights=[3, 3]))
    assert dict(from_configspace(cs).parameters) == {"c": Categorical(["x", "y"])}


def spaces_that_cannot_cross():
    base = {"c": ["x", "y", "z"], "i": (0, 5), "f": (0.0, 1.0)}
    cs = ConfigurationSpace(base)
    cs.add(ForbiddenEqualsClause(cs["c"], "z"))
    yield cs, "ConfigSpace: expected no forbidden clauses, got Forbidden: c == 'z'"
    cs = ConfigurationSpace(base)
    cs.add(NotEqualsCondition(cs["f"], cs["c"], "x"))
    yield cs, "ConfigSpace: expected conditions with == or in, got f | c != 'x'"
    cs = ConfigurationSpace(base)
    cs.add(OrConjunction(EqualsCondition(cs["f"], cs["c"], "x"), EqualsCondition(cs["f"], cs["i"], 1)))
    yield cs, "ConfigSpace: expected conditions with == or in, got (f | c == 'x' || f | i == 1)"
    cs = ConfigurationSpace(base)
    cs.add(AndConjunction(EqualsCondition(cs["f"], cs["c"], "x"), InCondition(cs["f"], cs["c"], ["y", "z"])))
    yield cs, "f: expected conditions that can hold together, got "
    cs = ConfigurationSpace(base)
    cs.add(EqualsCondition(cs["i"], cs["f"], 0.5))
    yield cs, "i: expected active_when to name discrete parameters, got Float f"
    cs = ConfigurationSpace()
    cs.add(hp.CategoricalHyperparameter("c", ["x", "y"], weights=[1, 3]))
    yield cs, "c: expected equal weights, got (1, 3)"
    cs = ConfigurationSpace()
    cs.add(hp.NormalFloatHyperparameter("n", mu=0, sigma=1, lower=-1, upper=1))
    kinds = "n: expected a uniform, categorical, ordinal or constant parameter, got"
    yield cs, f"{kinds} NormalFloatHyperparameter"
    cs = ConfigurationSpace()
    cs.add(hp.BetaIntegerHyperparameter("n", alpha=2, beta=3, lower=1, upper=5))
    yield cs, f"{kinds} BetaIntegerHyperparameter"
    cs = ConfigurationSpace()
    cs.add(hp.UniformIntegerHyperparameter("big", 0, 2**41))
    yield cs, "big: expected at most 2**40 values, got low=0, high=2199023255552; try a Float and round"
    yield ConfigurationSpace(), "search space: expected at least one parameter, got {}"


@pytest.mark.parametrize(("cs", "message"), list(spaces_that_cannot_cross()))
def test_what_a_search_space_cannot_say_is_refused(cs, message):
    with pytest.raises(ConfigError) as caught:
        from_configspace(cs)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_bridge_imports_configspace_only_when_it_is_used():
    code = "import sys, fbo_flower.space.configspace; assert 'ConfigSpace' not in sys.modules"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ConfigSpace", None)
    with pytest.raises(
        ConfigError, match=r"ConfigSpace: expected the package .* pip install 'fbo-flower\[configspace\]'"
    ):
        to_configspace(SPACE)
    with pytest.raises(ConfigError, match=r"fbo-flower\[configspace\]"):
        from_configspace(None)
