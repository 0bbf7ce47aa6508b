"""A dataclass is the schema of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import FTS, FedPNE
from fbo_flower.algorithms.fts.fts import Advice, Message
from fbo_flower.algorithms.messages import (
    ArraySpec,
    Content,
    Schema,
    Summand,
    real,
    schema_of,
    summable,
    summands_of,
    whole,
)
from fbo_flower.algorithms.records import AnyArray, Payload, Phase, Report, Task
from fbo_flower.errors import WireError
from fbo_flower.wire.checks import checked_arrays, checked_values

SPACE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
ADVICE = Schema(
    {
        "frequencies": ArraySpec((5, 2)),
        "phases": ArraySpec((5,), low=0.0, high=2 * np.pi),
        "weights": ArraySpec((5,)),
        "point": ArraySpec((2,), low=0.0, high=1.0),
        "messages": ArraySpec((None, 5), max_length=32),
        "lengthscales": ArraySpec((6,), low=1e-6, high=1e6),
    },
    {"message": bool},
)


def test_the_schema_of_advice_is_the_one_written_by_hand():
    assert schema_of(Advice, FTS(num_features=5), SPACE) == ADVICE


def test_a_task_of_several_steps_may_have_a_row_for_each():
    arrays = dict(ADVICE.arrays)
    arrays["weights"] = ArraySpec((None, 5), max_length=3)
    arrays["point"] = ArraySpec((None, 2), low=0.0, high=1.0, max_length=3)
    arrays["steps"] = ArraySpec((None,), "int64", 0, 2, 3)
    assert schema_of(Advice, FTS(num_features=5, trials_per_round=3), SPACE) == Schema(arrays, ADVICE.values)


def test_what_is_summed_securely_may_not_travel_in_the_clear():
    clear, secure = (FTS(lengthscale="federated", secure_sums=n) for n in (0, 3))
    assert set(schema_of(Message, clear, SPACE).arrays) == {"weights", "log_likelihoods"}
    assert set(schema_of(Message, secure, SPACE).arrays) == {"weights"}
    (summed,) = summands_of(Message, secure, SPACE, Task(Phase.TRAIN, 1, 0, 1)).items()
    assert (summed[0], summed[1].shape, summed[1].bound) == ("log_likelihoods", (6,), 1e12)


@dataclass(frozen=True, kw_only=True)
class Counts(Content):
    counts: Annotated[AnyArray | None, summable("len(cells)", bound="budget", low=0.0, most=9)] = None
    present: Annotated[AnyArray | None, summable("len(cells)", bound=1.0, only_if="secure_sums")] = None


def test_a_summand_is_as_long_as_an_array_of_the_task_and_its_bound_may_be_an_option():
    clear, secure = (FedPNE(budget=50, secure_sums=n) for n in (0, 3))
    assert schema_of(Counts, clear, SPACE).arrays == {
        "counts": ArraySpec((None,), low=0.0, high=50.0, max_length=9)
    }
    assert not schema_of(Counts, secure, SPACE).arrays
    task = Task(Phase.TRAIN, 1, 0, 1, {"cells": np.zeros(4)})
    summands = summands_of(Counts, secure, SPACE, task)
    assert summands == {"counts": Summand((4,), 50.0), "present": Summand((4,), 1.0)}


def test_content_travels_without_its_defaults_and_comes_back():
    sent = Advice(point=np.array([0.5, 1.0]), message=True)
    assert set(sent.arrays) == {"point"}
    assert sent.values == {"message": True}
    task = Task(Phase.TRAIN, 1, 0, 1, {**sent.arrays, "secure.members": np.ones(1)}, sent.values)
    assert Advice.of(task).values == sent.values
    assert Advice.of(task).point is sent.point
    assert Message().payload == Payload()
    assert Message.of(Report(0, 1)) == Message()


@dataclass(frozen=True, kw_only=True)
class Cells(Content):
    cells: Annotated[AnyArray | None, whole(None, high=9, most=4)] = None
    triangle: Annotated[AnyArray | None, real(lambda algorithm, space: space.dimension + 1)] = None
    count: int = 0


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"other": np.ones(3)}, "names"),
        ({"triangle": np.ones(2)}, "shape"),
        ({"triangle": np.ones(3, dtype=np.float32)}, "dtype"),
        ({"triangle": np.array([0, np.nan, 0])}, "not-finite"),
        ({"cells": np.array([10])}, "bounds"),
        ({"cells": np.arange(5)}, "shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, Any], word: str):
    schema = schema_of(Cells, FTS(), SPACE)
    with pytest.raises(WireError) as caught:
        checked_arrays(arrays, schema.arrays)
    assert caught.value.reason == word


def test_scalars_that_do_not_fit_are_refused():
    schema = schema_of(Cells, FTS(), SPACE)
    assert checked_values({"values": '{"count": 3}'}, schema) == {"count": 3}
    for text in ('{"count": true}', '{"count": 0.5}', '{"other": 1}'):
        with pytest.raises(WireError):
            checked_values({"values": text}, schema)
