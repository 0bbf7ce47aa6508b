from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.common.logger import log
from rich.console import Console
from waiting import LIMIT, wait_until

from fbo_flower import __version__
from fbo_flower.algorithms import ALGORITHMS, make_algorithm
from fbo_flower.cli.main import run
from fbo_flower.cli.plan import Contestant, default_directory
from fbo_flower.cli.print_results import print_table
from fbo_flower.cli.progress import Display
from fbo_flower.errors import NumericalError
from fbo_flower.reports.summary import summarise
from fbo_flower.simulation import PROBLEMS, Agents, Async, Clock, runner, simulate
from fbo_flower.simulation.problems import DigitsSVM
from fbo_flower.strategies import RoundProgress
from fbo_flower.strategies.exchange import REPORT_SECONDS, ReplyProgress
from fbo_flower.study import Study

ROOT = Path(__file__).parents[2]
SMALL = ["simulate", "--engine", "inline", "--agents", "3", "--rounds", "3", "--seed", "5"]
FILES = [
    *("best.json", "messages", "report.png", "rounds.csv"),
    *("study.json", "times.csv", "traffic.png", "trials.csv"),
]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# simulate


def test_simulate_writes_a_study_and_prints_a_table_with_every_algorithm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = run(
        [*SMALL, "--compare", "ts", "--compare", "fts advice=portfolio num-features=20 label='fts portfolio'"]
    )
    out, err = capsys.readouterr()
    directory = Path("runs/latest").resolve()
    assert re.fullmatch(r"digits-svm-fts-ts-fts-portfolio-seed5-\d{8}-\d{6}", directory.name)
    assert status == 0
    assert files(directory) == FILES
    assert all(name in out for name in ("fts portfolio", "ts", "best at end", "evaluations to match"))
    assert f"Results: runs/{directory.name}" in out
    assert "3/3" in err
    assert "INFO" not in out + err
    study = Study.load(directory)
    assert study.algorithms == ["fts", "ts", "fts portfolio"]
    assert study.run("fts portfolio")["options"]["num_features"] == 20
    assert {run["status"] for run in study.settings["runs"]} == {"finished"}


def test_simulate_runs_what_the_function_runs() -> None:
    assert run([*SMALL, "--out", "x", "-q"]) == 0
    expected = simulate("digits-svm", agents=3, algorithm="fts", num_rounds=3, seed=5, engine="inline")
    assert Study.load("x").trials == expected.trials


def test_simulate_runs_without_a_barrier_on_a_clock_and_resumes_there() -> None:
    rows = "\n".join(f"{agent},{seconds}" for agent, seconds in [(0, 1), (1, 2.5), (2, 7), (0, 2)])
    Path("seconds.csv").write_text(f"agent,seconds\n{rows}\n")
    clocked = ["--mode", "async", "--durations", "table:seconds.csv", "--exchange-seconds", "0.5"]
    assert run([*SMALL, *clocked, "--out", "x", "-q", "--journal"]) == 0
    table = {"0": [1.0, 2.0], "1": 2.5, "2": 7.0}
    expected = simulate(
        "digits-svm",
        agents=3,
        algorithm="fts",
        num_rounds=3,
        seed=5,
        engine="inline",
        rounds=Async(clock=Clock(table, exchange_seconds=0.5)),
    )
    study = Study.load("x")
    assert study.trials == expected.trials
    assert study.times == expected.times
    assert study.rounds["seconds"].tolist() == expected.rounds["seconds"].tolist()
    assert run(["simulate", "--resume", "x", "-q"]) == 0
    assert Study.load("x").times == expected.times


def test_simulate_makes_several_evaluations_at_once_and_resumes() -> None:
    options = {"num_initial": 2, "trials_per_round": 2, "num_candidates": 32}
    given = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    command = ["simulate", "--problem", "double-sine", "--engine", "inline", "--agents", "2", "--rounds", "2"]
    at_once = ["--num-parallel", "2", "--trial-timeout", "300", "--journal"]
    assert run([*command, "--algorithm", "ei", *given, *at_once, "--out", "x", "-q"]) == 0
    study = Study.load("x")
    expected = simulate(
        "double-sine",
        agents=Agents(2, num_parallel=2),
        algorithm=make_algorithm("ei", options),
        num_rounds=2,
        engine="inline",
    )
    assert study.trials == expected.trials
    assert run(["simulate", "--resume", "x", "-q"]) == 0
    assert Study.load("x").trials == expected.trials
    assert run([*command, "--trial-timeout", "-1"]) == 2
    assert run(["simulate", "--num-parallel", "2", "--engine", "ray"]) == 2


