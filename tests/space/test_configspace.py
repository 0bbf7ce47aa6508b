"""The bridge to ConfigSpace: spaces go there and back, and both sides allow the same configurations."""

import importlib
import sys

import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace, configspace
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


def test_steps_become_ordinals():
    space = SearchSpace({"x": Float(0, 0.3, step=0.1), "n": Int(1, 8, step=3)})
    back = from_configspace(to_configspace(space)).parameters
    assert dict(back) == {"x": Ordinal([0.0, 0.1, 0.2, 0.3]), "n": Ordinal([1, 4, 7])}
    with pytest.raises(ConfigError, match="x: expected at most 10000 steps, got 1000001"):
        to_configspace(SearchSpace({"x": Float(0, 1, step=1e-6)}))


def test_configurations_of_either_side_are_legal_on_the_other():
    cs = to_configspace(SPACE)
    cs.seed(0)
    for name in ("C", "coef0"):  # the scales agree
        assert SPACE.parameters[name].value(0.25) == pytest.approx(cs[name].to_value(0.25), rel=1e-9)
    for point in np.random.default_rng(0).random((50, SPACE.dimension)):
        config = SPACE.decode(point)
        assert_equal(dict(cs_module.Configuration(cs, values=config)), config)
    for configuration in cs.sample_configuration(50):
        assert_equal(SPACE.decode(SPACE.encode(dict(configuration))), dict(configuration))


def assert_equal(found, expected):
    about = {n: pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for n, v in expected.items()}
    assert found == about  # ConfigSpace rounds floats to about 13 digits


def test_what_configspace_writes_differently_is_understood():
    cs = ConfigurationSpace({"a": (0, 5), "b": (0.5, 2.5), "d": 7})
    cs.add(hp.CategoricalHyperparameter("c", ["x", "y"], weights=[3, 3]))  # equal weights are no weights
    cs.add(EqualsCondition(cs["b"], cs["c"], "x"), InCondition(cs["a"], cs["c"], ["y"]))
    assert dict(from_configspace(cs).parameters) == {
        "a": Int(0, 5, active_when={"c": "y"}),
        "b": Float(0.5, 2.5, active_when={"c": "x"}),
        "c": Categorical(["x", "y"]),
        "d": Categorical([7]),
    }


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda c, i, f: ForbiddenEqualsClause(c, "z"),
         "ConfigSpace: expected no forbidden clauses, got Forbidden: c == 'z'"),
        (lambda c, i, f: NotEqualsCondition(f, c, "x"),
         "ConfigSpace: expected conditions with == or in, got f | c != 'x'"),
        (lambda c, i, f: OrConjunction(EqualsCondition(f, c, "x"), EqualsCondition(f, i, 1)),
         "ConfigSpace: expected conditions with == or in, got (f | c == 'x' || f | i == 1)"),
        (lambda c, i, f: AndConjunction(EqualsCondition(f, c, "x"), InCondition(f, c, ["y", "z"])),
         "f: expected conditions that can hold together, got "),
        (lambda *_: hp.CategoricalHyperparameter("n", ["x", "y"], weights=[1, 3]),
         "n: expected equal weights, got (1, 3)"),
        (lambda *_: hp.NormalFloatHyperparameter("n", mu=0, sigma=1, lower=-1, upper=1),
         "n: expected a uniform, categorical, ordinal or constant parameter, got NormalFloat"),
        (lambda *_: hp.UniformIntegerHyperparameter("big", 0, 2**41),
         "big: expected at most 2**40 values, got low=0, high=2199023255552; try a Float and round"),
    ],
)  # fmt: skip
def test_what_a_search_space_cannot_say_is_refused(part, message):
    cs = ConfigurationSpace({"c": ["x", "y", "z"], "i": (0, 5), "f": (0.0, 1.0)})
    cs.add(part(cs["c"], cs["i"], cs["f"]))
    with pytest.raises(ConfigError) as caught:
        from_configspace(cs)
    assert str(caught.value).startswith(message)


def test_without_the_package_the_bridge_is_imported_and_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ConfigSpace", None)
    importlib.reload(configspace)
    match = r"ConfigSpace is not .* pip install 'fbo-flower\[configspace\]'"
    for call in (lambda: to_configspace(SPACE), lambda: from_configspace(None)):
        with pytest.raises(ConfigError, match=match):
            call()
