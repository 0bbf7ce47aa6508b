"""Objectives and limits: what users write, what agents send, and what counts as feasible."""

import math

import numpy as np
import pytest

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.errors import ConfigError

AIMS = Aims.of(False, {"size": "min", "accuracy": "max"}, {"recall": ">= 0.9", "size": 64})


def test_larger_is_better_in_every_output_and_limits_are_least_values():
    assert AIMS.names == ("size", "accuracy", "recall")
    assert AIMS.signs.tolist() == [-1, 1, 1]
    assert AIMS.least.tolist() == [-64, -math.inf, 0.9]
    rows = np.array([[-64.0, 0.1, 0.9], [-65, 0.1, 0.9], [-1, 0.1, 0.8], [np.nan] * 3])
    assert AIMS.feasible(rows).tolist() == [True, False, False, False]
    assert AIMS.measured(rows[0]) == {"size": 64, "accuracy": 0.1, "recall": 0.9}
    assert AIMS.measured(rows[3]) == {}
    assert AIMS.nearest(np.array([[-90.0, 1, 0.9], [np.nan] * 3, [-65, 0, 0.85], [-64, 0, 0.1]])) == 2


def test_observations_from_before_are_read_by_name_and_a_gap_is_a_failure():
    before = {"recall": [0.9, 1, 1], "size": [3, math.inf, 5], "accuracy": [1, 1, 0.5], "watts": [1]}
    values, outputs = AIMS.observed(before)  # type: ignore[arg-type]  # lists do as well
    assert outputs is not None
    np.testing.assert_array_equal(outputs, [[-3, 1, 0.9], [math.nan] * 3, [-5, 0.5, 1]])
    np.testing.assert_array_equal(values, outputs[:, 0])
    assert Aims.of(True).observed(np.array([2.0]))[0].tolist() == [-2]
    wrong = [(AIMS, {"size": [1]}), (AIMS, np.ones(2)), (NUMBER, before), (AIMS, before | {"size": [1]})]
    for aims, observations in wrong:
        with pytest.raises(ConfigError, match="prior: expected"):
            aims.observed(observations)


def test_what_an_agent_says_of_them_has_no_bounds():
    text = AIMS.to_json()
    assert "64" not in text
    assert "0.9" not in text
    heard = Aims.from_json(text)
    assert heard.names == AIMS.names
    assert [bound for _, _, bound in heard.limits] == pytest.approx([math.nan] * 2, nan_ok=True)
    assert heard.to_json() == text
    assert Aims.from_json(AIMS.to_json(bounds=True)) == AIMS
    for plain in (NUMBER, Aims.of(True)):
        assert Aims.from_json(plain.to_json()) == plain


def test_an_agent_changes_bounds_only():
    own = AIMS.with_limits({"size": 32})
    assert own.limits == (("recall", ">=", 0.9), ("size", "<=", 32.0))
    assert AIMS.with_limits(None) == AIMS
    for other in ({"latency": 3}, {"recall": 0.9}, {"size": ">= 3"}, {"size": True}, {"size": math.nan}):
        with pytest.raises(ConfigError, match="limits: "):
            AIMS.with_limits(other)


def test_the_reference_is_no_secret_and_is_a_number_of_an_objective():
    aims = Aims.of(False, {"size": "min", "accuracy": "max"}, {"size": 99}, {"size": 64})
    np.testing.assert_array_equal(Aims.from_json(aims.to_json()).start, [-64, np.nan])
    assert aims.with_limits({"size": 32}).reference == (("size", 64.0),)
    assert aims.settings()["reference"] == {"size": 64.0}
    for reference in ({"recall": 1}, {"size": math.inf}, {"size": True}, 3):
        with pytest.raises(ConfigError, match="reference: expected numbers for some of several objectives"):
            Aims.of(False, {"size": "min", "accuracy": "max"}, None, reference)
