"""Paths with `~`, names that become file names, texts from editors, and links that somebody planted."""

import os
import re
import unicodedata
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from agents import node
from processes import ROOT

from fbo_flower import Float, Optimizer, SearchSpace, Study
from fbo_flower.cli.flower_cli import read_app
from fbo_flower.cli.main import run
from fbo_flower.cli.plan import data_files, read_plan, read_space
from fbo_flower.cli.run import parse
from fbo_flower.clients import Site, data_file
from fbo_flower.clients.asking import mail_of
from fbo_flower.clients.memory import journal_path
from fbo_flower.clients.operator import Operator
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.federated.state import Checkpoints
from fbo_flower.simulation.durations import parse_durations
from fbo_flower.storage import AgentJournal
from fbo_flower.storage.files import atomic_file
from fbo_flower.storage.paths import file_name, read_text
from fbo_flower.study.directory import Keep
from fbo_flower.study.optuna import storage_name

SPACE = SearchSpace({"x": Float(0, 1)})
NAMES = [
    "医" * 40, "医" * 100, "a", "A", "CON", "con", "con.x", "north.", " ", "-x", ".x", "..", "/", "a/../b",
    "é", unicodedata.normalize("NFD", "é"), "x" * 100, "😀", "שלום", "'", '"', "a:b", "*?", "%2F", "~",
    "~root", "a-559aead08264d579", "", "\0", "a\n", "a\u202eb", "\ud800", "x" * 10_000,
]  # fmt: skip


def on_any_disk(name):
    """Return what a disk without case and Unicode forms makes of a name."""
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ")


def test_names_become_different_file_names_that_every_disk_takes():
    found = [file_name(name) for name in NAMES]
    assert len(set(map(on_any_disk, found))) == len(NAMES)
    for name in found:
        assert name.isascii()
        assert name[0].isalnum()
        assert len(name) <= 100
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert name.partition(".")[0].lower() not in {"con", "prn", "aux", "nul"}
        assert name == name.rstrip(".")
    assert [file_name(name) for name in ("north-2", "0", "v1.2_b")] == ["north-2", "0", "v1.2_b"]


@pytest.mark.parametrize("label", ["a\nb", "", "\0", "x" * 201, 3])
def test_a_label_that_cannot_be_shown_is_refused(label):
    with pytest.raises(ConfigError, match="label: expected 1 to 200 printable characters"):
        Keep(label=label)


# -- paths --------------------------------------------------------------------------------------------------


EXPANDED = {
    "keep": lambda: [Keep(out="~/a").out, Keep(journals="~/a").journals, Keep(messages="~/a").messages],
    "node_config": lambda: [
        journal_path(node(journal="~/a"), "0"), journal_path(node(), "0", "~/a"), data_file(node(data="~/a"))
    ],
    "mail": lambda: [mail_of("~/a"), Site("~/a").journal],
    "optuna": lambda: [storage_name("~/a.db").removeprefix("sqlite:///")],
    "data": lambda: data_files("~/data*.csv"),
    "optimizer": lambda: Optimizer(SPACE, "random").save("~/state.db") or [],
    "file": lambda: atomic_file("~/x").__enter__().close() or [],
    "table": lambda: parse_durations("table:~/data.csv") and [],
    "command": lambda: run(["key", "~/a.db", "--agent", "3"]) or [Path("~/a.db").expanduser()],
}  # fmt: skip


@pytest.mark.parametrize("name", EXPANDED)
def test_a_tilde_is_expanded_where_a_path_is_taken(name, tmp_path, monkeypatch):
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "data.csv").write_text("agent,seconds\ndata,1\n", encoding="utf-8")
    for path in EXPANDED[name]():
        assert Path(path).is_relative_to(tmp_path / "home")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


# -- texts --------------------------------------------------------------------------------------------------

TOML = "x = {low = 0.0, high = 1.0}\r\nname = ['é']\r\n"


