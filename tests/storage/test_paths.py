"""Paths with `~`, names that become file names, texts from editors, and links that somebody planted."""

import ast
import logging
import os
import unicodedata
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from processes import ROOT

from fbo_flower import Float, Optimizer, SearchSpace, Study, simulate
from fbo_flower.cli.flower_cli import read_app
from fbo_flower.cli.journals import journal_files
from fbo_flower.cli.main import run
from fbo_flower.cli.new import new_app
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
from fbo_flower.storage.agent_journal import read_ledger
from fbo_flower.storage.files import atomic_file
from fbo_flower.storage.paths import file_name, path_of, read_text
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.study.directory import Keep, study_directory
from fbo_flower.study.optuna import storage_name

SPACE = SearchSpace({"x": Float(0, 1)})
PRINTABLE = [
    "医" * 40, "医" * 100, "a", "A", "CON", "con", "con.x", "north.", " ", "-x", ".x", "..", "/", "a/../b",
    "é",
    unicodedata.normalize("NFD", "é"), "x" * 100, "😀", "שלום", "'", '"', "a:b", "*?", "%2F", "~", "~root",
    "a-559aead08264d579",
]  # fmt: skip
HOSTILE = [*PRINTABLE, "", "\0", "a\n", "a\u202eb", "\ud800", "x" * 10_000]


def on_any_disk(name):
    """Return what a disk without case and Unicode forms makes of a name."""
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ")


def test_names_become_different_file_names_that_every_disk_takes():
    found = [file_name(name) for name in HOSTILE]
    assert len(set(map(on_any_disk, found))) == len(HOSTILE)
    for name in found:
        assert name.isascii()
        assert name[0].isalnum()
        assert len(name) <= 100
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert name.partition(".")[0].lower() not in {"con", "prn", "aux", "nul"}
        assert name == name.rstrip(".")
    assert [file_name(name) for name in ("north-2", "0", "v1.2_b")] == ["north-2", "0", "v1.2_b"]


def test_agents_with_any_allowed_name_keep_journals_and_trackers(tmp_path):
    pytest.importorskip("optuna")
    from fbo_flower.trackers import OptunaTracker

    logging.getLogger("flwr").setLevel(logging.ERROR)
    keep = Keep(out=tmp_path / "out", journals=tmp_path / "journals", label="../医 A")
    tracker = OptunaTracker(tmp_path / "trials.log")
    names = dict.fromkeys(PRINTABLE, 0)
    study = simulate(
        lambda config, data: config["x"], SPACE, names, "random", 1, engine="inline", keep=keep,
        callbacks=[tracker],
    )  # fmt: skip
    assert set(study.best) == set(PRINTABLE)
    journals = list(journal_files([tmp_path / "journals"]))
    assert {read_ledger(path).agent for path in journals} == set(PRINTABLE)
    assert Study.load(tmp_path / "out") == study
    assert {path.name for path in tmp_path.iterdir()} == {"out", "journals", "trials.log"}
    assert Study.from_optuna(tmp_path / "trials.log", name="../医 A: ..").trials["agent"].tolist()


def test_exported_messages_of_different_labels_are_different_files(tmp_path):
    messages = WarmStart("x", "", {"a": np.zeros(2)})
    for label in ("A", "a", "a/b", "a b", "医"):
        messages.save(tmp_path, label)
    assert len(list(tmp_path.rglob("*.npz"))) == 5


@pytest.mark.parametrize("label", ["a\nb", "", "\0", "x" * 201, 3])
def test_a_label_that_cannot_be_shown_is_refused(label):
    with pytest.raises(ConfigError, match="label: expected 1 to 200 printable characters"):
        Keep(label=label)


# -- paths --------------------------------------------------------------------------------------------------


def node(**settings):
    return Context(0, 0, settings, RecordDict(), {})


def saved(path):
    optimizer = Optimizer(SPACE, "random")
    optimizer.save(path)
    return Optimizer.load(path)