def test_all_algorithms_start_from_the_same_configurations() -> None:
    assert run([*SMALL, "--compare", "ts", "--compare", "random", "--out", "x", "-q"]) == 0
    trials = Study.load("x").trials
    first = [trials.where(algorithm=name, round=1) for name in ("fts", "ts", "random")]
    assert len(first[0]) == 9
    for other in first[1:]:
        assert other["config"].tolist() == first[0]["config"].tolist()
        assert other["value"].tolist() == first[0]["value"].tolist()


def test_options_of_problem_and_algorithm_arrive_with_their_types() -> None:
    status = run(
        [
            *SMALL, "--problem", "gp-samples", "--problem-option", "difference=0.5", "--option",
            'targets=["0", "2"]', "--option", "schedule=first-2", "--label", "mine", "--out", "x", "-q",
            "--fraction", "0.7", "--prior-rounds", "2",
        ]
    )  # fmt: skip
    settings = Study.load("x").run("mine")
    assert status == 0
    assert settings["problem_options"]["difference"] == 0.5
    assert settings["options"]["targets"] == ["0", "2"]
    assert settings["options"]["schedule"] == "first-2"
    assert settings["fraction"] == 0.7
    assert settings["prior_trials"] == {"1": 4}  # targets start from nothing


def test_quiet_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*SMALL, "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")


def test_without_a_picture_simulate_still_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run([*SMALL, "--out", "x"]) == 0
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert files(Path("x")) == [name for name in FILES if not name.endswith(".png")]


