"""Replies that nobody may use: refused before the algorithm sees them, counted by reason, named once.

What no sender of this package writes is refused too: records, scalars and arrays, at both ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from federation import agents, log_lines
from flwr.app import Array as FlowerArray
from flwr.app import MessageType, MetricRecord, RecordDict
from hostile import npy
from waiting import LATE

from fbo_flower.errors import ConfigError
from fbo_flower.reports.summary import summarise, to_markdown
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import FIRST_NODE, Fault, InProcessGrid
from fbo_flower.strategies import FTS, CoKG, RandomSearch, replies
from fbo_flower.strategies.recorder import tally
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.study import Study

OPTIONS: dict[Any, dict[str, Any]] = {
    FTS: {"num_features": 12, "schedule": 0.5, "num_candidates": 32, "num_path_features": 16},
    CoKG: {"num_points": 25, "num_initial": 3},
    RandomSearch: {},
}
PICKLE = b"cos\nsystem\n(S'exit 1'\ntR."
ROUND, NUM_ROUNDS = 3, 4
Change = Callable[[RecordDict], Any]  # in place, or by returning other content


def entry(**entries: object) -> Change:
    changes = {key.replace("_", "-"): value for key, value in entries.items()}
    return lambda content: content["config"].update(changes)


def array(change_array: Callable[[np.ndarray], np.ndarray], name: str = "weights") -> Change:
    def change(content: RecordDict) -> None:
        content["arrays"][name] = FlowerArray(change_array(content["arrays"][name].numpy().copy()))

    return change


def data(make: Callable[[bytes], bytes]) -> Change:
    def change(content: RecordDict) -> None:
        old = content["arrays"]["weights"]
        content["arrays"]["weights"] = FlowerArray(
            dtype="float64", shape=old.shape, stype="numpy.ndarray", data=make(old.data)
        )

    return change


def more_records(content: RecordDict) -> None:
    content["junk"] = MetricRecord({"loss": float("nan")})


def more_arrays(content: RecordDict) -> None:
    if "arrays" in content:
        content["arrays"]["junk"] = FlowerArray(np.array([np.nan]))
        content["config"]["names"] = ",".join(content["arrays"])


def sent_before(kept: list[RecordDict]) -> Change:
    return lambda content: kept.append(content) or kept[0]


def of_another_agent(kept: list[RecordDict]) -> Change:
    return lambda content: kept[0]


more_scalars = entry(loss=float("nan"))
# what is counted, and the change of a reply; `tests/wire` has more of each kind
OF_FTS: dict[str, tuple[str, Change]] = {
    "nan": ("not-finite", array(lambda w: np.where(np.arange(12) == 0, np.nan, w))),
    "huge norm": ("bounds", array(lambda w: w * 1e9)),
    "wrong shape": ("shape", array(lambda w: w[:-1])),
    "wrong dtype": ("dtype", array(lambda w: w.astype(np.float32))),
    "truncated": ("size", data(lambda d: d[:-8])),
    "truncated in the header": ("encoding", data(lambda d: d[:20])),
    "a pickle in npy": ("dtype", data(lambda d: npy("(12,)", PICKLE, "'|O'"))),
    "schema": ("schema", entry(schema=99)),
    "search space": ("space", entry(space="ab" * 32)),
    "study": ("study", entry(study="another")),
    "agent": ("agent", entry(agent="0")),
    "negative count": ("num-failed", entry(num_failed=-1)),
    "negative trials": ("num-trials", entry(num_trials=-1)),
    "another trial": ("trial", entry(trial=0)),
    "another name": ("names", entry(names="x")),
    "unknown value": ("values", entry(values='{"secret":1}')),
    "bytes": ("content", entry(more=b"x")),
    "a record": ("content", more_records),
    "a scalar": ("names", more_scalars),
    "an array": ("names", more_arrays),
}
OF_CO_KG: dict[str, tuple[str, Change]] = {
    "not definite": ("covariance", array(lambda c: -c, "covariance")),
    "above the prior": ("covariance", array(lambda c: 1e6 * c, "covariance")),
    "short": ("shape", array(lambda c: c[:-1], "covariance")),
}


def lying(change: Change, rounds: tuple[int, ...] = (ROUND,)) -> Fault:
    return Fault("malformed", rounds, change=lambda content: change(content) or content)


def tune(
    kind: Any = FTS, faults: Any = None, count: int = 3, grid: Any = InProcessGrid, **settings: Any
) -> Study:
    strategy = kind(**{"num_agents": count, "seed": 3, "round_timeout": 0.2, **OPTIONS[kind], **settings})
    return strategy.start(agents(count, seed=3, grid=grid, faults=faults), num_rounds=NUM_ROUNDS).study


@pytest.mark.parametrize(("kind", "changes"), [(FTS, OF_FTS), (CoKG, OF_CO_KG)], ids=["fts", "co-kg"])
def test_replies_of_no_use_are_refused_and_counted_by_reason(
    kind: Any, changes: Mapping[str, tuple[str, Change]], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    faults = {i: lying(change) for i, (_, change) in enumerate(changes.values(), start=1)}
    reasons = [reason for reason, _ in changes.values()]
    kept: list[RecordDict] = []
    faults[0] = Fault("malformed", [ROUND], change=lambda content: kept.append(content) or content)
    faults[len(faults)] = lying(of_another_agent(kept))
    faults[len(faults)] = lying(sent_before([]), (ROUND - 1, ROUND))
    reasons += ["agent", "round"]
    count = len(faults) + 1
    liars = {str(liar) for liar in range(1, count - 1)}
    told: list[set[str]] = []
    algorithm = type(kind(**OPTIONS[kind]).algorithm)
    tell = algorithm.tell

    def noting(self: Any, state: Any, phase: Any, reports: Mapping[str, Any]) -> Any:
        told.append(set(reports))
        return tell(self, state, phase, reports)

    monkeypatch.setattr(algorithm, "tell", noting)
    with log_lines(logging.WARNING) as lines:
        study = tune(kind, faults, count)
    everybody = set(map(str, range(count)))
    assert told[:NUM_ROUNDS] == [everybody, everybody, everybody - liars, everybody]
    assert study.rounds["refused"].tolist() == [0, 0, len(liars), 0]
    counts = {reason: reasons.count(reason) for reason in reasons}
    assert study.rounds["reasons"].tolist() == ["", "", tally(counts), ""]
    named = [line.partition(": ")[0] for line in lines if ": refused: " in line]
    assert sorted(named) == sorted(f"Round {ROUND}, agent {liar}" for liar in liars)
    study.save(tmp_path)
    assert f",{tally(counts)}\n" in (tmp_path / "rounds.csv").read_text()
    assert Study.load(tmp_path) == study
    head, _, row = to_markdown(summarise(study)).splitlines()
    cells = dict(zip(map(str.strip, head.split("|")), map(str.strip, row.split("|")), strict=True))
    assert {reason: cells[reason] for reason in counts} == {r: str(n) for r, n in counts.items()}


class Twice(InProcessGrid):
    """Hands every reply over twice, and the last one first."""

    def pull_messages(self, message_ids):
        found = list(super().pull_messages(message_ids))[::-1]
        return [reply for reply in found for _ in range(2)]


def test_replies_that_come_twice_and_in_any_order_count_once() -> None:
    plain, twice = tune(), tune(grid=Twice)
    assert twice.trials == plain.trials
    assert twice.rounds["replies"].tolist() == [3] * NUM_ROUNDS
    assert twice.rounds["bytes_up"].tolist() == plain.rounds["bytes_up"].tolist()


def test_a_round_closes_with_its_quorum_and_latecomers_join_the_next() -> None:
    faults = {1: Fault("slow", [2], seconds=LATE)}
    study = tune(RandomSearch, faults, quorum=0.6, round_timeout=30.0)
    assert study.rounds["replies"].tolist() == [3, 2, 3, 3]
    assert study.rounds["reasons"].tolist() == ["", "late:1", "", ""]
    mine = study.trials.where(agent="1")
    assert sorted(mine["trial"].tolist()) == list(range(len(mine))), "none lost, none twice"
    assert int(mine["round"].max()) > 2


def test_a_silent_node_that_failed_before_is_not_waited_for_longer_than_a_round(monkeypatch) -> None:
    waits: list[float] = []
    register_late = AgentRegistry.register_late

    def noting(self, connected, seconds=30.0):
        waits.append(seconds)
        return register_late(self, connected, seconds)

    monkeypatch.setattr(AgentRegistry, "register_late", noting)
    tune(RandomSearch, {1: Fault("raising", [2])})
    assert waits == [0.2] * NUM_ROUNDS


# -- content that this package does not write -----------------------------------------------------


class Changed(InProcessGrid):
    """A grid that changes some messages from nodes, or `towards` them: partition -> change."""

    changes: Mapping[int, Change]
    kind: str
    towards = False

    def push_messages(self, messages):
        listed = list(messages)
        for message in listed if self.towards else ():
            self._change(message, message.metadata.dst_node_id)
        return super().push_messages(listed)

    def pull_messages(self, message_ids):
        found = list(super().pull_messages(message_ids))
        for reply in () if self.towards else found:
            self._change(reply, reply.metadata.src_node_id)
        return found

    def _change(self, message, node):
        change = self.changes.get(node - FIRST_NODE)
        if change is not None and message.metadata.message_type == self.kind and not message.has_error():
            change(message.content)


def changed(changes: Mapping[int, Change], kind: str, **given: Any) -> Any:
    grid = agents(4, grid=Changed, **given)
    grid.changes, grid.kind = changes, kind
    return grid


def search(wait_seconds: float = 5.0) -> Any:
    return RandomSearch(num_agents=4, seed=0, wait_seconds=wait_seconds)


def test_tasks_with_something_else_are_refused_and_the_others_go_on() -> None:
    grid = changed({1: more_records, 2: more_scalars, 3: more_arrays}, MessageType.TRAIN)
    grid.towards = True
    study = search().start(grid, num_rounds=3).study
    assert set(study.trials["agent"]) == {"0"}
    assert set(study.rounds["reasons"].tolist()) == {"error:3"}


@pytest.mark.parametrize(
    ("change", "towards", "message"),
    [
        (more_records, False, "registration: expected only config, got"),
        (more_scalars, False, r"registration: expected only agent, .*, got \['loss'\]"),
        (more_scalars, True, r"query: expected only end, key, got \['loss'\]"),
    ],
)
def test_registrations_and_questions_with_something_else_are_refused(change, towards, message) -> None:
    grid = changed({0: change}, MessageType.QUERY)
    grid.towards = towards
    with pytest.raises(ConfigError, match=message):
        search(0.0).start(grid, num_rounds=1)


def test_only_the_expected_answer_confirms_the_end_of_a_study() -> None:
    def at_the_end(change: Change) -> Change:
        return lambda content: None if content["config"] else change(content)

    changes = {0: at_the_end(more_records), 1: at_the_end(more_scalars)}
    with log_lines() as lines:
        search().start(changed(changes, MessageType.QUERY, on_finish=lambda *_: None), num_rounds=1)
    assert any("2 of 4 agents did not confirm the end of the study" in line for line in lines)


def test_other_versions_and_clocks_are_told_once_and_take_part() -> None:
    grid = changed(
        {
            0: entry(version="9\x1b[31m"),
            1: lambda content: content["config"].update(flwr="0.1", time=600.0),
            2: entry(time=float("nan")),
            3: entry(time="now"),
        },
        MessageType.QUERY,
    )
    with log_lines() as lines:
        study = search().start(grid, num_rounds=4).study
    one, other = [line for line in lines if line.startswith("Agent ")]
    assert one.startswith("Agent 0, node 1001: fbo-flower 9")
    assert ", the server has" in one
    assert "\x1b" not in one
    assert other.startswith("Agent 1, node 1002: flwr 0.1, the server has")
    assert "its clock is -" in other
    assert set(study.trials["agent"]) == set("0123")


def test_the_last_answer_of_a_lockbox_is_no_exception(monkeypatch) -> None:
    original, spoilt = replies.from_records, []

    def spoil(content, *others):
        if content["config"].get("phase") == "finish":
            spoilt.append(content["config"]["agent"])
            more_records(content)
        return original(content, *others)

    monkeypatch.setattr(replies, "from_records", spoil)
    study = simulate("breast-cancer-5sites", agents=5, algorithm="rfms", num_rounds=2, engine="inline")
    assert spoilt
    assert study.rounds["refused"].sum() == len(spoilt)