READERS = {  # each file that a person may edit -> what reads it
    "simulate.json": lambda path: read_plan(path.parent),
    "space.toml": read_space,
    "run.toml": lambda path: parse([str(path)], "--run-config"),
    "pyproject.toml": lambda path: read_app(str(path.parent)),
    "study.json": lambda path: Study.load(path.parent),
    "peers": lambda path: Operator.read({"secure_peers": str(path), "secure_sums": 2}, None),
    "times.csv": lambda path: parse_durations(f"table:{path}"),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TOML.encode("utf-16"), "expected a text in UTF-8, got UTF-16; save the file"),
        (TOML.encode("latin-1"), "expected a text in UTF-8, got the byte 0xe9"),
        (b"x = 1\n\0\n", "got a NUL character in line 2|expected the columns agent and seconds"),
    ],
)
def test_a_text_in_another_encoding_is_refused_in_one_line(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(TOML.encode("utf-8-sig"))
    assert read_text(path) == TOML, "an editor's mark is no part of the text"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        READERS[name](path)
    assert str(path if name != "pyproject.toml" else tmp_path) in str(caught.value)


def test_no_text_file_is_opened_with_the_encoding_of_the_locale():
    opens = re.compile(r"(\.(read|write)_text|(?<![\w.])open|path\.open)\((?!.*(encoding|utf-8|b\"))")
    for path in (ROOT / "fbo_flower").rglob("*.py"):
        found = [line for line in path.read_text(encoding="utf-8").splitlines() if opens.search(line)]
        assert found == [], path


# -- what somebody planted ----------------------------------------------------------------------------------

posix = pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
VICTIM = b"of another user"
PLANTS = {
    "link": lambda path, victim: path.symlink_to(victim),
    "pipe": lambda path, victim: os.mkfifo(path),
    "directory": lambda path, victim: path.mkdir(),
}


@posix
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("ending", ["", ".lock", "-wal", "-shm", "-journal", ".mail", ".mail.lock", ".new"])
def test_a_journal_refuses_what_somebody_planted_beside_it(ending, plant, tmp_path):
    (victim := tmp_path / "victim").write_bytes(VICTIM)
    journal = tmp_path / "shared" / "north.db"
    journal.parent.mkdir()
    PLANTS[plant](journal.with_name(f"north.db{ending}"), victim)
    is_mail = ".mail" in ending
    # a rest of an earlier start is removed, not followed
    removed = ending == ".new" and plant != "directory"
    with nullcontext() if removed else pytest.raises(JournalError, match=r"^[^\n]*north.db[^\n]*$"):
        Site(journal).know([({"x": 0.5}, 1.0)]) if is_mail else AgentJournal(journal, "north").close()
    assert victim.read_bytes() == VICTIM


@posix
def test_a_lock_that_is_another_name_of_a_file_does_not_empty_it(tmp_path):
    (tmp_path / "victim").write_bytes(VICTIM)
    (tmp_path / "a.db.lock").hardlink_to(tmp_path / "victim")
    with pytest.raises(JournalError, match="expected a regular file with one name"):
        AgentJournal(tmp_path / "a.db", "a")
    assert (tmp_path / "victim").read_bytes() == VICTIM


@posix
@pytest.mark.parametrize("private", [False, True])
def test_results_replace_a_link_and_do_not_follow_it(private, tmp_path):
    (tmp_path / "victim").write_bytes(VICTIM)
    (tmp_path / "best.json").symlink_to(tmp_path / "victim")
    with atomic_file(tmp_path / "best.json", private=private) as file:
        file.write(b"ours")
    assert (tmp_path / "victim").read_bytes() == VICTIM
    assert (tmp_path / "best.json").read_bytes() == b"ours"
    assert not (tmp_path / "best.json").is_symlink()
    digest = Checkpoints(tmp_path / "checkpoints").put({"a": np.zeros(1)}, {})
    (tmp_path / "checkpoints" / f"{digest}.npz").unlink()
    (tmp_path / "checkpoints" / f"{digest}.tmp").symlink_to(tmp_path / "victim")
    Checkpoints(tmp_path / "checkpoints").put({"a": np.zeros(1)}, {})
    assert (tmp_path / "victim").read_bytes() == VICTIM
    pytest.importorskip("optuna")
    (tmp_path / "o.db").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match="expected a regular file, got a symbolic link"):
        storage_name(tmp_path / "o.db")
