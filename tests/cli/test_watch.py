"""`fbo-flower watch`: what it shows of a journal while it is written, and afterwards."""

import os
from collections import Counter
from contextlib import suppress
from datetime import datetime

import pytest
from federation import EVER, agents

from fbo_flower.cli.main import run
from fbo_flower.cli.watch import RunState, WatchedRun
from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation import Keep, simulate
from fbo_flower.simulation.durations import constant
from fbo_flower.simulation.grids import ClockedGrid, Fault
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage import StudyJournal
from fbo_flower.storage.study_journal import StudyJournalReader
from fbo_flower.strategies import RandomSearch

NOW = datetime(2026, 1, 1, 12, 0, 0)


def recorded(tmp_path, grid, num_rounds=4, mode="sync", **extent):
    """Run a study; return the settings and the events of its journal."""
    path, extent = tmp_path / "whole.db", extent or {"num_rounds": num_rounds}
    with suppress(ObjectiveError):
        number = len(list(grid.get_node_ids()))
        strategy = RandomSearch(num_agents=number, num_initial=1, seed=1, round_timeout=0.1)
        strategy.start(grid, journal=path, mode=mode, **extent)
    reader = StudyJournalReader(path)
    return reader.settings(), list(reader.new_events())


def up_to(events, kind, number, count=1):
    """Return the events up to one of a kind, the `count`-th of a round."""
    places = [i for i, event in enumerate(events) if (event.kind, event.round) == (kind, number)]
    return events[: places[count - 1] + 1]


def written(path, settings, events):
    with StudyJournal(path) as journal:
        journal.begin(settings)
        journal.write(events)
    return path


def shown(tmp_path, settings, events):
    watched = WatchedRun(written(tmp_path / f"{len(events)}.db", settings, events))
    watched.look()
    return "\n".join(watched.lines(NOW))


def test_agents_that_do_not_answer_are_silent_and_agents_that_are_not_there_have_left(tmp_path):
    faults = {2: Fault("silent", [1, 2]), 3: Fault("down", range(2, 4))}
    settings, events = recorded(tmp_path, agents(4, faults=faults))
    text = shown(tmp_path, settings, up_to(events, "reply", 1, count=2))
    assert "round 1: 2 of 4 agents answered" in text
    assert "4, 4 present, 0 silent, 0 left" in text
    assert "no round has ended yet" in text
    text = shown(tmp_path, settings, up_to(events, "round", 2))
    assert "4, 2 present, 1 silent, 1 left or resting" in text
    assert "silent     2 (2 unanswered)" in text
    grid = ClockedGrid(agents(3, faults={0: Fault("silent", EVER)}), constant(0.01), 1)
    settings, events = recorded(tmp_path / "async", grid, mode="async")  # others overtake it
    assert "0 (2 unanswered)" in shown(tmp_path / "async", settings, up_to(events, "round", 3))


def test_numbers_are_those_of_the_server_and_values_that_were_not_disclosed_are_not_made_up(tmp_path):
    settings, events = recorded(tmp_path, agents(3, faults={0: Fault("raising", [2])}))
    text = shown(tmp_path, settings, up_to(events, "round", 2))
    assert "2 of 4 done  [############.............]" in text
    assert "best         0." in text
    assert "5 done, 0 failed" in text
    assert "5 valid, 1 lost, 0 refused" in text
    assert "s (the last: " in text
    assert "expected at 12:00:0" in text
    settings, events = recorded(tmp_path / "hidden", agents(2, disclose="none"))
    text = shown(tmp_path / "hidden", settings, up_to(events, "round", 2))
    assert "not disclosed; each device has its own: fbo-flower best JOURNAL" in text
    settings, events = recorded(tmp_path / "failing", agents(2, lambda config, context: 1 / 0))
    text = shown(tmp_path / "failing", settings, up_to(events, "round", 1))
    assert "no evaluation has succeeded yet" in text
    assert "failing    0 (1 failed), 1 (1 failed)" in text
    settings, events = recorded(tmp_path / "clock", ClockedGrid(agents(2), constant(4.0), 1), num_trials=5)
    text = shown(tmp_path / "clock", settings, up_to(events, "round", 3))
    assert "3 done, for 5 evaluations of each agent" in text
    assert "4 s of a simulated clock (the last: 4 s)" in text
    assert "expected" not in text, "such a clock promises no end"


