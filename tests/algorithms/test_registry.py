"""Every algorithm has one record, the record tells the truth, and what other packages register is found."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from contract import SQUARE
from flwr.app import Context, RecordDict

import fbo_flower.algorithms
import fbo_flower.strategies
from fbo_flower import wire
from fbo_flower.algorithms import ALGORITHMS, AlgorithmRecord, Meaning, RandomSearch, make_algorithm, registry
from fbo_flower.algorithms.built_in import RECORDS
from fbo_flower.algorithms.messages import report_schema
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.registry import BUILT_IN, PluginWarning, find, lookup, records
from fbo_flower.cli import main as cli
from fbo_flower.clients import TuningAgent
from fbo_flower.errors import ConfigError
from fbo_flower.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
Register = Callable[..., None]

# what the entry points of the tests name
SAME_NAME_AS_FTS = AlgorithmRecord(
    name="fts", home="nowhere:FTS", summary="", server_sends="", agent_sends="", inference=""
)
NOT_A_RECORD = "text"
NO_CODE = replace(SAME_NAME_AS_FTS, name="no-code", home="not_installed:Nothing")
MISNAMED_CLASS = replace(BUILT_IN["random"], name="misnamed")


class Own(RandomSearch):
    """An algorithm of somebody else."""

    name = "own"


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """Return a function that stands for the installation of packages: `register(name=home, ...)`."""

    def clear() -> None:
        registry._entries.cache_clear()
        registry._plugin.cache_clear()

    def install(*pairs: tuple[str, str]) -> None:
        entries = [EntryPoint(name, home, registry.GROUP) for name, home in pairs]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)
        clear()

    clear()
    yield install
    clear()


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_a_record_tells_the_truth_about_its_algorithm_and_its_strategy(name: str) -> None:
    record, strategy = BUILT_IN[name], STRATEGIES[name]
    kind = record.load()
    assert kind.name == name
    assert kind.__name__ == record.class_name
    assert ALGORITHMS[name] is kind
    schema = report_schema(make_algorithm(name, {}), SQUARE)
    unexplained = {*schema.arrays, *schema.values} - set(record.meanings)
    assert not unexplained, f"{name}: explain {', '.join(sorted(unexplained))} in `meanings` of its record"
    assert all((record.summary, record.server_sends, record.agent_sends, record.inference))
    assert not record.page or (ROOT / record.page.partition("#")[0]).is_file()
    assert strategy.algorithm_class is kind
    assert strategy is STRATEGIES[name] is getattr(fbo_flower.strategies, record.class_name), "made once"
    assert {record.class_name} <= {*fbo_flower.algorithms.__all__} & {*fbo_flower.strategies.__all__}
    assert set(kind.option_defaults()) <= set(inspect.signature(strategy).parameters)
    assert record.summary in str(strategy.__doc__)
    assert record.caution in str(strategy.__doc__)


def test_a_record_that_cannot_be_right_is_refused() -> None:
    assert len({record.style for record in RECORDS} - {None}) == len(RECORDS), "each has a style of its own"
    for name, value, match in (
        ("name", "DP FTS", "lower case"),
        ("home", "no_class", "package.module:Class"),
        ("summed", frozenset({"sums"}), "sums"),
    ):
        with pytest.raises(ConfigError, match=match):
            replace(BUILT_IN["random"], **{name: value})
    with pytest.raises(ConfigError, match="points and values"):
        Meaning("a", "b", "everything")


def test_an_unknown_name_and_one_of_two_packages_are_refused(register: Register) -> None:
    register(("fts", f"{__name__}:SAME_NAME_AS_FTS"))
    assert find("fts") is BUILT_IN["fts"]
    with pytest.warns(PluginWarning, match=r"built in \(fbo_flower.*test_registry:SAME_NAME_AS_FTS"):
        assert records() == BUILT_IN
    register(("no-code", f"{__name__}:NO_CODE"))
    with pytest.raises(ConfigError, match=r"random, ts, fts.*rfms, no-code, got 'qqq'.*every agent"):
        make_algorithm("qqq", {})
    assert lookup("nope") is None
    register(("no-code", f"{__name__}:NO_CODE"), ("no-code", "another.package:RECORD"))
    with pytest.raises(ConfigError, match=r"test_registry:NO_CODE.*another\.package:RECORD.*uninstall"):
        find("no-code")


@pytest.mark.parametrize(
    ("name", "home", "match"),
    [
        ("broken", "not_installed.anywhere:RECORD", "ModuleNotFoundError: No module named 'not_installed'"),
        ("broken", f"{__name__}:MISSING", "AttributeError"),
        ("broken", f"{__name__}:NOT_A_RECORD", "expected an AlgorithmRecord .* got 'text'"),
        ("broken", f"{__name__}:NO_CODE", "got a record named 'no-code'"),
        ("no-code", f"{__name__}:NO_CODE", "no-code: not_installed:Nothing"),
        ("misnamed", f"{__name__}:MISNAMED_CLASS", "got name = 'random'"),
    ],
)
def test_a_broken_plugin_costs_itself(name: str, home: str, match: str, register: Register, capsys) -> None:
    register((name, home))
    with pytest.raises(ConfigError, match=match):
        make_algorithm(name, {})
    if name == "broken":  # not even its record can be used
        with pytest.raises(ConfigError, match=match):
            STRATEGIES[name]
        assert lookup(name) is None
        with pytest.warns(PluginWarning, match=match):
            assert records() == BUILT_IN
        assert cli.run(["algorithms", name]) == 2
    assert cli.run(["algorithms"]) == 0
    shown = capsys.readouterr()
    assert f"warning: algorithm: '{name}'" in shown.err or re.search(match, shown.err)
    assert "rfms" in shown.out


def test_an_agent_declines_an_algorithm_that_is_not_installed_and_names_it() -> None:
    node = Context(1, 2, {"partition-id": 0}, RecordDict(), {})
    agent = TuningAgent(lambda config, context: 0.0, SQUARE, node, seed=1)
    envelope = wire.Envelope("s", "0", SQUARE.digest, "of-another-house", "{}")
    packed = wire.encode_task(Task(Phase.TRAIN, 1, 0, 3), envelope)
    with pytest.raises(ConfigError, match=r"got 'of-another-house'.*install that package here too"):
        agent.answer(packed)


@pytest.mark.usefixtures("register")
def test_an_algorithm_is_registered_from_outside_without_a_package(monkeypatch) -> None:
    monkeypatch.setattr(registry, "_LOCAL", {})
    own = replace(BUILT_IN["random"], name="own", home=f"{__name__}:Own")
    fbo_flower.algorithms.register(own)
    assert find("own") is own
    assert type(make_algorithm("own", {})) is ALGORITHMS["own"] is STRATEGIES["own"].algorithm_class is Own
    with pytest.raises(ConfigError, match=r"'fts' is the name of fbo_flower.*rename nowhere:FTS"):
        fbo_flower.algorithms.register(SAME_NAME_AS_FTS)
