"""`fbo-flower simulate`, of bundled problems and of functions in files, and `report`: what they leave."""

import io
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
import typer
from flwr.common.logger import log
from processes import ROOT, python
from rich.console import Console
from waiting import LIMIT, wait_until

from fbo_flower import __version__
from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.protocol import DEFAULT_TRIALS
from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.cli import main
from fbo_flower.cli.main import run
from fbo_flower.cli.plan import Contestant, default_directory, read_space
from fbo_flower.cli.progress import Display
from fbo_flower.errors import NumericalError
from fbo_flower.reports.summary import evaluations_of
from fbo_flower.simulation import Agents, Async, Clock, runner, simulate
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.strategies import RoundProgress
from fbo_flower.study import Study

SMALL = ["simulate", "--engine", "inline", "--agents", "3", "--rounds", "3", "--seed", "5"]
TS = [*SMALL, "--problem", "double-sine", "--algorithm", "ts"]
FILES = ["best.json", "messages", "report.png", "rounds.csv"]
FILES += ["study.json", "times.csv", "traffic.png", "trials.csv"]
TS_FILES = sorted({*FILES, "regret.csv"} - {"messages"})


def files(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory in which the default algorithm ran beside three others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path := tmp_path_factory.mktemp("place"))
        others = ["--compare", "ts", "--compare", "random", "--compare"]
        assert run([*SMALL, *others, "fts advice=portfolio num-features=20 label='fts portfolio'"]) == 0
        yield path


# simulate


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--trials 6 --compare random --compare hct --compare co-kg", [6, 6, 6, 6]),
        ("--rounds 5 --algorithm random --compare 'hct budget=9'", [7, 9]),
        ("--trials 4 --algorithm fts --option num-initial=2 --prior-rounds 2 --prior-algorithm random", [4]),
        ("--algorithm random --compare hct", [DEFAULT_TRIALS, DEFAULT_TRIALS]),
        ("--trials 6 --mode async --algorithm ts --compare random --durations lognormal:60,1", [6, 6]),
    ],
)  # fmt: skip
def test_algorithms_that_are_compared_make_the_same_evaluations(words, expected, unpictured):
    given = ["simulate", "--engine", "inline", "--problem", "double-sine", "--agents", "3", "--out", "x"]
    assert run([*given, *shlex.split(words)]) == 0
    study = Study.load("x")
    assert [{*evaluations_of(study, name).values()} for name in study.algorithms] == [{n} for n in expected]


def test_a_run_leaves_a_study_of_the_default_algorithm_and_of_those_compared_with_it(place):
    directory = (place / "runs" / "latest").resolve()
    name = rf"digits-svm-{RECOMMENDED}-ts-random-fts-portfolio-seed5-\d{{8}}-\d{{6}}"
    assert re.fullmatch(name, directory.name)
    assert files(directory) == FILES
    study = Study.load(directory)
    assert study.algorithms == [RECOMMENDED, "ts", "random", "fts portfolio"]
    assert study.run("fts portfolio")["options"]["num_features"] == 20
    assert study.run(RECOMMENDED)["status"] == "finished"
    same = simulate("digits-svm", agents=3, num_rounds=3, seed=5, engine="inline")
    assert study.only(RECOMMENDED).trials == same.trials, "what the function runs"
    first = [study.trials.where(algorithm=name, round=1, trial=0) for name in study.algorithms]
    for other in first[1:]:
        assert other["config"].tolist() == first[0]["config"].tolist(), "all start from the same points"
        assert other["value"].tolist() == first[0]["value"].tolist()


ASYNC = Async(clock=Clock({"0": [1.0, 2.0], "1": 2.5, "2": 7.0}, exchange_seconds=0.5))
SEVERAL = {"num_initial": 2, "trials_per_round": 2, "num_candidates": 32}
AS_FUNCTION = {
    "--mode async --durations table:seconds.csv --exchange-seconds 0.5": {"algorithm": "ts", "rounds": ASYNC},
    "--algorithm ei --option num_initial=2 --option trials_per_round=2 --option num_candidates=32 "
    "--num-parallel 2 --trial-timeout 300": {
        "algorithm": make_algorithm("ei", SEVERAL),
        "agents": Agents(3, num_parallel=2, trial_timeout=300),
    },
}


@pytest.mark.usefixtures("unpictured")
@pytest.mark.parametrize(("words", "given"), AS_FUNCTION.items(), ids=["async on a clock", "at once"])
def test_a_quiet_run_is_the_functions_and_resumes(words, given, capfd):
    Path("seconds.csv").write_text("agent,seconds\n0,1\n1,2.5\n2,7\n0,2\n")
    assert run([*TS, *words.split(), "--out", "x", "-q", "--journal"]) == 0
    assert capfd.readouterr() == ("", "")
    given = {"agents": 3, "num_rounds": 3, "seed": 5, "engine": "inline", **given}
    expected, study = simulate("double-sine", **given), Study.load("x")
    assert study.trials == expected.trials
    if "rounds" in given:
        assert study.times == expected.times
        assert study.rounds["seconds"].tolist() == expected.rounds["seconds"].tolist()
    assert run(["simulate", "--resume", "x", "-q"]) == 0
    assert (Study.load("x").trials, Study.load("x").times) == (study.trials, study.times)