@pytest.mark.parametrize(
    ("aims", "reason"),
    [
        (
            {"objectives": {"a": "max", "b": "max"}},
            "none, because there are several objectives; fbo-flower best",
        ),
        ({"objectives": {"a": "max"}, "limits": {"b": "<= -1"}}, "none: no trial holds the limits yet"),
    ],
)
def test_where_there_is_no_best_value_the_reason_is_said(aims, reason, tmp_path, capsys):
    outputs, space = lambda config, data: {"a": 1.0, "b": 0.0}, SearchSpace({"x": Float(0, 1)})
    simulate(outputs, space, 2, "random", 2, engine="inline", keep=Keep(journals=tmp_path), **aims)
    assert run(["watch", str(tmp_path), "--once"]) == 0
    assert f"  best         {reason}" in capsys.readouterr().out


def test_ten_thousand_agents_take_no_more_lines_than_ten_and_names_cannot_control_the_terminal():
    names = {str(number) for number in range(5, 10_000)} | {"\x1b[2J" + "x" * 500}
    text = "\n".join(
        RunState(
            agents=names, present=names, heard=4, asked=9999, open_round=1,
            silent=Counter(names - {"7", "8"}),
            failed=Counter({name: 2 for name in names if len(name) > 4 or name < "1002"}),
        ).lines("running", NOW)
    )  # fmt: skip
    assert len(text.splitlines()) <= 12
    assert "9,996, 2 present, 9,994 silent" in text
    assert "5 (1 unanswered), 6 (1 unanswered), 9 (1 unanswered) and 9,991 more" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 120


def test_a_running_simulation_is_watched_and_ends_as_its_study(tmp_path, capsys):
    seen = []

    def on_round(progress):
        capsys.readouterr()
        assert run(["watch", str(tmp_path), "--once"]) == 0
        seen.append(capsys.readouterr().out)

    keep = Keep(journals=tmp_path)
    study = simulate("gp-samples", None, 3, "random", 4, engine="inline", keep=keep, callbacks=[on_round])
    for number, (text, best) in enumerate(zip(seen, study.rounds["best"], strict=True), 1):
        assert f"random: running (process {os.getpid()}), last write " in text
        assert f"{number} of 4 done" in text
        assert f"best         {best:.6g}, mean" in text
    assert run(["watch", str(tmp_path / "study.db")]) == 0, "it ends by itself"
    out = capsys.readouterr().out
    assert "random: ended" in out
    assert "\x1b" not in out
    assert f"{len(study.trials)} done, 0 failed" in out


@pytest.mark.usefixtures("unpictured")
def test_a_directory_of_results_is_shown_and_several_algorithms_in_their_order(tmp_path, capsys):
    command = "simulate --problem gp-samples --agents 2 --rounds 2 --engine inline -q --overwrite"
    both = ["--algorithm", "random", "--compare", "ts"]
    said = "2 of 2 algorithms ended: random, ts\nrandom: ended after 2 rounds, best "
    for more, words, shown in ((["--journal"], [], said), ([], ["--once"], "random: finished")):
        assert run([*command.split(), *both, *more, "--out", str(tmp_path)]) == 0
        assert run(["watch", str(tmp_path), *words]) == 0
        assert shown in capsys.readouterr().out


def test_a_server_that_died_is_not_running(tmp_path):
    settings, events = recorded(tmp_path / "whole", agents(2))
    written(tmp_path / "study.db", settings, up_to(events, "round", 1))
    watched = WatchedRun(tmp_path)
    watched.look()
    assert "expected at 12:00:0" in "\n".join(watched.lines(NOW))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / "study.db.lock").write_text(f"process {child}")
    text = "\n".join(watched.lines(NOW))
    assert f"process {child} has ended without finishing" in text
    assert "expected at" not in text, "it does not go on by itself"
    assert watched.may_change, "it may be resumed"