EXPANDED = {
    "keep": lambda: [Keep(out="~/a").out, Keep(journals="~/a").journals, Keep(messages="~/a").messages],
    "node_config": lambda: [
        journal_path(node(journal="~/a"), "0"), journal_path(node(), "0", "~/a"), data_file(node(data="~/a"))
    ],
    "mail": lambda: [mail_of("~/a"), Site("~/a").journal],
    "optuna": lambda: [storage_name("~/a.db").removeprefix("sqlite:///")],
    "data": lambda: data_files("~/data*.csv"),
}  # fmt: skip
USED = {
    "optimizer": lambda: saved("~/state.db"),
    "study": lambda: Study.load("~/study").save("~/study-2"),
    "page": lambda: Study.load("~/study").report("~/page.html"),
    "directory": lambda: study_directory("~/new"),
    "app": lambda: new_app("~/my-app"),
    "durations": lambda: parse_durations("table:~/data.csv"),
    "space": lambda: read_space(path_of("~/space.toml")),
    "messages": lambda: WarmStart.holds("~/study", "random"),
    "peers": lambda: Operator.read({"secure_peers": "~/peers", "secure_sums": 2}, None),
    "file": lambda: atomic_file("~/x").__enter__().close(),
    "ledger": lambda: read_ledger("~/journals/agents/agent-0.db"),
    **{
        command: lambda command=command: run(command.split())
        for command in (
            "report ~/study --markdown", "report ~/study -q --out ~/p.png", "best ~/study",
            "ledger ~/journals", "watch --once ~/study", "best ~/journals",
            "key ~/journals/agents/agent-0.db",
            "export ~/journals/agents --curves ~/curves.csv", "export ~/study --optuna ~/o.log",
            "simulate ~/f.py:f --data ~/data*.csv --space ~/space.toml --algorithm random --rounds 1 "
            "--engine inline -q --out ~/sim --durations table:~/data.csv",
        )
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    directory = tmp_path_factory.mktemp("home")
    keep = Keep(out=directory / "study", journals=directory / "journals")
    simulate(lambda config, data: config["x"], SPACE, 2, "random", 1, engine="inline", keep=keep)
    (directory / "data.csv").write_text("agent,seconds\ndata,1\n", encoding="utf-8")
    (directory / "space.toml").write_text("x = {low = 0.0, high = 1.0}\n", encoding="utf-8")
    (directory / "f.py").write_text("def f(config, path):\n    return config['x']\n", encoding="utf-8")
    (directory / "peers").write_text("ab" * 32 + "\n", encoding="utf-8")
    return directory


@pytest.fixture
def at_home(home, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(tmp_path)
    yield home
    assert not list(tmp_path.glob("*~*")), "nothing was written into a directory that is called ~"


@pytest.mark.parametrize("name", EXPANDED)
def test_a_tilde_is_expanded_where_a_path_is_taken(name, at_home):
    for path in EXPANDED[name]():
        assert Path(path).is_relative_to(at_home)


@pytest.mark.parametrize("name", USED)
def test_a_tilde_is_expanded_where_a_file_is_used(name, at_home):
    assert USED[name]() in (0, None) or not isinstance(USED[name], int)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("journals", "/proc/x"), ("out", "/proc/x"), ("messages", "/proc/x"), ("journals", "a\0")],
)
def test_an_error_names_the_setting_of_the_path(setting, value):
    with pytest.raises(ConfigError, match=f"^{setting}: expected a"):
        simulate("gp-samples", None, 2, "random", 1, engine="inline", keep=Keep(**{setting: value}))


# -- texts --------------------------------------------------------------------------------------------------

TOML = "x = {low = 0.0, high = 1.0}\r\nname = ['é']\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_of_an_editor_is_read_with_its_mark_and_line_ends(encoding, tmp_path):
    path = tmp_path / "space.toml"
    path.write_bytes(TOML.encode(encoding))
    assert list(read_space(path).parameters) == ["x", "name"]
    assert read_text(path) == TOML


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
        (TOML.encode("utf-16-be"), "expected a text in UTF-8, got the byte 0xe9"),
        (TOML.encode("latin-1"), "expected a text in UTF-8, got the byte 0xe9"),
        (b"x = 1\n\0\n", "got a NUL character in line 2|expected the columns agent and seconds"),
    ],
)
def test_a_text_in_another_encoding_is_refused_in_one_line(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        READERS[name](path)
    assert str(path if name != "pyproject.toml" else tmp_path) in str(caught.value)


def test_study_files_and_tables_are_read_with_a_mark(home, tmp_path):
    study = Study.load(home / "study")
    study.save(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert Study.load(tmp_path) == study
    (tmp_path / "times.csv").write_bytes(b"\xef\xbb\xbfagent,seconds\r\nnorth,2\r\n")
    assert parse_durations(f"table:{tmp_path / 'times.csv'}")("north", 0, np.random.default_rng(0)) == 2.0


def test_no_text_file_is_opened_with_the_encoding_of_the_locale():
    found = []
    folders = ("fbo_flower", "examples", "studies", ".ci")
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        if "tests" in path.parts[len(ROOT.parts) :]:
            continue
        calls = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for call in (node for node in calls if isinstance(node, ast.Call)):
            text, given = ast.unparse(call), {keyword.arg for keyword in call.keywords}
            name = ast.unparse(call.func)
            method = name.rpartition(".")[2]
            if method in {"read_text", "write_text"}:
                wrong = "." in name and "encoding" not in given and "'utf-8'" not in text
            elif method == "open" and name not in {"os.open", "archive.open", "Image.open"}:
                binary = any(isinstance(a, ast.Constant) and "b" in str(a.value) for a in call.args[:2])
                wrong = not binary and "encoding" not in given and None not in given
            else:
                wrong = bool({"text", "universal_newlines"} & given) and name.startswith("subprocess")
                wrong = wrong and "encoding" not in given and "fbo_flower" in path.parts
            if wrong:
                found.append(f"{path.name}:{call.lineno}: {text[:60]}")
    assert found == []


# -- what somebody planted ----------------------------------------------------------------------------------

VICTIM = b"of another user"


PLANTS = {
    "link": lambda path, victim: path.symlink_to(victim),
    "pipe": lambda path, victim: os.mkfifo(path),
    "directory": lambda path, victim: path.mkdir(),
}


@pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("ending", ["", ".lock", "-wal", "-shm", "-journal", ".mail", ".mail.lock", ".new"])
def test_a_journal_refuses_what_somebody_planted_beside_it(ending, plant, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(VICTIM)
    journal = tmp_path / "shared" / "north.db"
    journal.parent.mkdir()
    PLANTS[plant](journal.with_name(f"north.db{ending}"), victim)
    is_mail = ".mail" in ending
    # a rest of an earlier start is removed, not followed
    removed = ending == ".new" and plant != "directory"
    with nullcontext() if removed else pytest.raises(JournalError, match=r"^[^\n]*north.db[^\n]*$"):
        Site(journal).know([({"x": 0.5}, 1.0)]) if is_mail else AgentJournal(journal, "north").close()
    assert victim.read_bytes() == VICTIM


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_lock_that_is_another_name_of_a_file_does_not_empty_it(tmp_path):
    (tmp_path / "victim").write_bytes(VICTIM)
    (tmp_path / "a.db.lock").hardlink_to(tmp_path / "victim")
    with pytest.raises(JournalError, match="expected a regular file with one name"):
        AgentJournal(tmp_path / "a.db", "a")
    assert (tmp_path / "victim").read_bytes() == VICTIM


@pytest.mark.skipif(os.name != "posix", reason="needs links")
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
