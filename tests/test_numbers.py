"""What users pass: numbers of any library, copies of what they hold, clumsy values at public edges."""

import copy
import dataclasses
import importlib
import inspect
import math
import pickle
import pkgutil
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fbo_flower
from fbo_flower import (
    Categorical,
    Float,
    Int,
    Optimizer,
    SearchSpace,
    Site,
    Study,
    client_app,
    errors,
    simulate,
)
from fbo_flower.algorithms import ALGORITHMS
from fbo_flower.algorithms.options import Configurable, Settings
from fbo_flower.errors import ConfigError, FBOError, ObjectiveError, WrongTypeError
from fbo_flower.federated import Judge
from fbo_flower.models import Limits
from fbo_flower.simulation import (
    Agents,
    InProcessGrid,
    Keep,
    RayEngine,
    Sync,
    log_normal,
    make_problem,
    slower,
)
from fbo_flower.simulation.problems import PROBLEMS
from fbo_flower.space.checks import check_flag, check_integer, check_number
from fbo_flower.strategies import TuningStrategy
from fbo_flower.trackers import OptunaTracker

TABLE = Path(__file__).parent / "golden" / "settings.txt"
SPACE = SearchSpace({"x": Float(0, 1), "n": Int(1, 3), "kind": Categorical(["a", "b"])})


class Tensor:
    """A scalar of a library like torch (`item`) or TensorFlow (`numpy`)."""

    def __init__(self, value, method="item", shape=()):
        self.value, self.shape = value, shape
        setattr(self, method, lambda: np.asarray(self.value).reshape(()) if method == "numpy" else self.value)


def forms(value):
    """Yield a Python value as the libraries hold it, all equal to it."""
    yield from (np.asarray(value)[()], np.array(value), Tensor(value), Tensor(value, "numpy"))
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (np.int8(value), np.uint64(value)) if 0 <= value < 128 else ()
    if isinstance(value, float):
        yield from (np.float64(value), Fraction(value), Decimal(value), np.longdouble(value))


def test_a_value_of_any_library_is_the_plain_one_and_kinds_are_not_mixed():
    for check, value, wrong in (
        (check_integer, 3, [True, 3.0, np.float64(3), "3", None, np.timedelta64(3, "ns"), np.array([3])]),
        (check_number, 0.5, [True, np.bool_(1), "0.5", None, 1j, math.nan, Decimal("sNaN"), [0.5]]),
        (check_flag, True, [1, 0.0, "yes", None, np.int64(1), np.array([True])]),
    ):  # fmt: skip
        bounds = () if check is check_flag else (0,)
        for form in forms(value):
            found = check("it", form, *bounds)
            assert (found, type(found)) == (value, type(value))
        for form in wrong:
            with pytest.raises(ConfigError, match=r"^it: expected .*, got .*$"):
                check("it", form, *bounds)


