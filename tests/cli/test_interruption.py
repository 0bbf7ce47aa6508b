"""Ctrl-C, `kill`, a closed terminal, or one that cannot show every character: status, and one true line."""

import io
import os
import signal
import sys
import textwrap

import pytest
from processes import python

from fbo_flower import Float, SearchSpace, Study, simulate
from fbo_flower.cli.main import run
from fbo_flower.study.directory import Keep

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
STUDY = ["simulate", "--problem", "double-sine", "--algorithm", "random", "--agents", "2", "--rounds", "4"]
STUDY += ["--engine", "inline", "--journal", "--out", "x y", "-q"]
NOTHING = "nothing was written"
RESUME = "; continue with --resume 'x y'"
PRESS = """
import signal, sys
from fbo_flower.cli.main import main
press = lambda *_: signal.raise_signal({number})
"""
# where the signal comes -> code that lets it come there, what the line says, the arguments
IMPORT = """
    class Finder:
        def find_spec(self, name, *_):
            if name == "{name}":
                try:
                    press()
                except BaseException:
                    pass  # as a library may do
    sys.meta_path.insert(0, Finder())
"""
AT = """
    import {module}
    calls = []
    def pressed(*arguments, before={module}.{name}, **given):
        calls.append(1)
        {lines}
        return before(*arguments, **given)
    {module}.{name} = pressed
"""


def at(module, name, lines="press()"):
    return AT.format(module=module, name=name, lines=lines)


REGISTERING = at("fbo_flower.strategies.registration", "AgentRegistry.wait_for_agents")
ADVANCING = at("fbo_flower.cli.progress", "Display.advance", "len(calls) == 2 and (press(), press())")
CASES = {
    "the first import": (IMPORT.format(name="click"), NOTHING, STUDY),
    "an import that swallows it": (IMPORT.format(name="numpy"), NOTHING, STUDY),
    "registration": (REGISTERING, f"x y holds the settings and journals of the run{RESUME}", STUDY),
    "a round": (ADVANCING, f"x y holds the results so far: random 2 rounds{RESUME}", STUDY),
    "a new app": (
        at("fbo_flower.cli.new", "new_app"),
        "every file is whole or as it was before; run the same command again",
        ["new", "my-app"],
    ),
}


@pytest.mark.parametrize(
    ("place", "number"),
    [*((place, signal.SIGINT) for place in CASES), ("a round", signal.SIGTERM), ("a new app", signal.SIGHUP)],
)
def test_a_signal_ends_a_command_with_one_true_line(place, number, tmp_path, monkeypatch):
    code, said, arguments = CASES[place]
    script = PRESS.format(number=int(number)) + textwrap.dedent(code) + "\nmain()\n"
    done = python("-c", script, *arguments, cwd=tmp_path, fails=True)
    assert (done.stderr, done.returncode) == (f"interrupted; {said}\n", 128 + number)
    assert done.stdout == ""
    monkeypatch.chdir(tmp_path)
    if said.endswith(RESUME):
        assert run(["simulate", "--resume", "x y", "-q"]) == 0
    else:
        assert not list(tmp_path.iterdir())


def test_what_takes_too_long_to_end_is_ended():
    script = PRESS.format(number=int(signal.SIGTERM)) + textwrap.dedent("""
        import time
        from fbo_flower.cli import interruption
        interruption._PATIENCE = 0.2
        interruption.guard()
        with interruption.in_order(lambda: "it is slow"):
            try:
                press()
            finally:
                time.sleep(100)
    """)
    done = python("-c", script, fails=True, seconds=60)
    assert (done.stderr, done.returncode) == ("interrupted; it is slow\n", 128 + signal.SIGTERM)


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
    "report OUT": 0, "best OUT": 0, "ledger JOURNALS": 0, "watch --once OUT": 0,
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


def test_a_process_in_another_locale_ends_in_order(place):
    settings = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = python("-m", "fbo_flower.cli", "report", place / "out", **settings)
    assert "Z" in done.stdout
    assert "Zürich ±" in (place / "out" / "privacy.md").read_text(encoding="utf-8")
    assert Study.load(place / "out").algorithms == ["Zürich ±"]


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_a_stream_that_the_caller_closed_is_nothing_to_write_to(closed, place):
    script = "".join(f"os.close({n}); sys.std{('in', 'out', 'err')[n]} = None\n" for n in closed)
    script = f"import os, sys\n{script}from fbo_flower.cli.main import main\nmain()"
    done = python("-c", script, "export", place / "journals" / "agents", "--curves", "-")
    assert (done.stdout, done.stderr) == ("", "")
