"""Asynchronous studies: nobody waits for anybody, and the same durations give the same trials."""

import pytest
from federation import EVER, Recording, agents
from grouped import grouped

from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Async, simulate
from fbo_flower.simulation.durations import constant, log_normal, slower
from fbo_flower.simulation.grids import ClockedGrid, Fault
from fbo_flower.strategies import FTS, STRATEGIES, RandomSearch, exchange

NUM_AGENTS, ROUNDS = 4, 6
SMALL = {"num_candidates": 32, "num_path_features": 16}


def columns(study):
    trials, times = study.trials, study.times
    return [
        *(trials[c].tolist() for c in ("agent", "round", "trial", "value")),
        *(times[c].tolist() for c in ("agent", "trial", "started", "ended")),
    ]


def run(durations, num_rounds=ROUNDS, mode="async", algorithm="random", problem="double-sine", **given):
    given = {
        "engine": "inline",
        "agents": NUM_AGENTS,
        "algorithm": algorithm,
        "num_rounds": num_rounds,
    } | given
    return simulate(problem, seed=2, **grouped(mode=mode, durations=durations, **given))


def search(num_agents=NUM_AGENTS, kind=RandomSearch, **settings):
    return kind(**{"num_agents": num_agents, "seed": 1, "num_initial": 1, **settings})


def spans(study, agent):
    times = study.times.where(agent=agent)
    return list(zip(times["started"], times["ended"], strict=True))


def made(study):
    return [len(study.trials.where(agent=str(a))) for a in range(NUM_AGENTS)]


def test_with_equal_durations_it_is_the_synchronous_study_up_to_the_servers_draws():
    """At the server, `ts` draws nothing, so its trials are the same."""
    sync, asynchronous = (run(constant(1.0), 3, mode, "ts", options=SMALL) for mode in ("sync", "async"))
    assert columns(sync) == columns(asynchronous)


@pytest.mark.ray
def test_a_study_repeats_exactly_whatever_the_engine(ray_cluster):
    inline, ray = (
        run(log_normal(), algorithm="fed-ei", engine=engine, options={"secure_sums": 0})
        for engine in ("inline", "ray")
    )
    assert columns(inline) == columns(ray)
    for agent in map(str, range(NUM_AGENTS)):
        mine = inline.trials.where(agent=agent)["trial"].tolist()
        assert sorted(mine) == list(range(len(mine)))


def test_messages_are_used_at_once():
    """An agent that answers after another one of the same round is advised by that one's message."""
    recording = agents(2, grid=Recording)
    grid = ClockedGrid(recording, slower(constant(1.0), {"1": 1.5}), 1)
    search(2, FTS, num_features=8, schedule=0.5).start(grid, num_rounds=3, mode="async")
    tasks = [message.content for message in recording.sent if message.content["config"].get("agent") == "1"]
    assert {"weights", "messages", "frequencies"} & set(tasks[1]["arrays"])


def without_trial(content):
    content["config"].pop("trial", None)
    return content


@pytest.mark.parametrize(
    ("kind", "column"), [("silent", ""), ("raising", "failures"), ("malformed", "refused")]
)
def test_an_agent_at_fault_costs_its_own_trials_only(kind, column):
    grid = agents(NUM_AGENTS, faults={2: Fault(kind, rounds=EVER, change=without_trial)})
    study = search(round_timeout=1e6).start(grid, num_rounds=12, mode="async").study
    *others, last = [made(study)[a] for a in (0, 1, 3, 2)]
    assert last == 0
    assert min(others) >= 12 - 1
    assert max(others) <= 17
    if column:
        assert study.rounds[column].tolist() == [1] * 12  # one task per round, then it waits
    else:  # three replies come at once: what a window has too many counts for the next one
        assert study.rounds["replies"].sum() in range(48, 51), "12 windows of 4, and at most 2 beyond"


