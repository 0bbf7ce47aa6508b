import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from fbo_flower.clients.objective import MAX_REASON, ObjectiveContext, evaluate
from fbo_flower.errors import ObjectiveError

CONTEXT = ObjectiveContext("3", 3, 0, 1, np.random.default_rng(0))


def outcome(value):
    return evaluate(lambda config, context: value, {}, CONTEXT)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (-0.0, -0.0),
        (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.array(2.5), 2.5),
        (5e-324, 5e-324),
        (1.7e308, 1.7e308),
    ],
)
def test_real_numbers_are_taken(value, expected):
    got = outcome(value)
    assert type(got) is float
    assert math.copysign(1, got) == math.copysign(1, expected)
    assert got == expected


class Unspeakable(Exception):  # noqa: N818  # it is a value too
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.parametrize(
    "value",
    [
        None, "0.5", b"1", True, np.True_, np.array(True), [1.0], (1.0,), {"loss": 1.0}, np.ones(1),
        np.ones((1, 1)), np.empty(0), 1j, np.complex128(1), Decimal(1), object(), float, math.nan,
        math.inf, -math.inf, np.float32("nan"), np.array(np.inf), 10**400, -(10**400), Fraction(10**400),
        np.array(10**400, dtype=object), Unspeakable(), lambda: 1.0, np.datetime64("2020-01-01"),
        np.array("1"),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_anything_else_is_an_objective_error(value):
    with pytest.raises(ObjectiveError, match="finite number"):
        outcome(value)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("a"),
        MemoryError(),
        StopIteration(),
        AssertionError(),
        RecursionError(),
        Unspeakable(),
    ],
)
def test_anything_raised_is_an_objective_error(error):
    def objective(config, context):
        raise error

    with pytest.raises(ObjectiveError, match=type(error).__name__):
        evaluate(objective, {}, CONTEXT)


def test_reasons_are_short():
    def objective(config, context):
        raise ValueError("x" * 10**6)

    with pytest.raises(ObjectiveError) as caught:
        evaluate(objective, {}, CONTEXT)
    assert len(str(caught.value)) == MAX_REASON
    with pytest.raises(ObjectiveError) as caught:
        outcome("x" * 10**6)
    assert len(str(caught.value)) < MAX_REASON


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_is_no_failed_trial(error):
    def objective(config, context):
        raise error

    with pytest.raises(error):
        evaluate(objective, {}, CONTEXT)
