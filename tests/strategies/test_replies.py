"""Replies that nobody may use: refused before the algorithm sees them, counted by reason, named once.

What no sender of this package writes is refused too: records, scalars and arrays, at both ends.
"""

import logging

import numpy as np
import pytest
from federation import agents, log_lines
from flwr.app import Array, MessageType, MetricRecord
from hostile import npy
from waiting import LATE

from fbo_flower.errors import ConfigError
from fbo_flower.reports.summary import summarise, to_markdown
from fbo_flower.simulation.grids import FIRST_NODE, Fault, InProcessGrid
from fbo_flower.strategies import FTS, RandomSearch
from fbo_flower.strategies.recorder import tally
from fbo_flower.study import Study

OPTIONS = {"num_features": 12, "schedule": 0.5, "num_candidates": 32, "num_path_features": 16}
PICKLE = b"cos\nsystem\n(S'exit 1'\ntR."
ROUND, NUM_ROUNDS = 3, 4


def entry(**entries):
    changes = {key.replace("_", "-"): value for key, value in entries.items()}
    return lambda content: content["config"].update(changes)


def array(change):
    def changed(content):
        content["arrays"]["weights"] = Array(change(content["arrays"]["weights"].numpy().copy()))

    return changed


def data(change):
    def changed(content):
        old = content["arrays"]["weights"]
        content["arrays"]["weights"] = Array("float64", old.shape, "numpy.ndarray", change(old.data))

    return changed


def more_records(content):
    content["junk"] = MetricRecord({"loss": float("nan")})


def more_arrays(content):
    if "arrays" in content:
        content["arrays"]["junk"] = Array(np.array([np.nan]))
        content["config"]["names"] = ",".join(content["arrays"])


more_scalars = entry(loss=float("nan"))
# what is counted, and the change of a reply; `tests/wire` has more of each kind
CHANGES = [
    ("not-finite", array(lambda w: np.where(np.arange(12) == 0, np.nan, w))),
    ("bounds", array(lambda w: w * 1e9)),
    ("shape", array(lambda w: w[:-1])),
    ("dtype", array(lambda w: w.astype(np.float32))),
    ("size", data(lambda d: d[:-8])),
    ("encoding", data(lambda d: d[:20])),
    ("dtype", data(lambda d: npy("(12,)", PICKLE, "'|O'"))),
    ("schema", entry(schema=99)),
    ("space", entry(space="ab" * 32)),
    ("study", entry(study="another")),
    ("agent", entry(agent="0")),
    ("num-failed", entry(num_failed=-1)),
    ("num-trials", entry(num_trials=-1)),
    ("trial", entry(trial=0)),
    ("names", entry(names="x")),
    ("values", entry(values='{"secret":1}')),
    ("content", entry(more=b"x")),
    ("content", more_records),
    ("names", more_scalars),
    ("names", more_arrays),
]


def lying(change, rounds=(ROUND,)):
    return Fault("malformed", rounds, change=lambda content: change(content) or content)


def test_replies_of_no_use_are_refused_and_counted_by_reason(monkeypatch, tmp_path):
    kept, mine = [], []
    changes = [
        *CHANGES,
        ("agent", lambda content: kept[0]),  # the reply of another agent
        ("round", lambda content: mine.append(content) or mine[0]),  # its own, of the round before
    ]
    faults = {i: lying(change) for i, (_, change) in enumerate(changes, start=1)}
    faults[0] = lying(kept.append)
    faults[len(changes)] = lying(changes[-1][1], (ROUND - 1, ROUND))
    reasons, count, told = [reason for reason, _ in changes], len(changes) + 2, []
    liars = {str(liar) for liar in range(1, count - 1)}
    algorithm = type(FTS(**OPTIONS).algorithm)
    tell = algorithm.tell

    def noting(self, state, phase, reports):
        told.append(set(reports))
        return tell(self, state, phase, reports)

    monkeypatch.setattr(algorithm, "tell", noting)
    with log_lines(logging.WARNING) as lines:
        strategy = FTS(num_agents=count, seed=3, round_timeout=0.2, **OPTIONS)
        study = strategy.start(agents(count, seed=3, faults=faults), num_rounds=NUM_ROUNDS).study
    everybody = set(map(str, range(count)))
    assert told[:NUM_ROUNDS] == [everybody, everybody, everybody - liars, everybody]
    assert study.rounds["refused"].tolist() == [0, 0, len(liars), 0]
    counts = {reason: reasons.count(reason) for reason in reasons}
    assert study.rounds["reasons"].tolist() == ["", "", tally(counts), ""]
    named = [line.partition(": ")[0] for line in lines if ": refused: " in line]
    assert sorted(named) == sorted(f"Round {ROUND}, agent {liar}" for liar in liars)
    study.save(tmp_path)
    assert Study.load(tmp_path) == study
    head, _, row = to_markdown(summarise(study)).splitlines()
    cells = dict(zip(map(str.strip, head.split("|")), map(str.strip, row.split("|")), strict=True))
    assert {reason: cells[reason] for reason in counts} == {r: str(n) for r, n in counts.items()}


def test_a_round_closes_with_its_quorum_and_latecomers_join_the_next():
    grid = agents(3, faults={1: Fault("slow", [2], seconds=LATE)})
    study = RandomSearch(num_agents=3, seed=3, quorum=0.6).start(grid, num_rounds=NUM_ROUNDS).study
    assert study.rounds["replies"].tolist() == [3, 2, 3, 3]
    assert study.rounds["reasons"].tolist() == ["", "late:1", "", ""]
    mine = study.trials.where(agent="1")
    assert sorted(mine["trial"].tolist()) == list(range(len(mine))), "none lost, none twice"
    assert int(mine["round"].max()) > 2


class Changed(InProcessGrid):
    """A grid that changes the answers of some nodes to questions: partition -> change."""

    def pull_messages(self, message_ids):
        found = list(super().pull_messages(message_ids))
        for reply in found:
            change = self.changes.get(reply.metadata.src_node_id - FIRST_NODE)
            if change is not None and reply.metadata.message_type == MessageType.QUERY:
                change(reply.content)
        return found


def search(changes, num_rounds=1, wait_seconds=5.0, **given):
    grid = agents(4, grid=Changed, **given)
    grid.changes = changes
    strategy = RandomSearch(num_agents=4, seed=0, wait_seconds=wait_seconds)
    return strategy.start(grid, num_rounds=num_rounds).study


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (more_records, "registration: expected only config, got"),
        (more_scalars, r"registration: expected only agent, .*, got \['loss'\]"),
    ],
)
def test_registrations_with_something_else_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        search({0: change}, wait_seconds=0.0)


def test_other_versions_and_clocks_are_told_once_and_take_part():
    odd = [{"version": "9\x1b[31m"}, {"flwr": "0.1", "time": 600.0}, {"time": float("nan")}, {"time": "now"}]
    with log_lines() as lines:
        study = search({i: entry(**entries) for i, entries in enumerate(odd)}, num_rounds=4)
    one, other = [line for line in lines if line.startswith("Agent ")]
    assert one.startswith("Agent 0, node 1001: fbo-flower 9")
    assert "\x1b" not in one
    assert other.startswith("Agent 1, node 1002: flwr 0.1, the server has")
    assert "its clock is -" in other
    assert set(study.trials["agent"]) == set("0123")