def test_racing_waits_in_its_first_stage_only_and_makes_the_same_trials():
    """Stage 1 compares means over agents, so its batches need all of them; later pulls are an agent's own."""
    options = {"variant": "racing", "budget": 60, "max_evaluations_per_round": 5}
    durations = {str(i): 1.0 + i for i in range(3)}
    sync, free = (
        run(durations, None, mode, "pf-pne", "garland", agents=3, options=options)
        for mode in ("sync", "async")
    )
    for agent in durations:
        one, two = (study.trials.where(agent=agent) for study in (sync, free))
        ordered = [sorted(zip(t["trial"].tolist(), t["value"].tolist(), strict=True)) for t in (one, two)]
        assert ordered[0] == ordered[1]
        assert sum(one["pulls"].tolist()) == 60
    ends = [study.times.where(agent="0")["ended"].max() for study in (sync, free)]
    assert ends[1] < 0.8 * ends[0], "the fast agent does not wait in stage 2"
    assert free.times["ended"].max() <= sync.times["ended"].max()


def test_modes_and_shares_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="answers of all agents"):
        STRATEGIES["pf-pne"](num_agents=2).start(agents(2), num_rounds=3, mode="async")
    with pytest.raises(ConfigError, match="expected the mode 'async'"):
        search().start(None, num_rounds=3, max_staleness=1)
    with pytest.raises(ConfigError, match="max_staleness: expected an integer >= 0"):
        Async(max_staleness=-1)


def test_an_exchange_takes_its_time_on_the_clock():
    def at(mode, **options):
        options = {"num_initial": 1, **options}
        return run({"0": 1.0, "1": 4.0}, 4, mode, "ts", agents=2, exchange_seconds=3.0, options=options)

    sync = at("sync")
    assert sync.rounds["seconds"].tolist() == [7.0] * 4
    assert spans(sync, "0") == [(1.5 + 7.0 * r, 2.5 + 7.0 * r) for r in range(4)]
    assert spans(at("async"), "0")[:3] == [(1.5, 2.5), (5.5, 6.5), (9.5, 10.5)]
    # an agent that makes five trials per exchange waits once in five trials
    assert spans(at("async", trials_per_round=5), "0")[1:6] == [(5.5 + i, 6.5 + i) for i in range(5)]


@pytest.mark.parametrize(("algorithm", "options"), [("random", {}), ("fts", {"num_features": 16, **SMALL})])
def test_what_an_old_answer_holds_for_others_is_dropped_and_its_trials_stay(algorithm, options):
    def at(limit):
        durations = {"0": 1.0, "1": 1.0, "2": 1.0, "3": 5.5}
        return run(
            durations, 9, algorithm=algorithm, max_staleness=limit, options={"num_initial": 1, **options}
        )

    study = at(1)
    assert study.run(algorithm)["max_staleness"] == 1
    replies = study.replies
    assert (replies["used"] == (replies["windows_old"] <= 1)).all()
    old = replies.where(agent="3")
    assert not old["used"].all(), "windows last two seconds"
    assert replies.take(replies["agent"] != "3")["used"].all()
    assert made(study)[3] == len(old) > 1
    if algorithm == "random":
        assert columns(at(100)) == columns(at(None))


def test_the_age_of_an_answer_is_counted_in_windows_and_in_answers():
    study = run({"0": 1.0, "1": 4.5}, 5, agents=2, options={"num_initial": 1})
    mine = study.replies.where(agent="1")
    # windows of two answers: 0 answers at 1, 2, 3, 4 and 1 at 4.5, in the third window
    assert (mine["round"][0], mine["windows_old"][0], mine["answers_old"][0]) == (3, 2, 4)
    assert set(study.replies.where(agent="0")["answers_old"].tolist()) == {0, 1}


def test_a_silent_agent_is_given_up_in_simulated_time():
    alone = ClockedGrid(agents(1, faults={0: Fault("silent", rounds=[1])}), constant(1.0), 1)
    study = search(1, round_timeout=5.0).start(alone, num_rounds=3, mode="async").study
    # the task is sent again, and was done meanwhile
    assert study.rounds["seconds"].tolist() == [5.0, 0.0, 1.0]


@pytest.mark.parametrize("clocked", [True, False])
def test_only_the_deadlines_of_a_simulated_clock_go_on_at_a_resume(clocked, monkeypatch):
    """A host that has been up for longer than a round may last gives up no task under way."""
    times, send = [], exchange.UnderWay.send
    monkeypatch.setattr(
        exchange.UnderWay, "send", lambda self, sent: times.append(dict(sent.sent_before)) or send(self, sent)
    )
    grid = ClockedGrid(agents(2), constant(1.0), 1) if clocked else agents(2)
    search(2).start(grid, num_rounds=2, mode="async")
    assert any(times) == clocked
