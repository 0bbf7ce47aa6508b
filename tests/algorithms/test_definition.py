"""A class that would lose something of what its author wrote is refused, with what to write instead."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest

from fbo_flower.algorithms import Algorithm, Content, RandomSearch, real, summable
from fbo_flower.algorithms.protocol import Independent
from fbo_flower.errors import ConfigError
from fbo_flower.strategies import TuningStrategy

option = dataclass(frozen=True, kw_only=True)


@option
class Sum(Content):
    total: Annotated[np.ndarray | None, summable("D", bound=1.0)] = None


@option
class Plain(Content):
    total: Annotated[np.ndarray | None, real("D")] = None
    size: int = 0


def content(decorator=option, **members):
    annotations = {name: kind for name, (kind, _) in members.items()}
    values = {name: value for name, (_, value) in members.items()}
    return decorator(type("Sent", (Content,), {"__annotations__": annotations, **values}))


def reporting(kind, **members):
    return {"report_content": kind, "task_content": Plain, **members}


def array(spec, decorator=option):
    return content(decorator=decorator, x=(Annotated[np.ndarray | None, spec], None))


# what a class holds, and what the error says; `bare`: without @dataclass
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "sum of any length": (reporting(array(summable(None, bound=1.0))), "x: .*lengths are known"),
    "misspelt hook": ({"sumarise": lambda self, t, a, r: None}, "sumarise: .*did you mean summarise?"),
    "other arguments": ({"tell": lambda self, state, reports: state},
                        r"tell: expected \(self, state, phase, replies\), got \(self, state, reports\)"),
    "method for a variable": ({"barrier": lambda self: ""}, "expected a class variable, got a method"),
    "variable for a method": ({"finished": True}, r"finished: expected a method \(self, state"),
    "option for a variable": (
        {"__annotations__": {"barrier": str}, "barrier": ""}, "write `barrier: ClassVar.str. = ''`"
    ),
    "option without a type": ({"num_initial": 5}, "num_initial: .*write `num_initial: int = 5`"),
    "option without a dataclass": (
        {"__annotations__": {"width": float}, "width": 0.2, "bare": True}, "width: .*@dataclass.frozen=True"
    ),
    "no content": (reporting(dict), "report_content: expected a subclass of Content"),
    "content without a dataclass": (reporting(array(real("D"), lambda k: k)), "x: .*@dataclass"),
    "array without a specification": (
        reporting(content(x=(np.ndarray | None, None))), r"x: .*Annotated\[np.ndarray . None, real"
    ),
    "scalar that may be None": (reporting(content(x=(float | None, None))), "x: expected bool, int, float"),
    "scalar of another type": (reporting(content(x=(float, 1))), "x: expected a default of the type float"),
    "misspelt hook of a content": (
        reporting(type("Sent", (Sum,), {"ask_for_sum": classmethod(lambda cls, task: True)})),
        "Sent.ask_for_sum: .*Content, which has none.*did you mean asks_for_sum?",
    ),
    "hook of a content in the algorithm": (
        reporting(Sum, asks_for_sum=classmethod(lambda cls, task: True)), "asks_for_sum: .*move it there"
    ),
    "field named as a member": (reporting(content(values=(int, 0))), "values: expected another name"),
    "no name": ({"name": None}, "Mine: expected a name, as users type it, got none"),
    "length that nobody has": (reporting(array(real("num_featurs"))), "x: expected an option.*'num_featurs'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_class_that_would_lose_something_is_refused(case):
    members, match = REFUSED[case]
    made = type("Mine", (Independent,), {"name": "mine", **{n: m for n, m in members.items() if n != "bare"}})
    with pytest.raises(ConfigError, match=match):
        (made if "bare" in members else option(made))()


def test_an_abstract_class_says_what_is_missing():
    with pytest.raises(ConfigError, match=r"Empty: expected a method `ask\(self, state.*got none"):
        type("Empty", (Algorithm,), {"name": "empty"})()


def test_what_nobody_could_mistake_is_allowed():
    members = {"__annotations__": {"names": tuple[str, ...]}, "names": field(default=()), **reporting(Sum)}
    kind = option(type("Mine", (RandomSearch,), {"name": "mine", **members}))
    assert kind(secure_sums=3).options()["secure_sums"] == 3, "it has a summable report"
    for algorithm, least, match in ((kind, 1, "from 2 on, got 1"), (RandomSearch, 3, "secure_sums")):
        with pytest.raises(ConfigError, match=match):
            algorithm(secure_sums=least)


@pytest.mark.parametrize("value", [{"a": 1}, [[1]], ((1,),), {1}, float("inf"), print], ids=str)
def test_an_option_that_agents_would_get_as_another_value_is_refused(value):
    @option
    class Mine(RandomSearch):
        name: ClassVar[str] = "mine"
        extra: Any = None

    for good in (None, True, 1, 0.5, np.float64(0.5), "a", (1, "a", None)):
        TuningStrategy(Mine(extra=good))
    with pytest.raises(ConfigError, match="extra: expected an option of mine to be None, a bool, a finite"):
        TuningStrategy(Mine(extra=value))