def settings():
    """Every class whose fields say what they may be, in the whole package, also abstract ones."""
    for module in pkgutil.walk_packages(fbo_flower.__path__, "fbo_flower."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, left = [], [Settings]
    while left:
        left += (below := left.pop().__subclasses__())
        found += [kind for kind in below if dataclasses.is_dataclass(kind)]
    return [kind for kind in dict.fromkeys(found) if kind.__module__.startswith("fbo_flower.")]


def kinds():
    """Those of which users make objects."""
    whole = [kind for kind in settings() if not inspect.isabstract(kind)]
    return [kind for kind in whole if not issubclass(kind, Configurable) or hasattr(kind, "name")]


def declared():
    """Yield class, field, check, and the bounds or choices that the check was made with."""
    for kind in sorted(settings(), key=lambda kind: kind.__qualname__):
        for field in dataclasses.fields(kind):
            if field.name in kind.__annotations__ and (check := field.metadata.get("check")):
                yield kind, field, check, inspect.getclosurevars(check).nonlocals


def table_of_settings():
    """Return a line for each setting that is checked, with its bounds or choices."""
    lines = (
        (f"{kind.__qualname__}.{field.name}", held.get("choices") or sorted(held.values()))
        for kind, field, _, held in declared()
        if not any(map(callable, held.values()))
    )
    return "".join(f"{name}: {', '.join(map(str, values))}\n" for name, values in lines)


def test_bounds_and_choices_of_all_settings_are_those_of_the_table():
    """Renew the table with `python tests/test_numbers.py`; the commit says why a bound has changed."""
    assert table_of_settings() == TABLE.read_text(encoding="utf-8")


def test_every_setting_takes_its_bounds_and_choices_and_nothing_else():
    for _, field, check, held in declared():
        if "choices" in held:
            good, bad = held["choices"], ["no choice", *([c] for c in held["choices"][:1]), 3, None, True]
        elif "low" in held:
            good, bad = [held["low"], held["high"]], [held["low"] - 1, math.nan, "2", [], True, None]
            if math.isinf(held["high"]):
                good.pop()
            else:
                top = held["high"]
                bad.append(top + 1 if type(top) is int else math.nextafter(top, math.inf))
        elif check is check_flag:
            good, bad = [True, False], [1, 0.0, "yes", None]
        else:
            continue  # a function of its own, which has a test of its own
        for value in good:
            assert check(field.name, value) in {None, value}
        for value in bad:
            with pytest.raises(ConfigError, match=f"^{field.name}: expected .*, got"):
                check(field.name, value)


def test_every_setting_of_every_class_takes_the_numbers_of_any_library():
    tried = 0
    for kind in kinds():
        required = [f.name for f in dataclasses.fields(kind) if f.default is f.default_factory]
        if set(required) - {"label"}:
            continue  # internal ones, whose callers are settings themselves
        for field in dataclasses.fields(kind):
            if "check" not in field.metadata or not isinstance(field.default, bool | int | float):
                continue
            for form in forms(field.default):
                made = kind(**dict.fromkeys(required, "label"), **{field.name: form})
                value = getattr(made, field.name)
                assert value == field.default, (kind, field.name)
                assert type(value) in {type(field.default), int, float}, (kind, field.name)
                tried += 1
            with pytest.raises(ConfigError, match=field.name):
                kind(**dict.fromkeys(required, "label"), **{field.name: "clumsy"})
    assert tried > 500


def run(**given):
    given = {"algorithm": "random", "engine": "inline", **given}
    return simulate(lambda config, data: config["x"], SPACE, **given)


def test_arguments_of_functions_take_them_too():
    plain = run(agents=2, num_rounds=2, seed=3, minimize=True)
    for n in (np.int64, lambda v: Tensor(int(v))):
        assert run(agents=n(2), num_rounds=n(2), seed=n(3), minimize=np.bool_(True)).trials == plain.trials
    assert Float(np.float32(0), Decimal(1), np.bool_(False)) == Float(0, 1)
    assert Int(np.array(1), Tensor(3), log=np.bool_(True)) == Int(1, 3, log=True)
    assert Optimizer(SPACE, seed=np.int64(1)).ask() == Optimizer(SPACE, seed=1).ask()
    assert make_problem("garland", np.int64(3), np.int64(1), {"noise": np.float32(0.5)}).noise == 0.5
    assert Judge(bounds=np.array([0, 1])).bounds == (0.0, 1.0)
    assert log_normal(np.float64(2), np.int64(0))("a", 0, np.random.default_rng(0)) == 2.0
    assert slower(Tensor(2), {"a": Fraction(3, 2)})("a", 0, np.random.default_rng(0)) == 3.0


def test_an_objective_returns_and_a_loop_tells_them_too():
    for value in forms(0.5):
        study = simulate(lambda config, data, value=value: value, SPACE, 1, "random", 1, engine="inline")
        assert study.best["0"]["value"] == 0.5
        optimizer = Optimizer(SPACE, "random")
        optimizer.tell(optimizer.ask(), value)
        assert optimizer.best.value == 0.5
    with pytest.raises(ObjectiveError, match=r"a Tensor, whose item\(\) is a number"):
        simulate(lambda config, data: Tensor(0.5, shape=(1,)), SPACE, 1, "random", 1, engine="inline")


# -- copies ----------------------------------------------------------------------------------------


def copies(thing):
    yield copy.deepcopy(thing)
    yield pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize(("algorithm", "told"), [("ei", 5), ("ts", 1), ("random", 0)])
def test_a_copy_of_an_optimizer_goes_on_as_the_optimizer(algorithm, told):
    optimizer = Optimizer(SPACE, algorithm, seed=1, minimize=True)
    for _ in range(told):
        config = optimizer.ask()
        optimizer.tell(config, config["x"])
    optimizer.ask()
    found = list(copies(optimizer))
    for each in [optimizer, *found]:
        for _ in range(2):
            config = each.ask()
            each.tell(config, config["x"])
    assert {str(each.best) for each in found} == {str(optimizer.best)}
    assert [each.ask() for each in found] == [optimizer.ask()] * 2


def test_what_users_hold_can_be_copied_and_pickled():
    study = run(agents=2, num_rounds=1)
    things = [SPACE, Keep(), Agents(), Sync(), RayEngine(), Limits(), *(k() for k in ALGORITHMS.values())]
    things += [kind(kind.default_agents, 0) for name, kind in PROBLEMS.items()]
    for thing in things:
        assert [str(other) for other in copies(thing)] == [str(thing)] * 2
    for other in copies(study):
        assert (type(other), other.trials, other.settings) == (Study, study.trials, study.settings)
    assert len(list(copies(Site("north.db")))) == 2


def test_errors_survive_a_pickle_with_all_they_say():
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, FBOError):
            error = kind("a dict", "{}", "one finite number") if kind is WrongTypeError else kind("a: b\n")
            for other in copies(error):
                assert (type(other), str(other)) == (kind, str(error))
                assert vars(other) == vars(error)


