"""The ledger holds what left the agent: every name, every byte, once for every time."""

import pytest
from federation import SPACE, Recording, agents, hill

from fbo_flower.algorithms import ALGORITHMS, make_algorithm
from fbo_flower.algorithms.algorithm_record import UNKNOWN
from fbo_flower.algorithms.messages import arrays_of, report_schema
from fbo_flower.algorithms.records import Federation
from fbo_flower.algorithms.registry import BUILT_IN, COMMON, meaning
from fbo_flower.cli import main as cli
from fbo_flower.cli.journals import describe
from fbo_flower.storage.agent_journal import read_ledger
from fbo_flower.storage.ledger import Ledger, LedgerEntry
from fbo_flower.strategies import FTS
from fbo_flower.strategies.study_run import server_of

OTHER_OPTIONS = {
    "pf-pne": [{"variant": "racing"}, {"deterministic": True}, {"variant": "gp"}],
    "co-kg": [{"framework": "data-communication"}, {"central": "product"}],
    "fed-ei": [{"secure_sums": 0}],
}


@pytest.mark.parametrize("disclose", ["none", "trials"])
def test_the_ledger_is_what_a_tap_on_the_line_hears(tmp_path, disclose):
    grid = agents(2, hill, journals=tmp_path, grid=Recording, disclose=disclose)
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
            schema = reports_of(algorithm)
            for said in (*schema.arrays, *schema.values):
                assert meaning(name, said).discloses != UNKNOWN, (name, said)
        bandits = {"evaluations", "owed"}  # with options of their own
        assert set(record.meanings) - allowed <= bandits
    secured = reports_of(make_algorithm("fed-pne", {"secure_sums": 3}))
    masked = {*secured.arrays, *secured.values}
    assert masked
    assert all(name.startswith("secure.") for name in masked)
    assert masked | {"num-failed", "header", "disclosed.points", "disclosed.expected"} <= set(COMMON)


def test_what_is_not_known_is_not_called_harmless():
    assert meaning("of-another-house", "weights").discloses == UNKNOWN
    rows = [LedgerEntry("s", 1, "train", "of-another-house", "secret", "3", "float64", 24, "x")]
    text = "\n".join(describe(Ledger("0", rows)))
    assert "Not known here: secret." in text
    assert "Not examined." in text


def test_the_command_says_in_words_what_left(tmp_path, capsys):
    FTS(num_agents=2, seed=3, num_candidates=16).start(agents(2, journals=tmp_path), num_rounds=2)
    assert cli.run(["ledger", str(tmp_path), "--rounds"]) == 0
    text = capsys.readouterr().out
    assert text.count("Agent ") == 2
    for said in ("Values:", "round  phase", "disclosed.points"):
        assert said in text
    num_bytes = sum(row.num_bytes for row in read_ledger(tmp_path / "agent-1.db").rows)
    assert f"{num_bytes / 1000:.1f} kB" in text
    assert cli.run(["ledger", str(tmp_path / "empty")]) != 0