@pytest.mark.parametrize("engine", ["ray", "flower"])
def test_without_ray_its_engines_say_what_to_install(
    engine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run([*SMALL, "--engine", engine]) == 2
    assert "pip install 'fbo-flower[simulation]'" in capsys.readouterr().err


# bad input: one line that names the thing, the expectation and the value


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithm", "nope"], ["algorithm", "expected one of", "fts", "'nope'"]),
        (["--compare", "nope"], ["algorithm", "expected one of", "fts", "'nope'"]),
        (["--prior-algorithm", "nope"], ["algorithm", "expected one of", "fts", "'nope'"]),
        (["--problem", "nope"], ["problem", "expected one of", "digits-svm", "'nope'"]),
        (["--engine", "nope"], ["engine", "inline", "'nope'"]),
        (["--rounds", "0"], ["rounds", ">= 1", "0"]),
        (["--rounds", "many"], ["--rounds", "integer", "'many'"]),
        (["--prior-rounds", "-1"], ["prior_rounds", ">= 0", "-1"]),
        (["--agents", "0"], ["at least 1 agent", "0"]),
        (["--agents", "1000"], ["num_agents", "at most 44", "1000"]),
        (["--seed", "-1"], ["seed", "non-negative", "-1"]),
        (["--fraction", "2"], ["fraction", "2"]),
        (["--option", "nope=1"], ["nope", "num_initial=3"]),
        (["--option", "num_initial=0"], ["num_initial", "0"]),
        (["--option", "lengthscale=[1,2,3]"], ["lengthscale", "expected 2 numbers", "3"]),
        (["--option", "nope"], ["--option", "key=value", "'nope'"]),
        (["--problem-option", "nope=1"], ["digits-svm", "min_size", "nope"]),
        (["--compare", "ts", "--compare", "ts"], ["label", "ts twice"]),
        (["--compare", "ts 'open"], ["--compare", "ts 'open"]),
        (["--compare", ""], ["--compare", "an empty text"]),
        (["--out", "/dev/null/x"], ["out", "can be written", "/dev/null/x"]),
        (["--nope"], ["--nope"]),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    arguments: list[str],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FBO_FLOWER_DATA", raising=False)
    status = run(["simulate", "--engine", "inline", *arguments])
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert all(word in err for word in words), err
    assert not list(Path().iterdir())


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--rounds", "0", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1] == "error: rounds: expected an integer >= 1, got 0"


def test_a_bug_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(runner, "simulate", lambda *_, **__: 1 / 0)
    assert run([*SMALL, "-q"]) == 1
    assert capsys.readouterr().err == (
        "error: unexpected ZeroDivisionError: division by zero (use --debug to see where); "
        "nothing was written\n"
    )


# what was done stays


def test_a_failure_of_the_second_algorithm_keeps_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails_on_ts(problem: Any, **settings: Any) -> Study:
        if settings["algorithm"].name == "ts":
            raise NumericalError("matrix: expected a positive definite one")
        return simulate(problem, **settings)

    monkeypatch.setattr(runner, "simulate", fails_on_ts)
    assert run([*SMALL, "--compare", "ts", "--out", "x", "-q"]) == 1
    assert capsys.readouterr().err == (
        "error: matrix: expected a positive definite one; x holds the results so far: fts 3 rounds\n"
    )
    assert files(Path("x")) == FILES
    assert (
        Study.load("x").trials
        == simulate("digits-svm", agents=3, algorithm="fts", num_rounds=3, seed=5, engine="inline").trials
    )


def test_an_interruption_keeps_complete_files_of_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press_ctrl_c(self: Display, progress: Any) -> None:
        rounds.append(progress.server_round)
        if len(rounds) == 5:  # fts 1, 2, 3; ts 1, 2
            raise KeyboardInterrupt

    rounds: list[int] = []
    monkeypatch.setattr(Display, "advance", press_ctrl_c)
    assert run([*SMALL, "--compare", "ts", "--compare", "random", "--out", "x"]) == 130
    out, err = capsys.readouterr()
    assert "interrupted; x holds the results so far: fts 3 rounds, ts 2 rounds" in err
    assert out == ""
    assert files(Path("x")) == FILES
    study = Study.load("x")
    assert {run["label"]: run["status"] for run in study.settings["runs"]} == {
        "fts": "finished",
        "ts": "interrupted",
    }
    whole = simulate("digits-svm", agents=3, algorithm="ts", num_rounds=3, seed=5, engine="inline").trials
    assert study.only("ts").trials == whole.take(whole["round"] <= 2)
    assert run(["report", "x"]) == 0
    assert "ts (interrupted)" in capsys.readouterr().out


def test_an_interruption_before_the_first_round_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> Study:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "simulate", interrupted)
    assert run([*SMALL, "-q"]) == 130
    assert capsys.readouterr().err == "interrupted; nothing was written\n"


@pytest.mark.ray
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("engine", ["flower", "ray"])
def test_ctrl_c_ends_an_engine_at_once_and_keeps_the_rounds(engine: str, tmp_path: Path) -> None:
    words = f"simulate --engine {engine} --agents 2 --rounds 5000 --out x --debug"
    out, err = tmp_path / "out.log", tmp_path / "err.log"
    with out.open("w") as out_file, err.open("w") as err_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "fbo_flower.cli", *words.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=out_file,
            stderr=err_file,
            start_new_session=True,
            # a shell lets what runs in its background ignore the signal, and children inherit that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # no threads here
        )
    try:
        wait_until(lambda: "[round 2/5000]" in err.read_text() or process.poll() is not None, "two rounds")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: Ray's processes get it too
        status = process.wait(LIMIT)
    finally:
        process.kill()
    assert status == 130, err.read_text()
    assert out.read_text() == ""
    assert "Traceback" not in err.read_text()
    study = Study.load(tmp_path / "x")
    (settings,) = study.settings["runs"]
    assert settings["status"] == "interrupted"
    assert 2 <= len(study.rounds) < 5000


# evaluations that fail


def test_a_failing_evaluation_costs_its_trial_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails_sometimes(self: DigitsSVM, config: Any, context: Any) -> float:
        if context.trial == 1:
            raise RuntimeError("out of memory\nsecond line")
        return float(context.rng.random())

    monkeypatch.setattr(DigitsSVM, "__call__", fails_sometimes)
    assert run([*SMALL, "--out", "x"]) == 0
    out, err = capsys.readouterr()
    assert "warning: agent 0, trial 1 failed: RuntimeError: out of memory\\nsecond line" in err  # one line
    assert "failed evaluations" in out
    trials = Study.load("x").trials
    assert len(trials) == 15
    assert trials["trial"][~np.isfinite(trials["value"])].tolist() == [1, 1, 1]