# -- clumsy values ---------------------------------------------------------------------------------

CLUMSY = [
    None, "", "x", "x" * 10**5, [], {}, object(), math.nan, math.inf, -1, 10**400, b"", True,
    np.array([1, 2]),
]  # fmt: skip


def edges(tmp_path):
    """Return name -> function of one argument, for public arguments; paths have tests of their own."""
    optimizer, study = Optimizer(SPACE, "random"), run(agents=1, num_rounds=1)
    site, point = Site(tmp_path / "north.db"), {"x": 0.5, "n": 1, "kind": "a"}
    two = {"a": "max", "b": "min"}
    calls = {
        "Float": lambda v: Float(v, 1),
        "Categorical": Categorical,
        "active_when": lambda v: Float(0, 1, active_when=v),
        "SearchSpace": SearchSpace,
        "encode": SPACE.encode,
        "decode": SPACE.decode,
        "from_json": SearchSpace.from_json,
        "tell": lambda v: optimizer.tell(v, 1.0),
        "tell value": lambda v: optimizer.tell(point, v),
        "Optimizer algorithm": lambda v: Optimizer(SPACE, v),
        "Optimizer objectives": lambda v: Optimizer(SPACE, objectives=v),
        "Optimizer reference": lambda v: Optimizer(SPACE, objectives=two, reference=v),
        "Site tell": lambda v: site.tell(v, 1.0),
        "Site value": lambda v: site.tell(point, v),
        "Site know": site.know,
        "merge": Study.merge,
        "only": study.only,
        "to_optuna": lambda v: study.to_optuna(space=v),
        "front": study.front,
        "plot": study.plot,
        "nodes": lambda v: InProcessGrid(client_app(lambda c, x: 1.0, SPACE), v),
        "strategy label": lambda v: TuningStrategy(ALGORITHMS["random"](), label=v),
        "tracker": lambda v: OptunaTracker("sqlite:///trials.db", running_from=v),
        "path": study.save,
        "state": optimizer.save,
        "make_problem": lambda v: make_problem(v, 2, 0),
        "slower factor": lambda v: slower(1.0, {"a": v}),
    }
    for name in set(inspect.signature(simulate).parameters) - {"objective", "space"}:
        calls[f"simulate {name}"] = lambda v, name=name: run(**{"agents": 1, "num_rounds": 1, name: v})
    for name in set(inspect.signature(client_app).parameters) - {"objective", "space"}:
        calls[f"client_app {name}"] = lambda v, name=name: client_app(lambda c, x: 1.0, SPACE, **{name: v})
    for kind in [*ALGORITHMS.values(), *kinds()]:
        for field in dataclasses.fields(kind):
            call = partial(lambda v, kind, name: kind(**{name: v}), kind=kind, name=field.name)
            if all(f.default is not f.default_factory for f in dataclasses.fields(kind)):
                calls[f"{kind.__name__} {field.name}"] = call
    return calls


def test_a_clumsy_value_is_taken_or_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = []
    for name, call in edges(tmp_path).items():
        for value in CLUMSY:
            try:
                call(value)
            except FBOError as error:
                if "\n" in str(error) or len(str(error)) > 4000:
                    raw.append(f"{name}({value!r:.40}): {error!s:.100}")
            except Exception as error:
                raw.append(f"{name}({value!r:.40}): {type(error).__name__}: {error!s:.100}")
    assert not raw, "\n".join(raw)


if __name__ == "__main__":
    TABLE.write_text(table_of_settings(), encoding="utf-8")
