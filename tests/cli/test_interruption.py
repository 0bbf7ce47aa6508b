"""Ctrl-C, `kill` and a closed terminal: the status, one line that is true, and what can be resumed."""

import os
import signal
import textwrap

import pytest
from processes import python

from fbo_flower.cli.main import run

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


def test_a_signal_that_comes_after_the_last_line_changes_nothing():
    script = PRESS.format(number=int(signal.SIGINT)) + textwrap.dedent("""
        import os
        class Last:
            def __del__(self, kill=os.kill, number=signal.SIGINT, process=os.getpid()):
                kill(process, number)
        last = Last()  # ends with Python itself
        main()
    """)
    assert python("-c", script, "--version").stderr == ""
