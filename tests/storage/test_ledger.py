"""The ledger holds what left the agent: every name, every byte, once for every time."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from federation import SPACE, agents, hill

from fbo_flower.algorithms import ALGORITHMS, make_algorithm
from fbo_flower.algorithms.algorithm_record import UNKNOWN
from fbo_flower.algorithms.messages import arrays_of, report_schema
from fbo_flower.algorithms.records import Federation
from fbo_flower.algorithms.registry import BUILT_IN, COMMON, inference, meaning, meanings
from fbo_flower.cli import main as cli
from fbo_flower.cli.journals import describe
from fbo_flower.simulation import Keep, simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.storage.agent_journal import read_ledger
from fbo_flower.storage.ledger import Ledger, LedgerEntry, entries
from fbo_flower.strategies import FTS
from fbo_flower.strategies.study_run import server_of

OTHER_OPTIONS = {
    "pf-pne": [{"variant": "racing"}, {"deterministic": True}, {"variant": "gp"}],
    "co-kg": [{"framework": "data-communication"}, {"central": "product"}],
    "fed-ei": [{"secure_sums": 0}],
}


class Tapped(InProcessGrid):
    """Keeps every reply as it leaves the agents."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.replies = []

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))
        self.replies += replies
        return replies


@pytest.mark.parametrize("disclose", ["none", "incumbent", "trials"])
def test_the_ledger_is_what_a_tap_on_the_line_hears(tmp_path, disclose):
    grid = agents(2, hill, journals=tmp_path, grid=Tapped, disclose=disclose)
    small = {"num_features": 7, "num_candidates": 16, "num_path_features": 8}
    FTS(num_agents=2, seed=3, **small).start(grid, num_rounds=4)
    heard: dict[str, list[tuple[int, str, str, int]]] = {"0": [], "1": []}
    for reply in grid.replies:
        config = {k: v for record in reply.content.config_records.values() for k, v in record.items()}
        if "names" not in config:
            continue  # the registration
        arrays = [a for record in reply.content.array_records.values() for a in record.to_numpy_ndarrays()]
        names = [name for name in str(config["names"]).split(",") if name]
        for name, array in zip(names, arrays, strict=True):
            shape = " x ".join(map(str, array.shape))
            heard[str(config["agent"])].append((int(config["round"]), name, shape, array.nbytes))
    for agent in ("0", "1"):
        read = read_ledger(tmp_path / f"agent-{agent}.db")
        assert read.agent == agent
        assert [(r.round, r.name, r.shape, r.num_bytes) for r in read.rows if r.shape] == heard[agent] != []
        names = {r.name for r in read.rows}
        assert ("disclosed.points" in names) == (disclose == "trials")
        assert ("disclosed.incumbent" in names) == (disclose != "none")
        assert {r.algorithm for r in read.rows} == {"fts"}
        sources = [r.source for r in read.rows if r.name == "weights"]
        assert sources == [f"{n} evaluations" for n in (3, 4, 5, 6)]
        assert {"agent", "space", "digest", "version", "time"} <= set(read.registration)


def reports_of(algorithm):
    """Return what a server accepts from three agents."""
    roles = {agent: "curator" if agent > "0" else "openbox" for agent in "012" if algorithm.roles}
    return server_of(algorithm, Federation(SPACE, tuple("012"), roles), 0).report_schema()


def test_every_name_that_may_leave_is_explained_and_nothing_that_cannot():
    for name, record in BUILT_IN.items():
        allowed: set[str] = set()
        for options in ({}, *OTHER_OPTIONS.get(name, [])):
            algorithm = ALGORITHMS[name].from_options(options)
            schema = report_schema(algorithm, SPACE)
            allowed |= {*schema.arrays, *schema.values}
            if algorithm.secure_sums:  # what leaves under masks
                sent = arrays_of(algorithm.report_content)
                allowed |= {array for array, spec in sent.items() if spec.bound is not None}
        for options in ({}, *OTHER_OPTIONS.get(name, [])):
            schema = reports_of(make_algorithm(name, options))
            for said in (*schema.arrays, *schema.values):
                assert meaning(name, said).discloses != UNKNOWN, (name, said)
        bandits = {"evaluations", "owed"}  # with options of their own
        assert set(record.meanings) - allowed <= bandits
    secured = reports_of(make_algorithm("fed-pne", {"secure_sums": 3}))
    masked = {*secured.arrays, *secured.values}
    assert masked
    assert all(name.startswith("secure.") for name in masked)
    names = (
        "points values outputs feasible pulls recommendation times stopped curves failures incumbent expected"
    )
    disclosed = {f"disclosed.{name}" for name in names.split()}
    assert disclosed | masked | {"num-failed", "header"} == set(COMMON)


def test_what_is_summed_securely_is_not_listed_as_seen():
    options = {"fts": {"lengthscale": "federated"}}
    for name, summed in ((name, r.summed) for name, r in BUILT_IN.items() if r.summed):
        seen, masked = meanings(name) or {}, meanings(name, 3) or {}
        assert {*seen} - {*masked} == summed
        assert "at least 3 agents" in inference(name, 3)
        schema = reports_of(make_algorithm(name, options.get(name, {}) | {"secure_sums": 3}))
        assert not summed & {*schema.arrays, *schema.values}


def test_what_is_not_known_is_not_called_harmless():
    assert meaning("of-another-house", "weights").discloses == UNKNOWN
    rows = [LedgerEntry("s", 1, "train", "of-another-house", "secret", "3", "float64", 24, "x")]
    text = "\n".join(describe(Ledger("0", rows)))
    assert "Not known here: secret." in text
    assert "Not examined." in text


def test_entries_count_numbers_and_bytes_of_arrays_and_of_the_rest():
    config = {"study": "s", "round": 2, "phase": "train", "values": '{"loss": 0.25}',
              "num-failed": 1, "agent": "7"}  # fmt: skip
    arrays = {"a": np.zeros((2, 3)), "m": np.zeros(50, dtype=np.uint8)}
    rows = entries(arrays, config, "rfms", "1 evaluations")
    assert [(r.name, r.shape, r.num_numbers, r.num_bytes) for r in rows[:4]] == [
        ("a", "2 x 3", 6, 48), ("m", "50", 0, 50), ("loss", "", 1, 4), ("num-failed", "", 1, 1),
    ]  # fmt: skip
    assert (rows[4].name, rows[4].num_numbers) == ("header", 0)
    assert "0.25" not in str(rows[4])
    shown, *_, header = entries({"disclosed.points": np.ones(2)}, config, "ei", "x", chosen_by="operator")
    assert [(r.made_from, r.chosen_by) for r in (shown, header)] == [("x", "operator"), ("x", "")]


def test_the_command_says_in_words_what_left(tmp_path, capsys):
    algorithm = make_algorithm("pf-pne", {"budget": 20})
    keep = Keep(journals=tmp_path)
    simulate("gp-samples", agents=2, algorithm=algorithm, num_rounds=3, engine="inline", keep=keep)
    assert cli.run(["ledger", str(tmp_path), "--rounds"]) == 0
    text = capsys.readouterr().out
    assert text.count("Agent ") == 2
    for said in ("mean value in every cell", "Values: sent by design, in means", "round  phase"):
        assert said in text
    with closing(sqlite3.connect(next(tmp_path.rglob("agent-1.db")))) as connection:
        total = connection.execute("SELECT SUM(bytes) FROM sent").fetchone()[0]
    assert f"{total / 1000:.1f} kB" in text
    assert cli.run(["ledger", str(tmp_path / "empty")]) != 0
