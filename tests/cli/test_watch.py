"""`fbo-flower watch`: what it shows of a journal that is written, and that it never disturbs the writer."""

import math
import os
import sys
from contextlib import suppress
from datetime import datetime

import pytest

from fbo_flower.cli import watch
from fbo_flower.cli.main import run
from fbo_flower.cli.watch import RunState, WatchedRun
from fbo_flower.simulation import Keep, simulate
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.storage.study_journal import StudyJournalReader

NOW = datetime(2026, 1, 1, 12, 0, 0)
SETTINGS = {"label": "fts", "fraction": 1.0, "algorithm": "fts"}
GOOD = {"replies": 3, "failures": 0, "refused": 0, "failed_trials": 1, "evaluations": 3, "disclosed": True}


def begin(agents):
    return [
        Event("roll", values={"study": "s", "space": "{}", "agents": list(agents), "roles": {}}),
        Event("agents", values={"agents": {a: [a, "", "", False] for a in agents}}),
    ]


def ask(number, present, **more):
    return [
        Event("open", number, values={} if "num_trials" in more else {"num_rounds": 10}),
        Event("ask", number, "train", values={"present": list(present), "tasks": "digest", **more}),
    ]


def replies(number, agents, **config):
    return [Event("reply", number, "train", agent, values={"config": config or None}) for agent in agents]


def close(number, **progress):
    values = {"seconds": 4.0, "progress": {"best": 0.9, "mean": 0.8} | GOOD | progress}
    return [Event("tell", number, "train", values={"missing": "late"}), Event("round", number, values=values)]


def shown(*events, **settings):
    state = RunState()
    state.apply(SETTINGS | settings, events)
    return "\n".join(state.lines("running", NOW))


def test_an_open_round_shows_who_has_answered():
    text = shown(*begin("abc"), *ask(1, "abc"), *replies(1, "ac"))
    assert "0 of 10 done" in text
    assert "round 1: 2 of 3 agents answered" in text
    assert "3, 3 present, 0 silent, 0 left" in text
    assert "no round has ended yet" in text
    assert "expected" not in text


def test_agents_that_do_not_answer_are_silent_and_agents_that_are_not_there_have_left():
    first = [*begin("abcd"), *ask(1, "abcd"), *replies(1, "abd"), *close(1)]
    second = [*ask(2, "abc"), *replies(2, "ab"), *close(2)]
    text = shown(*first, *second)
    assert "4, 2 present, 1 silent, 1 left or resting" in text
    assert "silent     c (2 unanswered)" in text
    back = shown(*first, *second, *ask(3, "abcd"), *replies(3, "c"))
    assert "4, 4 present, 0 silent, 0 left" in back
    resting = shown(*first, *second, *ask(3, "ab"))
    assert "1 silent, 1 left" in resting, "the server lets silent agents rest"
    without_task = shown(*begin("abc"), *ask(1, "abc", asked=["b"]), *replies(1, "b"), *close(1))
    assert "3 present, 0 silent" in without_task


def test_numbers_are_those_that_the_server_wrote_for_its_rounds():
    text = shown(*begin("abc"), *ask(1, "abc"), *replies(1, "abc"), *close(1), *ask(2, "abc"), *close(2))
    assert "2 of 10 done  [#####...................." in text
    assert "best         0.9, mean over agents 0.8" in text
    assert "6 done, 2 failed" in text
    assert "6 valid, 0 lost, 0 refused" in text
    assert "4 s (the last: 4 s)" in text
    assert "expected at 12:00:32, in 32 s" in text
    text = shown(*begin("ab"), Event("open", 1, values={"time": 0.0, "num_rounds": 9}), *close(1))
    assert "of a simulated clock" in text
    assert "expected" not in text, "such a clock promises no end"


def test_values_that_were_not_disclosed_are_not_made_up():
    hidden = {"best": None, "mean": None, "disclosed": False}
    text = shown(*begin("ab"), *ask(1, "ab"), *replies(1, "ab"), *close(1, **hidden))
    assert "not disclosed; each device has its own: fbo-flower best JOURNAL" in text
    failing = shown(*begin("ab"), *ask(1, "ab"), *replies(1, "ab"), *close(1, best=None, mean=None))
    assert "no evaluation has succeeded yet" in failing


def test_an_agent_that_others_overtake_is_silent_in_an_asynchronous_run():
    events = [*begin("ab"), *ask(1, "ab")]
    for number in (1, 2, 3):
        events += [*replies(number, "b"), *close(number)]
    text = shown(*events, mode="async")
    assert "1 silent" in text
    assert "a (2 unanswered)" in text


@pytest.mark.parametrize("number", [-5, True, 1e300, "9", None, 10**30, [1]])
def test_hostile_names_cannot_control_the_terminal_nor_hostile_counts_the_sum(number):
    name = "\x1b[2J" + "x" * 500
    text = shown(*begin([name]), *ask(1, [name]), *replies(1, [name], **{"num-failed": number}), *close(1))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 120
    assert "failing" not in text


def test_ten_thousand_agents_take_no_more_lines_than_ten():
    agents = [str(number) for number in range(10_000)]
    events = [*begin(agents), *ask(1, agents), *replies(1, agents[:5], **{"num-failed": 2}), *close(1)]
    text = shown(*events)
    assert len(text.splitlines()) <= 12
    assert "10,000, 5 present, 9,995 silent" in text
    assert "5 (1 unanswered), 6 (1 unanswered), 7 (1 unanswered) and 9,992 more" in text
    assert "0 (2 failed), 1 (2 failed), 2 (2 failed) and 2 more" in text