def test_without_matplotlib_there_is_no_picture_and_without_ray_its_engines_say_what_to_install(
    monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run([*TS, "--out", "x"]) == 0
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert not list(Path("x").glob("*.png"))
    assert run([*SMALL, "--engine", "flower"]) == 2
    assert "pip install 'fbo-flower[simulation]'" in capsys.readouterr().err


# what was done stays


@pytest.mark.usefixtures("unpictured")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("a bug"), "unexpected ZeroDivisionError: a bug (use --debug to see where)"),
        (NumericalError("matrix: no"), "matrix: no"),
    ],
)
def test_what_ends_a_run_is_one_line_that_says_what_was_kept(error, said, monkeypatch, capsys):
    def fails_on_random(problem, **settings):
        if settings["algorithm"].name == "random":
            raise type(error)(*error.args)  # a new one, because notes are added
        return simulate(problem, **settings)

    monkeypatch.setattr(runner, "simulate", fails_on_random)
    assert run([*TS, "--compare", "random", "--out", "x", "-q"]) == 1
    kept = "x holds the results so far: ts 3 rounds; only a run with --journal can be continued"
    assert capsys.readouterr().err == f"error: {said}; {kept}\n"
    assert files(Path("x")) == TS_FILES
    assert run([*TS, "--algorithm", "random", "--out", "y", "-q"]) == 1
    assert capsys.readouterr().err == f"error: {said}; nothing was written\n"
    assert files(Path()) == ["x"]


# report