def test_if_every_evaluation_fails_the_command_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(self: DigitsSVM, config: Any, context: Any) -> float:
        raise RuntimeError("no data")

    monkeypatch.setattr(DigitsSVM, "__call__", fails)
    assert run([*SMALL, "--out", "x", "-q"]) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith(
        "error: fts: all of 9 evaluations failed, the first with: RuntimeError: no data; x holds the results"
    )
    assert len(Study.load("x").trials) == 9


# report


@pytest.mark.parametrize(("width", "parts"), [(80, 2), (200, 1)])
def test_a_table_wider_than_the_terminal_is_printed_in_parts(width: int, parts: int) -> None:
    assert run([*SMALL, "--compare", "ts", "--compare", "random", "--compare", "ts label=two", "-q"]) == 0
    directory = Path("runs/latest")
    page = io.StringIO()
    print_table(summarise(Study.load(directory)), Console(file=page, force_terminal=True, width=width))
    assert page.getvalue().count("best at end") == parts
    assert "…" not in page.getvalue()
    assert page.getvalue().count("±") == 14  # 4 algorithms at 5 and at the end, 3 gains on ts at each


@pytest.fixture
def studies() -> list[str]:
    """Make two directories with studies that both hold `ts`."""
    base = ["simulate", "--engine", "inline", "--agents", "3", "--rounds", "3", "-q"]
    assert run([*base, "--compare", "ts", "--out", "a"]) == 0
    assert run([*base, "--algorithm", "ts", "--seed", "1", "--out", "b"]) == 0
    return ["a", "b"]


def test_report_prints_the_table_and_draws_again(
    studies: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a/report.png").unlink()
    assert run(["report", "a"]) == 0
    out = capsys.readouterr().out
    assert "best at end" in out
    assert "Pictures: a/report.png, a/traffic.png\n" in out
    assert Path("a/report.png").read_bytes().startswith(b"\x89PNG")


def test_report_merges_studies_and_tells_equal_names_apart(
    studies: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *studies, "--out", "both.svg", "--reference", "ts (b)", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("| algorithm |")
    assert all(f"| {name} |" in out for name in ("fts", "ts (a)", "ts (b)"))
    assert "gain on ts (b) at end" in out
    assert Path("both.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], ["nowhere/study.json", "no such file"]),
        (["a", "--reference", "nope"], ["reference", "expected one of fts, ts", "'nope'"]),
        (["a", "--out", "x.doc"], ["x.doc", ".png"]),
    ],
)
def test_report_says_what_is_wrong_in_one_line(
    studies: list[str], arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *arguments, "-q"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert all(word in err for word in words)


# the other commands


def test_problems_and_algorithms_are_listed_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["problems"]) == 0
    out = capsys.readouterr().out
    for name, problem in PROBLEMS.items():
        assert name in out
        assert all(option in out for option in problem.options())
    assert run(["algorithms"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ALGORITHMS)
    assert run(["algorithms", "fts"]) == 0
    out = capsys.readouterr().out
    for option in ALGORITHMS["fts"].option_defaults():
        assert f"\n    {option} : " in out or f", {option}" in out
    assert run(["algorithms", "nope"]) == 2


def test_help_says_what_the_arguments_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["best", "--help"]) == 0
    assert "Journals of agents" in capsys.readouterr().out


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"fbo-flower {__version__}\n"
    assert run([]) != 0
    assert "simulate" in capsys.readouterr().out
    for command in ("simulate", "report", "problems", "algorithms"):
        assert run([command, "--help"]) == 0
    assert "Example" in capsys.readouterr().out
    assert run(["nope"]) == 2
    assert capsys.readouterr().err == "error: No such command 'nope'.\n"


def test_default_directories_are_plain_names_that_no_earlier_run_has() -> None:
    names = [Contestant.parse(text) for text in ("fts", "fts schedule=1-1/t^2", "ts label='A/../B'")]
    now = datetime(2026, 11, 22, 8, 5, 9)
    name = "runs/digits-svm-fts-fts-schedule-1-1-t-2-a-..-b-seed3-20261122-080509"
    for expected in (name, f"{name}-2", f"{name}-3"):
        path = default_directory("digits-svm", names, 3, now)
        assert path == Path(expected)
        path.mkdir(parents=True)


def test_a_second_run_leaves_the_first_alone_and_latest_points_at_it() -> None:
    assert run([*SMALL, "-q"]) == 0
    first = Path("runs/latest").resolve()
    trials = (first / "trials.csv").read_bytes()
    assert run([*SMALL, "--rounds", "1", "-q"]) == 0
    second = Path("runs/latest").resolve()
    assert first != second
    assert (first / "trials.csv").read_bytes() == trials
    assert len(Study.load("runs/latest").trials) == 9


def test_a_directory_with_a_study_is_refused_unless_it_is_to_be_overwritten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*SMALL, "--journal", "--out", "x", "-q"]) == 0
    assert run(["report", "x", "-q"]) == 0
    (Path("x") / "notes.txt").write_text("mine")
    assert {"privacy.md", "journals", "simulate.json"} <= set(files(Path("x")))
    assert run([*SMALL, "--rounds", "1", "--out", "x"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "error: out: expected a directory without a study, got x, which holds one" in err
    assert "--overwrite" in err
    assert len(Study.load("x").trials) == 15
    assert run([*SMALL, "--rounds", "1", "--out", "x", "--overwrite", "-q"]) == 0
    assert files(Path("x")) == sorted([*FILES, "notes.txt"]), "what was made from the old study went with it"
    assert len(Study.load("x").trials) == 9


def test_a_run_that_wrote_nothing_leaves_no_directory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "simulate", lambda *_, **__: 1 / 0)
    assert run([*SMALL, "-q"]) == 1
    Path("y").mkdir()
    for out in ("deep/er/x", "y"):
        assert run([*SMALL, "--out", out, "-q"]) == 1
        assert "nothing was written" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["y"], "an empty directory from before stays"


@pytest.mark.parametrize("num_rounds", [25, None])
def test_a_bar_fits_80_columns_with_its_elapsed_time(num_rounds: int | None) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system=None)
    display = Display(console=console)
    with display:
        display.announce("fts portfolio", num_rounds)
        display.advance(RoundProgress(25, num_rounds, -123.4567, -234.5678, 500, 300, 100, 5, 1.0))
    text = stream.getvalue()
    assert re.search(
        r"0:00:0\d fts portfolio .* 25/(25|\?) best -123.4567 mean -234.5678 400 lost 5 failed", text
    ), text