def test_reading_sees_commits_only_and_does_not_disturb_the_writer(tmp_path):
    path = tmp_path / "study.db"
    with StudyJournal(path) as journal:
        journal.begin(SETTINGS)
        journal.write(begin("ab"))
        reader = StudyJournalReader(path)
        assert [event.kind for event in reader.new_events()] == ["roll", "agents"]
        files, locked = sorted(os.listdir(tmp_path)), (tmp_path / "study.db.lock").read_bytes()
        with suppress(ZeroDivisionError), journal.transaction():  # half of a commit
            journal.insert("events", [("ask", 1, "train", "", b"half")])
            assert list(reader.new_events()) == []
            raise ZeroDivisionError
        reading = StudyJournalReader(path).new_events()
        next(reading)  # a reader that is in the middle of the file
        journal.write(ask(1, "ab"))
        assert sum(1 for _ in reading) == 1, "one state: not what was committed after it began"
        journal.write(ask(2, "ab"))
        assert sorted(os.listdir(tmp_path)) == files
        assert (tmp_path / "study.db.lock").read_bytes() == locked


def test_a_running_simulation_is_watched_and_ends_as_its_study(tmp_path, capsys):
    seen = []

    def on_round(progress):
        capsys.readouterr()
        assert run(["watch", str(tmp_path), "--once"]) == 0
        seen.append(capsys.readouterr().out)

    study = simulate(
        "gp-samples",
        agents=3,
        algorithm="random",
        num_rounds=4,
        engine="inline",
        keep=Keep(journals=tmp_path),
        callbacks=[on_round],
    )
    for number, text in enumerate(seen, 1):
        assert f"random: running (process {os.getpid()}), last write " in text
        assert f"{number} of 4 done" in text
        best = study.rounds["best"][number - 1]
        assert f"best         {best:.6g}, mean" in text
    assert run(["watch", str(tmp_path / "study.db")]) == 0, "it ends by itself"
    out = capsys.readouterr().out
    assert "random: ended" in out
    assert "\x1b" not in out
    assert f"{len(study.trials)} done, 0 failed" in out


@pytest.mark.usefixtures("unpictured")
def test_a_directory_of_results_is_shown_and_several_algorithms_in_their_order(tmp_path, capsys):
    command = ["simulate", "--problem", "gp-samples", "--agents", "2", "--rounds", "2", "--engine", "inline"]
    both = ["--algorithm", "random", "--compare", "ts", "--quiet"]
    assert run([*command, *both, "--journal", "--out", str(tmp_path / "a")]) == 0
    assert run(["watch", str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 algorithms ended: random, ts\nrandom: ended after 2 rounds, best " in out
    assert run([*command, *both, "--out", str(tmp_path / "b")]) == 0
    assert run(["watch", str(tmp_path / "b"), "--once"]) == 0
    out = capsys.readouterr().out
    assert "random: finished" in out
    assert "ts: finished" in out


def test_a_server_that_died_is_not_running(tmp_path):
    path = tmp_path / "study.db"
    with StudyJournal(path) as journal:
        journal.begin(SETTINGS)
        journal.write([*begin("ab"), *ask(1, "ab"), *replies(1, "ab"), *close(1)])
    watched = WatchedRun(tmp_path)
    watched.look()
    assert "expected at 12:00:36" in "\n".join(watched.lines(NOW))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / "study.db.lock").write_text(f"process {child}")
    text = "\n".join(watched.lines(NOW))
    assert f"process {child} has ended without finishing" in text
    assert "expected at" not in text, "it does not go on by itself"
    assert watched.may_change, "it may be resumed"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("nothing", 2, "watch: expected the directory of a run or a server's journal, got"),
        ("empty", 2, "holds neither"),
        ("other", 2, "two.db"),
        ("notes.txt --once", 1, "expected an undamaged fbo-flower study journal"),
        ("notes.txt", 1, "expected an undamaged fbo-flower study journal"),
        ("other --interval 0", 2, "--interval: expected"),
    ],
)
def test_what_is_no_run_is_one_clear_error(words, status, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: None)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not a database, but a text that is long enough to be one" * 20)
    for other in ("one.db", "two.db"):
        StudyJournal(tmp_path / "other" / other).close()
    assert run(["watch", *words.split()]) == status
    out, error = capsys.readouterr()
    assert out == "", "nothing is said about a run that was not read"
    assert said in error
    assert (error[:7], error.count("\n")) == ("error: ", 1)


@pytest.mark.parametrize("in_terminal", [False, True])
def test_ctrl_c_ends_it_without_a_traceback(in_terminal, tmp_path, monkeypatch, capsys):
    with StudyJournal(tmp_path / "study.db") as journal:
        journal.begin(SETTINGS)
        journal.write([*begin("ab"), *ask(1, "ab")])

    def interrupted(seconds):
        assert math.isclose(seconds, 2.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", interrupted)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: in_terminal)
    assert run(["watch", str(tmp_path)]) == 130
    out, error = capsys.readouterr()
    assert "round 1: 0 of 2 agents answered" in out
    assert error == "interrupted; watch changes nothing, the run itself goes on\n"


def test_a_run_that_counts_evaluations_shows_how_many_are_left():
    text = shown(*begin("ab"), *ask(1, "ab", num_trials=5), *replies(1, "ab"), *close(1, evaluations=4))
    assert "1 done, for 5 evaluations of each agent  [##########...............]" in text
    assert "in 6 s" in text, "a round of four seconds made four of ten"
