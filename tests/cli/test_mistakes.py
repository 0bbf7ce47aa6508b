"""Typical mistakes: what the user typed, and the one line that says what is wrong and what to do.

At the command line a setting that cannot be used ends with the exit status 2, any other error with 1. In
Python it is a `ConfigError`. There is no traceback, and no evaluation has been made.
"""

import inspect
import re
import shlex
import sys
from pathlib import Path

import pytest
from flwr.clientapp import ClientApp

import fbo_flower
from fbo_flower import Float, SearchSpace
from fbo_flower.cli.main import run
from fbo_flower.cli.new import new_app
from fbo_flower.clients import add_tuning, client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Keep, simulate
from fbo_flower.strategies import FedEI

SIMULATE = "simulate --engine inline "
RUN = "run my-app --federation-config "
OWN = "simulate --engine inline --data 'files/*.csv' "

COMMANDS = [
    # what was typed -> what the line says
    (SIMULATE + "--algorithm ftss", ", got 'ftss'; did you mean fts?"),
    (SIMULATE + "--algorithm fts --option advise=portfolio", "fts has no option 'advise'; did you mean ad"),
    (SIMULATE + "--algorithm fts --option lengthscale=[1,2,3]", "lengthscale: expected 2 numbers, one per"),
    (SIMULATE + "--advice portfolio", "'--advice'; here that is --option advice=..., of fts"),
    (SIMULATE + "--compare ts --compare ts", "expected a different label for every algorithm, got ts twice"),
    (SIMULATE + """--compare "ts 'open" """, "--compare: No closing quotation, got"),
    (SIMULATE + "--agents 1000", "num_agents: expected at most 44"),
    (SIMULATE + "--out /dev/null/x", "expected a directory that can be written, got /dev/null/x"),
    ("doctor --superlink 127.0.0.1:1", "--superlink: expected a SuperLink at 127.0.0.1:1: ConnectionRefused"),
    (SIMULATE + "--trials 6 --rounds 5", "--trials: expected either --rounds or --trials"),
    (SIMULATE + "--mode async --quorum .5", "mode: expected no fraction and no quorum in an asynchronous"),
    (SIMULATE + "--out study", "out: expected a directory without a study, got study, which holds one"),
    (SIMULATE + "--resume study", "--resume: expected the directory of a run with --journal, got study"),
    (SIMULATE + "--resume study --rounds 5", "the settings come from study; leave out --rounds"),
    ("run nowhere", "app: expected a Flower app's directory, got nowhere"),
    ("""run my-app -c "num-rounds='3'" """, "num-rounds: expected an integer, got '3'"),
    ("run my-app -c 'num-rounds = 3'", "--run-config: expected key=value pairs"),
    ("""run my-app -c "out='study'" """, "out: expected a directory without a study, got"),
    (RUN + "num-supernodes=2 -c num-agents=5", "nodes, got 5; add --federation-config num-supernodes=5"),
    (RUN + "num-supernodes=3 --data 'files/*.csv'", "--data: expected a file for each of 3 nodes, got 2"),
    ("run my-app locale", "connection: expected one of local in"),
    ("export study", "export: expected --optuna STORAGE or --curves FILE, got neither or both"),
    ("watch files", "holds neither"),
    ("watch study --interval 0", "--interval: expected"),
    ("new study", "expected a new or an empty directory"),
    ("new json", "expected a name that is no Python package"),
    (OWN + "lost.py:score --space space.toml", "expected a file"),
    (OWN + "score.py:scor --space space.toml", "did you mean score?"),
    (OWN + "score.py:score --space score.py", "--space: "),
    (OWN + "--minimize --space space.toml", "expected FILE.py:FUNCTION as well"),
    (
        OWN + "score.py:score --space space.toml --objectives 'ms mim'",
        "ms: expected 'max' or 'min', got 'mim'",
    ),
    (OWN + "score.py:score --space space.toml --agents 3", "expected with a bundled problem only"),
    ("simulat", "No such command 'simulat'. Did you mean 'simulate'?\n"),
    ("run my-app --data files/a.csv files/b.csv c", "; quote what has blanks or * in it, as in --data 'dir/"),
]


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch, own):
    """Enter a directory with a study, an app and two data files; no command gets as far as Flower."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local]\naddress = ":local:"\n'
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("score.py").write_text("def score(config, path):\n    raise AssertionError\n")
    Path("space.toml").write_text("x = {low = 0, high = 1.0}\n")
    own.save("study")
    new_app("my-app")
    Path("files").mkdir()
    for name in ("a", "b"):
        (Path("files") / f"{name}.csv").write_text("x,y\n")


@pytest.fixture(scope="module")
def own():
    return simulate("double-sine", agents=2, algorithm="random", num_rounds=1, engine="inline")


@pytest.mark.parametrize(("typed", "line"), COMMANDS)
def test_a_mistake_at_the_command_line_is_one_line(typed, line, capsys):
    before = sorted(Path().rglob("*"))
    assert run(shlex.split(typed)) == 2
    _, err = capsys.readouterr()
    assert line in err
    assert (err[:7], err.count("\n")) == ("error: ", 1)
    assert sorted(Path().rglob("*")) == before, "nothing was written"


SPACE = SearchSpace({"x": Float(0, 1)})


def evaluated(config, data):
    raise AssertionError("no evaluation is made")


CALLS = [
    # what was typed -> what the error says
    (lambda: Keep(resume=True), "resume=True needs journals"),
    (lambda: client_app(evaluated, {"x": Float(0, 1)}), "space: expected a SearchSpace, got a dict; wrap it"),
    (lambda: client_app(SPACE, evaluated), "objective, space: expected the objective first"),
    (lambda: add_tuning(evaluated, SPACE, None), "expected a ClientApp, got a function; call add_tuning(app"),
    (lambda: add_tuning(ClientApp(), SPACE, evaluated), "swap them"),
    # words of other libraries, and settings at another place than their own
    (lambda: tune(algorithm="fts", advice="single"), "; here that is algorithm=algorithms.FTS(advice=...)"),
    (lambda: tune(mode="async"), "unknown one; here that is rounds=Async()"),
    (lambda: tune(algorithm="fed-ei", epsilon=1.0), "mean algorithm=algorithms.DPFTS(max_epsilon=...)?"),
    (lambda: FedEI(epsilon=1.0), "'epsilon'; here that is an option of dp-fts, max_epsilon"),
    (lambda: tune(objectives="maximize"), "got 'maximize'; leave them out if there is one number: larger"),
    (lambda: Float(0, 1, log_scale=True), "log_scale: expected an argument of Float, got an unknown one; h"),
    (lambda: simulate("score.py", SPACE, [1]), "from score import score, and pass simulate(score, ...)"),
]


@pytest.mark.parametrize("name", sorted(set(fbo_flower.__all__) - {"__version__", "Study"}))
def test_every_public_name_says_what_it_takes_and_finds_a_misspelt_argument(name):
    public = getattr(fbo_flower, name)
    for given in inspect.signature(public).parameters if callable(public) else ():
        with pytest.raises(ConfigError, match=r"anything.*; it has "):
            public(anything=1)
        if len(given) > 4:
            with pytest.raises(ConfigError, match=f"; (did you mean|here that is) {given}"):
                public(**{given[:-2] + given[-1]: 1})


def tune(**given):
    return simulate(evaluated, SPACE, [1, 2, 3], engine="inline", **given)


@pytest.mark.parametrize(("call", "line"), CALLS)
def test_a_mistake_in_python_is_one_line(call, line):
    with pytest.raises(ConfigError, match=re.escape(line)):
        call()
