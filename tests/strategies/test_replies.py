"""Replies that nobody may use: refused before the algorithm sees them, counted by reason, named once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import RecordDict
from hostile import npy
from waiting import LATE

from fbo_flower.clients import client_app
from fbo_flower.reports.summary import summarise
from fbo_flower.reports.summary_table import to_markdown
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import FTS, CoKG, RandomSearch
from fbo_flower.strategies.base import TuningStrategy
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.study import Study

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
SMALL = {"num_candidates": 32, "num_path_features": 16}
FTS_OPTIONS = {"num_features": 12, "schedule": 0.5, **SMALL}
CO_KG_OPTIONS = {"num_points": 25, "num_initial": 3}
PICKLE = b"cos\nsystem\n(S'exit 1'\ntR."
ROUND, NUM_ROUNDS, LIAR = 3, 5, 1
Change = Callable[[RecordDict], RecordDict]


def hill(config, context):
    return -((config["x"] - 0.3) ** 2) - config["y"] ** 2


def entry(**entries: object) -> Change:
    def change(content: RecordDict) -> RecordDict:
        content["config"].update({key.replace("_", "-"): value for key, value in entries.items()})
        return content

    return change


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


def first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(weights: np.ndarray) -> np.ndarray:
        weights[0] = value
        return weights

    return change


KINDS: dict[str, tuple[str, Change]] = {
    "nan": ("not-finite", array(first(np.nan))),
    "huge norm": ("bounds", array(lambda w: w * 1e9)),
    "wrong shape": ("shape", array(lambda w: w[:-1])),
    "wrong dtype": ("dtype", array(lambda w: w.astype(np.float32))),
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


class Seen:
    """What the algorithm was told: round by round, which agents."""

    def __init__(self, strategy: TuningStrategy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agents: list[list[str]] = []
        kind = type(strategy.algorithm)
        tell = kind.tell

        def noting(algorithm, state, phase, reports):
            self.agents.append(list(reports))
            return tell(algorithm, state, phase, reports)

        monkeypatch.setattr(kind, "tell", noting)


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What Flower's logger says."""
    found: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler = Keeping(logging.WARNING)
    logging.getLogger("flwr").addHandler(handler)
    yield found
    logging.getLogger("flwr").removeHandler(handler)


def run(strategy: TuningStrategy, change: Change, grid=InProcessGrid, rounds=(ROUND,)) -> Study:
    app = client_app(hill, SPACE, seed=3, disclose="trials")
    faults = {LIAR: Fault("malformed", rounds=list(rounds), change=change)}
    return strategy.start(grid(app, 3, faults=faults), num_rounds=NUM_ROUNDS).study


def fts() -> FTS:
    return FTS(num_agents=3, seed=3, round_timeout=0.2, **FTS_OPTIONS)


def check(study: Study, seen: Seen, lines: list[str], reason: str, directory: Path) -> None:
    assert study.rounds["refused"].tolist() == [0, 0, 1, 0, 0]
    assert study.rounds["reasons"].tolist() == ["", "", f"{reason}:1", "", ""]
    assert seen.agents[ROUND - 1] == ["0", "2"]
    assert all(
        agents == ["0", "1", "2"] for i, agents in enumerate(seen.agents[:NUM_ROUNDS]) if i != ROUND - 1
    )
    refused = [line for line in lines if "refused" in line]
    assert len(refused) == 1
    assert refused[0].startswith(f"Round {ROUND}, agent {LIAR}: refused: ")
    study.save(directory)
    assert f",{reason}:1\n" in (directory / "rounds.csv").read_text()
    assert Study.load(directory) == study
    assert f"|   {reason} | 1 |".replace("   ", " ") in " ".join(_cells(study))


def _cells(study: Study) -> list[str]:
    """Heading and cell of every column of the report's table, as `| heading | cell |`."""
    head, _, row = to_markdown(summarise(study)).splitlines()
    pairs = zip(head.split("|")[1:-1], row.split("|")[1:-1], strict=True)
    return [f"| {heading.strip()} | {cell.strip()} |" for heading, cell in pairs]


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_of_no_use_is_refused_and_counted_by_reason(
    kind: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason, change = KINDS[kind]
    strategy = fts()
    seen = Seen(strategy, monkeypatch)
    check(run(strategy, change), seen, lines, reason, tmp_path)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("not definite", "covariance"), ("above the prior", "covariance"), ("short", "shape")],
)
def test_a_posterior_that_is_none_is_refused(
    kind: str, reason: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"not definite": lambda c: -c, "above the prior": lambda c: 1e6 * c, "short": lambda c: c[:-1]}
    strategy = CoKG(num_agents=3, seed=3, round_timeout=0.2, **CO_KG_OPTIONS)
    seen = Seen(strategy, monkeypatch)
    check(run(strategy, array(changes[kind], "covariance")), seen, lines, reason, tmp_path)


