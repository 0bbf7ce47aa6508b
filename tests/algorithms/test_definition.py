"""A class that would lose something of what its author wrote is refused, with what to write instead."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest

from fbo_flower.algorithms import Algorithm, Content, RandomSearch, real, summable
from fbo_flower.algorithms.options import integer
from fbo_flower.algorithms.protocol import Independent
from fbo_flower.algorithms.registry import Algorithms
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


def content(base=Content, decorator=option, **members):
    annotations = {name: kind for name, (kind, _) in members.items()}
    values = {name: value for name, (_, value) in members.items()}
    return decorator(type("Sent", (base,), {"__annotations__": annotations, **values}))


def reporting(kind, **members):
    return {"report_content": kind, "task_content": Plain, **members}


def array(spec, default=None, **more):
    return content(x=(Annotated[np.ndarray | None, spec], default), **more)


BARE = {"x": (Annotated[np.ndarray | None, real("D")], None)}

# what a class holds, and what the error says; `bare`: without @dataclass
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "sum of any length": (
        reporting(array(summable(None, bound=1.0))), "x: .*lengths are known"
    ),
    "misspelt hook": ({"sumarise": lambda self, t, a, r: None}, "sumarise: .*did you mean summarise?"),
    "misspelt variable": ({"budget_options": 3}, "did you mean budget_option?"),
    "other arguments": ({"tell": lambda self, state, reports: state},
                        r"tell: expected \(self, state, phase, replies\), got \(self, state, reports\)"),
    "method for a variable": ({"barrier": lambda self: ""}, "expected a class variable, got a method"),
    "method for a property": ({"secure_sums": lambda self: 3}, "secure_sums: expected @property"),
    "variable for a method": ({"finished": True}, r"finished: expected a method \(self, state"),
    "option for a variable": (
        {"__annotations__": {"barrier": str}, "barrier": ""}, "write `barrier: ClassVar.str. = ''`"
    ),
    "option without a type": ({"num_initial": 5}, "num_initial: .*write `num_initial: int = 5`"),
    "option without a default": ({"__annotations__": {"width": float}}, ".*write `width: float = ...`"),
    "option without a dataclass": (
        {"__annotations__": {"width": float}, "width": 0.2, "bare": True}, "width: .*@dataclass.frozen=True"
    ),
    "no content": (reporting(dict), "report_content: expected a subclass of Content"),
    "content without a dataclass": (reporting(content(decorator=lambda k: k, **BARE)), "x: .*@dataclass"),
    "array without a specification": (
        reporting(content(x=(np.ndarray | None, None))), r"x: .*Annotated\[np.ndarray . None, real"
    ),
    "scalar that may be None": (reporting(content(x=(float | None, None))), "x: expected bool, int, float"),
    "scalar of another type": (reporting(content(x=(float, 1))), "x: expected a default of the type float"),
    "array with a default": (reporting(array(real(2), 0.0)), "x: expected the default None"),
    "misspelt hook of a content": (
        reporting(type("Sent", (Sum,), {"ask_for_sum": classmethod(lambda cls, task: True)})),
        "Sent.ask_for_sum: .*Content, which has none.*did you mean asks_for_sum?",
    ),
    "hook of a content without a class": (
        reporting(type("Sent", (Sum,), {"asks_for_sum": lambda self, task: True})),
        "asks_for_sum: expected a class method, got a function; write @classmethod",
    ),
    "hook of a content with other arguments": (
        reporting(type("Sent", (Sum,), {"asks_for_sum": classmethod(lambda cls: True)})),
        r"asks_for_sum: expected \(cls, task\), got \(cls\)",
    ),
    "hook of a content in the algorithm": (
        reporting(Sum, asks_for_sum=classmethod(lambda cls, task: True)), "asks_for_sum: .*move it there"
    ),
    "field named as a member": (reporting(content(values=(int, 0))), "values: expected another name"),
    "no name": ({"name": None}, "Mine: expected a name, as users type it, got none"),
    "option with a factory": (
        {"__annotations__": {"a": list}, "a": field(default_factory=list)}, "got a default_factory"
    ),
    "array without a default": (
        reporting(content(x=(Annotated[np.ndarray | None, real("D")], field()))),
        "x: .*None of an array, got none",
    ),
    "length that nobody has": (reporting(array(real("num_featurs"))), "x: expected an option.*'num_featurs'"),
    "length of another array": (reporting(array(real("len(cells)"))), "expected an array of Plain.*'cells'"),
    "another scalar": (reporting(array(real("value(slots)"))), "expected a scalar of Plain.*'slots'"),
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


@pytest.mark.parametrize("name", Algorithms())
def test_built_in_classes_are_what_they_must_be(name):
    Algorithms()[name]()


def test_what_nobody_could_mistake_is_allowed():
    @option
    class Mine(RandomSearch):
        name: ClassVar[str] = "mine"
        report_content: ClassVar[type[Content]] = Sum
        task_content: ClassVar[type[Content]] = Plain
        num_initial: int = integer(5, 1)
        names: tuple[str, ...] = field(default=())

        def summarise(self, task, agent_state, rng, *, extra=None):
            return Sum()

    assert Mine(num_initial=2).num_initial == 2
    assert Mine(secure_sums=3).options()["secure_sums"] == 3, "it has a summable report"
    for kind, least, match in ((Mine, 1, "from 2 on, got 1"), (RandomSearch, 3, "secure_sums")):
        with pytest.raises(ConfigError, match=match):
            kind(secure_sums=least)


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
