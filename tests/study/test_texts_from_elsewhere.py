"""Texts from agents and servers control neither a terminal nor a spreadsheet program."""

import logging
import pickle

from rich.console import Console
from test_table import EVIL

from fbo_flower.cli import doctor
from fbo_flower.cli.main import run
from fbo_flower.cli.progress import Display
from fbo_flower.clients import client_app
from fbo_flower.errors import WireError
from fbo_flower.reports.summary import render_table, summarise, to_markdown
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Categorical, Float, SearchSpace
from fbo_flower.storage import AgentJournal
from fbo_flower.storage.ledger import LedgerEntry
from fbo_flower.strategies import RandomSearch
from fbo_flower.study import Study


def test_errors_are_one_line_without_control_characters_also_after_a_pickle():
    error = WireError(f"agent: got {EVIL}", "agent")
    assert str(error).isprintable()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_evil_agent_reaches_neither_log_nor_terminal_nor_spreadsheet(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    space = SearchSpace({"x": Float(0.0, 1.0), "c": Categorical(["=1+1", "@a", "b"])})

    def objective(config, context):
        if context.trial == 0:
            raise ValueError(EVIL)
        return config["x"]

    def evil_name(content):
        content["config"]["agent"] = EVIL
        return content

    faults = {
        2: Fault("malformed", rounds=[2], change=evil_name),
        3: Fault("malformed", rounds=[0], change=evil_name),
    }
    grid = InProcessGrid(client_app(objective, space, seed=1, disclose="trials"), 4, faults=faults)
    strategy = RandomSearch(num_agents=3, seed=1, label="=label", wait_seconds=5.0)
    study = strategy.start(grid, num_rounds=3).study
    for record in caplog.records:
        if record.name == "flwr":
            first, *traceback = record.getMessage().split("\n")
            assert first.isprintable(), record.getMessage()
            assert all(line.startswith("  ") and line.isprintable() for line in traceback)
    assert any(EVIL.split("\x1b", maxsplit=1)[0] in reason for reason in study.trials["failure"].tolist())
    study.save(tmp_path)
    assert Study.load(tmp_path) == study
    for name in ("trials.csv", "rounds.csv", "study.json", "best.json"):
        assert all(c == "\n" or c.isprintable() for c in (tmp_path / name).read_text()), name
    console = Console(width=200, record=True, force_terminal=False)
    console.print(render_table(summarise(study)))
    assert "\x1b[31m" not in console.export_text()
    assert "\x1b" not in to_markdown(summarise(study))


def test_ledger_warnings_and_doctor_print_no_control_characters(tmp_path, capsys):
    with AgentJournal(tmp_path / "agent-7.db", "7") as journal:
        sent = LedgerEntry(EVIL, 1, "train", EVIL, EVIL, "3", "float64", 24, EVIL)
        journal.enter_registration([EVIL])
        journal.finish(EVIL, "t", 1, b"", b"", [sent])
    assert run(["ledger", str(tmp_path), "--rounds"]) == 0
    with Display(quiet=True):
        logging.getLogger("flwr").warning("node says %s", EVIL)
    node = {"node": "[link=http://evil]1[/link]", "agent": EVIL, "heard": 1.0, "sent": 0.0}
    report = {"server": {"version": "1", "flwr": "1", "python": "3"}, "nodes": [node]}
    doctor.show(report, [], Console(width=300, force_terminal=False))
    said = capsys.readouterr()
    assert "[link=http://evil]" in said.out
    for text in (said.out, said.err):
        assert all(c == "\n" or c.isprintable() for c in text)