def test_report_draws_again_and_merges_studies_and_tells_equal_names_apart(place, capsys):
    study = Study.load(place / "runs" / "latest")
    Study.merge([study.only("ts"), study.only("random")]).save("a")
    study.only("ts").save("b")
    assert run(["report", "a"]) == 0
    out = capsys.readouterr().out
    assert "best at end" in out
    assert "Pictures: a/report.png, a/traffic.png\n" in out
    assert Path("a/report.png").read_bytes().startswith(b"\x89PNG")
    assert run(["report", "a", "b", "--out", "both.svg", "--reference", "ts (b)", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("| algorithm |")
    assert all(f"| {name} |" in out for name in ("random", "ts (a)", "ts (b)"))
    assert "gain on ts (b) at end" in out
    assert Path("both.svg").read_text().startswith("<?xml")


# the command itself


def test_help_of_all_commands_fits_on_a_page_and_every_command_says_what_its_arguments_are(capsys):
    done = python("-m", "fbo_flower.cli", "--help", COLUMNS="80")  # no other package has added commands there
    assert len(done.stdout.splitlines()) <= 40
    assert run([]) != 0
    assert "simulate" in capsys.readouterr().out
    for name in typer.main.get_command(main.app).commands:  # a group
        assert run([name, "--help"]) == 0
        assert f"Usage: fbo-flower {name}" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"fbo-flower {__version__}\n"


def test_an_error_is_one_line_unless_its_traceback_is_asked_for(capsys):
    line = "error: rounds: expected an integer >= 1, got 0"
    assert run(["simulate", "--rounds", "0", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1] == line
    done = python("-m", "fbo_flower.cli", "simulate", "--rounds", "0", fails=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{line}\n")


def test_default_directories_are_plain_names_that_no_earlier_run_has():
    names = [Contestant.parse(text) for text in ("fts", "fts schedule=1-1/t^2", "ts label='A/../B'")]
    now = datetime(2026, 11, 22, 8, 5, 9)
    name = "runs/digits-svm-fts-fts-schedule-1-1-t-2-a-b-83f7197b3d10116d-seed3-20261122-080509"
    for expected in (name, f"{name}-2", f"{name}-3"):
        path = default_directory("digits-svm", names, 3, now)
        assert path == Path(expected)
        path.mkdir(parents=True)


# progress


def test_a_bar_fits_80_columns():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system=None)
    with Display(console=console) as display:
        display.announce("fts portfolio")
        counts = -123.4567, -234.5678, 500, 300, 100, 5, 1.0
        display.advance(RoundProgress(25, *counts, num_rounds=None))
    done = r"0:00:0\d fts portfolio .* 25/\? best -123.4567 mean -234.5678 400 lost 5 failed"
    assert re.search(done, stream.getvalue()), stream.getvalue()


CODE = """
import neighbour

def score(config, path):
    return neighbour.distance(config["x"], float(path.read_text()))
"""
SPACE = 'x = {low = 0, high = 1.0}\nkind = ["a", "b"]\nn = {low = 1, high = 4, active_when = {kind = "a"}}\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.delitem(sys.modules, "neighbour", raising=False)
    (tmp_path / "score.py").write_text(CODE)
    (tmp_path / "neighbour.py").write_text("def distance(x, centre):\n    return abs(x - centre)\n")
    (tmp_path / "space.toml").write_text(SPACE)
    for name, centre in {"site-2": 0.2, "site-10": 0.3}.items():
        (tmp_path / f"{name}.csv").write_text(str(centre))
    return tmp_path


GIVEN = shlex.split("simulate score.py:score --data site-*.csv --space space.toml --engine inline -q")


@pytest.mark.usefixtures("unpictured")
def test_a_function_is_minimised_on_files_and_resumed_elsewhere(here, monkeypatch):
    given = [*GIVEN, "--minimize", "--algorithm", "random", "--rounds", "3", "--journal", "--out", "study"]
    assert run(given) == 0
    study = Study.load(here / "study")
    assert list(study.best) == ["site-2", "site-10"]
    assert study.minimizes("random")
    monkeypatch.chdir(here.parent)
    assert run(["simulate", "--resume", str(here / "study"), "-q"]) == 0
    assert Study.load(here / "study").trials == study.trials


@pytest.mark.usefixtures("unpictured")
def test_a_function_of_several_outputs_has_limits_and_the_best_are_fronts(here, capsys):
    (here / "score.py").write_text(
        'def score(config, path):\n    x = config["x"]\n    return {"loss": (x - 0.8) ** 2, "ms": 20 * x}\n'
    )
    aims = ["--objectives", "loss min, ms min", "--limits", "ms <= 10", "--limits", "site-2: ms <= -1"]
    assert run([*GIVEN[:-1], "--algorithm", "random", "--rounds", "8", "--out", "study", *aims]) == 0
    assert "No configuration holds the limits of site-2." in capsys.readouterr().out
    study = Study.load(here / "study")
    assert study.infeasible == ["site-2"]
    assert study.front("site-10").values[:, 1].max() <= 10
    assert run(["best", "study"]) == 0
    text = capsys.readouterr().out
    assert "Agent site-2, study study, random\n  no configuration holds the limits\n  evaluations: 10" in text
    assert f"front of {len(study.front('site-10').configs)}:\n    loss " in text


@pytest.mark.ray
@pytest.mark.parametrize("engine", [pytest.param("flower", marks=pytest.mark.slow), "ray"])
def test_workers_find_the_neighbours_of_a_function_and_ctrl_c_ends_an_engine_and_keeps_the_rounds(
    engine, here
):
    """The command is typed elsewhere; a terminal sends Ctrl-C to Ray's processes too."""
    words = [str(here / word) if "." in word else word for word in GIVEN[:6]]
    words += ["--engine", engine, "--algorithm", "random", "--rounds", "5000", "--out", str(here / "study")]
    with (log := here / "log").open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "fbo_flower.cli", *words, "--debug"], cwd="/",
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: "[round 2/5000]" in log.read_text() or process.poll() is not None, "two rounds")
        os.killpg(process.pid, signal.SIGINT)
        status = process.wait(LIMIT)
    finally:
        process.kill()
    assert status == 130, log.read_text()
    assert "Traceback" not in log.read_text()
    study = Study.load(here / "study")
    assert study.settings["runs"][0]["status"] == "interrupted"
    assert 2 <= len(study.rounds) < 5000
    assert not any(study.trials["failure"].tolist())


def test_a_space_is_read_from_toml(tmp_path):
    (tmp_path / "space.toml").write_text(
        SPACE + 'C = {low = 1e-3, high = 10, log = true}\nsize = {kind = "ordinal", choices = [1, 2, 8]}\n'
    )
    two = {"x": Float(0, 1), "kind": Categorical(["a", "b"])}
    more = {"n": Int(1, 4, active_when={"kind": "a"}), "C": Float(1e-3, 10, log=True)}
    assert read_space(tmp_path / "space.toml") == SearchSpace({**two, **more, "size": Ordinal([1, 2, 8])})


def test_flowers_warnings_become_lines_and_its_handlers_come_back(capsys):
    logger = logging.getLogger("flwr")
    before = (list(logger.handlers), logger.level)
    with Display(quiet=True):
        log(logging.INFO, "chatter")
        log(logging.WARNING, "DEPRECATED FEATURE: old\n\n   more")
        log(logging.WARNING, "agent %s is [bold]odd[/bold]\nsecond line", 3)
    assert capsys.readouterr().err == "warning: agent 3 is [bold]odd[/bold]\n"
    assert (list(logger.handlers), logger.level) == before