def test_a_bar_shows_the_replies_of_a_long_round_until_it_ends() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system=None)
    with Display(console=console) as display:
        display.announce("pf-pne", 9)
        display.advance(RoundProgress(1, 9, 0.5, 0.25, 2, 0, 0, 0, 1.0))
        progress = ReplyProgress(200)
        progress._said -= REPORT_SECONDS  # as if time had passed
        progress.add(40)
    assert "1/9 best 0.5000 mean 0.2500; 40 of 200 replies" in stream.getvalue()
    assert "so far" not in stream.getvalue()


def test_flowers_warnings_become_lines_and_its_handlers_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("flwr")
    before = (list(logger.handlers), logger.level)
    with Display(quiet=True):
        log(logging.INFO, "chatter")
        log(logging.WARNING, "DEPRECATED FEATURE: old\n\n   more")
        log(logging.WARNING, "agent %s is [bold]odd[/bold]\nsecond line", 3)
    assert capsys.readouterr().err == "warning: agent 3 is [bold]odd[/bold]\n"
    assert (list(logger.handlers), logger.level) == before


def test_the_console_script_exits_with_the_status(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fbo_flower.cli", "simulate", "--rounds", "0"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: rounds: expected an integer >= 1, got 0\n"


def test_settings_of_a_study_name_problem_engine_versions_and_seed() -> None:
    assert run([*SMALL, "--out", "x", "-q"]) == 0
    settings = json.loads(Path("x/study.json").read_text())
    (own,) = settings["runs"]
    assert {"fbo-flower", "flwr", "numpy", "python", "scikit-learn"} >= set(settings["versions"]) - {"scipy"}
    assert {key: own[key] for key in ("problem", "engine", "seed", "num_agents", "num_rounds")} == {
        "problem": "digits-svm",
        "engine": "inline",
        "seed": 5,
        "num_agents": 3,
        "num_rounds": 3,
    }
