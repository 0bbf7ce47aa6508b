"""Commands whose terminal, pipe or file cannot show every character; the files are UTF-8 all the same."""

import io
import sys

import pytest
from processes import python

from fbo_flower import Float, SearchSpace, Study, simulate
from fbo_flower.cli.main import run
from fbo_flower.study.directory import Keep


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A finished study of agents with names that ASCII does not have, with its journals."""
    directory = tmp_path_factory.mktemp("place")
    keep = Keep(out=directory / "out", journals=directory / "journals", label="Zürich ±")
    agents = dict.fromkeys(("医院", "é"), 0)
    space = SearchSpace({"größe": Float(0, 1)})
    simulate(lambda config, data: config["größe"], space, agents, "random", 2, engine="inline", keep=keep)
    return directory


COMMANDS = {
    "report OUT": 0, "best OUT": 0, "best JOURNALS": 0, "ledger JOURNALS": 0, "watch --once OUT": 0,
    "export JOURNALS/agents --curves -": 0, "report Zürich±": 2, "nothing-é": 2, "--help": 0, "algorithms": 0,
    "simulate --problem gp-samples --algorithm random --rounds 1 --engine inline --label ± --out SIM": 0,
}  # fmt: skip


@pytest.mark.usefixtures("unpictured")
@pytest.mark.parametrize(("command", "status"), COMMANDS.items())
def test_a_stream_replaces_what_it_cannot_write(command, status, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, errors = (io.TextIOWrapper(io.BytesIO(), "ascii") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", errors)
    places = {"OUT": place / "out", "JOURNALS": place / "journals", "SIM": tmp_path / "sim"}
    words = [next((w.replace(n, str(p)) for n, p in places.items() if n in w), w) for w in command.split()]
    assert run(words) == status
    out.flush()
    errors.flush()
    said = out.buffer.getvalue() + errors.buffer.getvalue()
    assert said
    assert b"unexpected" not in said


@pytest.mark.parametrize(
    ("module", "settings"),
    [("fbo_flower.cli", {"LC_ALL": "C", "PYTHONUTF8": "0"}), ("studies", {"PYTHONIOENCODING": "ascii"})],
)
def test_a_process_in_another_locale_ends_in_order(module, settings, place):
    done = python("-m", module, "report", place / "out", **settings, PYTHONCOERCECLOCALE="0")
    assert "Z" in done.stdout
    assert "Zürich ±" in (place / "out" / "privacy.md").read_text(encoding="utf-8")
    assert Study.load(place / "out").algorithms == ["Zürich ±"]


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_a_stream_that_the_caller_closed_is_nothing_to_write_to(closed, place):
    script = "".join(f"os.close({n}); sys.std{('in', 'out', 'err')[n]} = None\n" for n in closed)
    script = f"import os, sys\n{script}from fbo_flower.cli.main import main\nmain()"
    done = python("-c", script, "export", place / "journals" / "agents", "--curves", "-")
    assert (done.stdout, done.stderr) == ("", "")