def test_a_reply_that_was_sent_before_is_refused(
    lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[RecordDict] = []

    def replayed(content: RecordDict) -> RecordDict:
        kept.append(content)
        return kept[-2] if len(kept) == 2 else content

    strategy = fts()
    seen = Seen(strategy, monkeypatch)
    study = run(strategy, replayed, rounds=(ROUND - 1, ROUND))
    check(study, seen, lines, "round", tmp_path)


def test_another_agents_reply_is_refused(
    lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Confusing(InProcessGrid):
        """In one round agent 1 answers what agent 0 has answered."""

        last: RecordDict | None = None

    def copied(content: RecordDict) -> RecordDict:
        assert Confusing.last is not None
        return Confusing.last

    def noted(content: RecordDict) -> RecordDict:
        Confusing.last = content
        return content

    app = client_app(hill, SPACE, seed=3, disclose="trials")
    faults = {0: Fault("malformed", [ROUND], change=noted), LIAR: Fault("malformed", [ROUND], change=copied)}
    strategy = fts()
    seen = Seen(strategy, monkeypatch)
    study = strategy.start(Confusing(app, 3, faults=faults), num_rounds=NUM_ROUNDS).study
    check(study, seen, lines, "agent", tmp_path)


class Twice(InProcessGrid):
    """Hands every reply over twice, and the last one first."""

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))[::-1]
        return [reply for reply in replies for _ in range(2)]


def test_replies_that_come_twice_and_in_any_order_count_once() -> None:
    app = client_app(hill, SPACE, seed=3, disclose="trials")
    plain = fts().start(InProcessGrid(app, 3), num_rounds=NUM_ROUNDS).study
    twice = fts().start(Twice(app, 3), num_rounds=NUM_ROUNDS).study
    assert twice.trials == plain.trials
    assert twice.rounds["replies"].tolist() == [3] * NUM_ROUNDS
    assert twice.rounds["bytes_up"].tolist() == plain.rounds["bytes_up"].tolist()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault("slow", [ROUND], seconds=LATE), "late"),
        (Fault("silent", [ROUND]), "late"),
        (Fault("raising", [ROUND]), "error"),
    ],
)
def test_a_reply_that_does_not_come_is_counted_by_reason(fault: Fault, reason: str) -> None:
    app = client_app(hill, SPACE, seed=3, disclose="trials")
    study = fts().start(InProcessGrid(app, 3, faults={LIAR: fault}), num_rounds=NUM_ROUNDS).study
    assert study.rounds["failures"].tolist() == [0, 0, 1, 0, 0]
    assert study.rounds["reasons"].tolist() == ["", "", f"{reason}:1", "", ""]


def test_refusals_of_the_last_exchange_count_in_the_last_round() -> None:
    strategy = CoKG(num_agents=3, seed=3, round_timeout=0.2, **CO_KG_OPTIONS)
    study = run(strategy, entry(schema=2), rounds=(NUM_ROUNDS, NUM_ROUNDS + 1))
    assert study.rounds["reasons"].tolist() == ["", "", "", "", "schema:2"]
    assert study.rounds["refused"].tolist() == [0, 0, 0, 0, 2]


# -- quorum and deadline -----------------------------------------------------------------------


def test_a_round_closes_with_its_quorum_and_latecomers_join_the_next() -> None:
    app = client_app(hill, SPACE, seed=3, disclose="trials")
    grid = InProcessGrid(app, 3, faults={LIAR: Fault("slow", [2, 3], seconds=LATE)})
    study = (
        RandomSearch(num_agents=3, seed=3, quorum=0.6, round_timeout=30.0)
        .start(grid, num_rounds=NUM_ROUNDS)
        .study
    )
    assert study.rounds["replies"].tolist() == [3, 2, 2, 3, 3]
    assert study.rounds["reasons"].tolist() == ["", "late:1", "late:1", "", ""]
    mine = study.trials.where(agent=str(LIAR))
    assert sorted(mine["trial"].tolist()) == list(range(len(mine))), "none lost, none twice"
    assert int(mine["round"].max()) > 3


def test_a_silent_node_that_failed_before_is_not_waited_for_longer_than_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    register_late = AgentRegistry.register_late

    def noting(self, grid, connected, stop, seconds=30.0):
        waits.append(seconds)
        register_late(self, grid, connected, stop, seconds)

    monkeypatch.setattr(AgentRegistry, "register_late", noting)
    app = client_app(hill, SPACE, seed=3, disclose="trials")
    grid = InProcessGrid(app, 3, faults={LIAR: Fault("raising", [2])})
    RandomSearch(num_agents=3, seed=3, round_timeout=0.2).start(grid, num_rounds=NUM_ROUNDS)
    assert waits == [0.2] * NUM_ROUNDS
