"""Replies that nobody may use: refused before the algorithm sees them, counted by reason, named once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from federation import agents, log_lines
from flwr.app import Array as FlowerArray
from flwr.app import RecordDict
from hostile import npy
from waiting import LATE

from fbo_flower.reports.summary import summarise, to_markdown
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import FTS, CoKG, RandomSearch
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.study import Study

OPTIONS = {
    FTS: {"num_features": 12, "schedule": 0.5, "num_candidates": 32, "num_path_features": 16},
    CoKG: {"num_points": 25, "num_initial": 3},
    RandomSearch: {},
}
PICKLE = b"cos\nsystem\n(S'exit 1'\ntR."
ROUND, NUM_ROUNDS, LIAR = 3, 5, 1
Change = Callable[[RecordDict], RecordDict]


def entry(**entries: object) -> Change:
    changes = {key.replace("_", "-"): value for key, value in entries.items()}
    return lambda content: content["config"].update(changes) or content


def array(change_array: Callable[[np.ndarray], np.ndarray], name: str = "weights") -> Change:
    def change(content: RecordDict) -> RecordDict:
        content["arrays"][name] = FlowerArray(change_array(content["arrays"][name].numpy().copy()))
        return content

    return change


def data(make: Callable[[bytes], bytes]) -> Change:
    def change(content: RecordDict) -> RecordDict:
        old = content["arrays"]["weights"]
        content["arrays"]["weights"] = FlowerArray(
            dtype="float64", shape=old.shape, stype="numpy.ndarray", data=make(old.data)
        )
        return content

    return change


# what is counted, and the change of an FTS reply; `tests/wire` has more of each kind
KINDS: dict[str, tuple[str, Change]] = {
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
}
POSTERIORS = {
    "not definite": ("covariance", array(lambda c: -c, "covariance")),
    "above the prior": ("covariance", array(lambda c: 1e6 * c, "covariance")),
    "short": ("shape", array(lambda c: c[:-1], "covariance")),
}


def tune(kind=FTS, faults=None, *, grid=InProcessGrid, **settings) -> Study:
    strategy = kind(**{"num_agents": 3, "seed": 3, "round_timeout": 0.2, **OPTIONS[kind], **settings})
    return strategy.start(agents(3, seed=3, grid=grid, faults=faults), num_rounds=NUM_ROUNDS).study


def lying(change: Change, rounds=(ROUND,)) -> dict[int, Fault]:
    return {LIAR: Fault("malformed", rounds=list(rounds), change=change)}


@pytest.fixture
def refused(monkeypatch, tmp_path):
    """Return a check that one reply was refused for a reason, in the algorithm, tables, files and log."""

    def check(reason: str, faults: dict[int, Fault], kind=FTS) -> None:
        told: list[list[str]] = []
        algorithm = type(kind(**OPTIONS[kind]).algorithm)
        tell = algorithm.tell

        def noting(self, state, phase, reports):
            told.append(list(reports))
            return tell(self, state, phase, reports)

        monkeypatch.setattr(algorithm, "tell", noting)
        with log_lines(logging.WARNING) as lines:
            study = tune(kind, faults)
        assert told[:NUM_ROUNDS] == [["0", "2"] if i == ROUND else ["0", "1", "2"] for i in range(1, 6)]
        assert study.rounds["refused"].tolist() == [0, 0, 1, 0, 0]
        assert study.rounds["reasons"].tolist() == ["", "", f"{reason}:1", "", ""]
        (line,) = [line for line in lines if "refused" in line]
        assert line.startswith(f"Round {ROUND}, agent {LIAR}: refused: ")
        study.save(tmp_path)
        assert f",{reason}:1\n" in (tmp_path / "rounds.csv").read_text()
        assert Study.load(tmp_path) == study
        head, _, row = to_markdown(summarise(study)).splitlines()
        cells = dict(zip(map(str.strip, head.split("|")), map(str.strip, row.split("|")), strict=True))
        assert cells[reason] == "1"

    return check


@pytest.mark.parametrize(
    ("kind", "reason", "change"),
    [
        *(pytest.param(FTS, *case, id=name) for name, case in KINDS.items()),
        *(pytest.param(CoKG, *case, id=f"a posterior that is {n}") for n, case in POSTERIORS.items()),
    ],
)
def test_a_reply_of_no_use_is_refused_and_counted_by_reason(kind, reason, change, refused) -> None:
    refused(reason, lying(change), kind)


def test_a_reply_that_was_sent_before_is_refused(refused) -> None:
    kept: list[RecordDict] = []

    def replayed(content: RecordDict) -> RecordDict:
        kept.append(content)
        return kept[-2] if len(kept) == 2 else content

    refused("round", lying(replayed, (ROUND - 1, ROUND)))


def test_another_agents_reply_is_refused(refused) -> None:
    kept: list[RecordDict] = []
    noted = Fault("malformed", [ROUND], change=lambda content: kept.append(content) or content)
    refused("agent", {0: noted, **lying(lambda content: kept[-1])})


class Twice(InProcessGrid):
    """Hands every reply over twice, and the last one first."""

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))[::-1]
        return [reply for reply in replies for _ in range(2)]


def test_replies_that_come_twice_and_in_any_order_count_once() -> None:
    plain, twice = tune(), tune(grid=Twice)
    assert twice.trials == plain.trials
    assert twice.rounds["replies"].tolist() == [3] * NUM_ROUNDS
    assert twice.rounds["bytes_up"].tolist() == plain.rounds["bytes_up"].tolist()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(partial(Fault, "slow", seconds=LATE), "late"), (partial(Fault, "raising"), "error")],
)
def test_a_reply_that_does_not_come_is_counted_by_reason(fault, reason: str) -> None:
    study = tune(faults={LIAR: fault(rounds=[ROUND])})
    assert study.rounds["failures"].tolist() == [0, 0, 1, 0, 0]
    assert study.rounds["reasons"].tolist() == ["", "", f"{reason}:1", "", ""]


def test_refusals_of_the_last_exchange_count_in_the_last_round() -> None:
    study = tune(CoKG, lying(entry(schema=2), (NUM_ROUNDS, NUM_ROUNDS + 1)))
    assert study.rounds["reasons"].tolist() == ["", "", "", "", "schema:2"]
    assert study.rounds["refused"].tolist() == [0, 0, 0, 0, 2]


# -- quorum and deadline -----------------------------------------------------------------------


def test_a_round_closes_with_its_quorum_and_latecomers_join_the_next() -> None:
    faults = {LIAR: Fault("slow", [2, 3], seconds=LATE)}
    study = tune(RandomSearch, faults, quorum=0.6, round_timeout=30.0)
    assert study.rounds["replies"].tolist() == [3, 2, 2, 3, 3]
    assert study.rounds["reasons"].tolist() == ["", "late:1", "late:1", "", ""]
    mine = study.trials.where(agent=str(LIAR))
    assert sorted(mine["trial"].tolist()) == list(range(len(mine))), "none lost, none twice"
    assert int(mine["round"].max()) > 3


def test_a_silent_node_that_failed_before_is_not_waited_for_longer_than_a_round(monkeypatch) -> None:
    waits: list[float] = []
    register_late = AgentRegistry.register_late

    def noting(self, grid, connected, stop, seconds=30.0):
        waits.append(seconds)
        register_late(self, grid, connected, stop, seconds)

    monkeypatch.setattr(AgentRegistry, "register_late", noting)
    tune(RandomSearch, {LIAR: Fault("raising", [2])})
    assert waits == [0.2] * NUM_ROUNDS
