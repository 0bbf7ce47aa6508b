"""Agents that fail in every way there is, come and go: the run goes on, nothing is lost or done twice."""

import numpy as np
import pytest
from federation import agents, hill
from hostile import mutate
from waiting import LATE

from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import FTS, STRATEGIES, RandomSearch, ThompsonSampling

NUM_AGENTS, NUM_ROUNDS = 4, 7
SMALL = {"num_candidates": 32, "num_path_features": 16}
MODEL = {"num_features": 24, **SMALL}
KINDS = {
    "random": (RandomSearch, {}),
    "ts": (ThompsonSampling, SMALL),
    "fts-random": (FTS, {"advice": "random", "schedule": 0.5, **SMALL}),
}
FEDERATED = {
    "portfolio": {"advice": "portfolio", "schedule": 0.3},
    "mixture": {"advice": "mixture", "communication": "once"},
    "federated": {"lengthscale": "federated", "schedule": 0.3},
}


def run(strategy=RandomSearch, faults=None, num_rounds=NUM_ROUNDS, num_agents=NUM_AGENTS, **options):
    """Return the study, and which agent was called for which trial, in order."""
    calls = []

    def objective(config, context):
        calls.append((context.agent, context.trial))
        return hill(config, context) + 0.1 * context.rng.standard_normal()

    made = strategy(**{"num_agents": num_agents, "seed": 3, "round_timeout": 0.15, **options})
    study = made.start(agents(NUM_AGENTS, objective, seed=3, faults=faults), num_rounds=num_rounds).study
    assert len(set(calls)) == len(calls), "no trial is evaluated twice"
    return study, calls


def trials_of(study, agent):
    rows = study.trials.where(agent=agent)
    return list(zip(rows["trial"].tolist(), rows["config"], rows["value"].tolist(), strict=True))


def rounds_of(study, agent):
    rows = study.trials.where(agent=agent)
    return dict(sorted(zip(rows["trial"].tolist(), rows["round"].tolist(), strict=True)))


def entry(name, value):
    return lambda content: content["config"].update({name: value}) or content


def empty(content):
    return type(content)()


# in rounds 3 and 4: kind -> (fault, whether the work was done, column of the rounds table that counts it)
FAULTS = {
    "down": (Fault("down", rounds=[3, 4]), False, None),
    "silent": (Fault("silent", rounds=[3, 4]), False, "failures"),
    "raising": (Fault("raising", rounds=[3, 4]), False, "failures"),
    "slow": (Fault("slow", rounds=[3, 4], seconds=LATE), True, "failures"),
    "malformed": (Fault("malformed", rounds=[3, 4], change=entry("trial", 99)), True, "refused"),
    "malformed names": (Fault("malformed", rounds=[3, 4], change=entry("names", "a,b,c")), True, "refused"),
    "empty": (Fault("malformed", rounds=[3, 4], change=empty), True, "refused"),
}


@pytest.fixture(scope="module")
def undisturbed():
    return {name: run(strategy, **options)[0] for name, (strategy, options) in KINDS.items()}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", KINDS)
def test_a_fault_costs_its_agent_two_rounds_and_nobody_else_anything(name, kind, undisturbed):
    fault, done, column = FAULTS[kind]
    strategy, options = KINDS[name]
    study, calls = run(strategy, {1: fault}, **options)
    whole = undisturbed[name]
    for agent in ("0", "2", "3"):
        assert trials_of(study, agent) == trials_of(whole, agent)
        assert rounds_of(study, agent) == rounds_of(whole, agent)
    # the agent's own trials are the same ones, two rounds late
    mine = trials_of(study, "1")
    if name != "fts-random":  # there, the coin belongs to the round
        assert mine == trials_of(whole, "1")[:NUM_ROUNDS]
    assert [t for agent, t in calls if agent == "1"] == [t for t, _, _ in mine] == list(range(NUM_ROUNDS))
    if done:  # trial 4 was evaluated in round 3, and its reply accepted in round 5
        assert calls.index(("1", 4)) < calls.index(("0", 5))
        assert rounds_of(study, "1")[4] == 5
    # the rounds table says so
    expected = [0, 0, 1, 1, 0, 0, 0]
    for other in ("failures", "refused"):
        assert study.rounds[other].tolist() == (expected if other == column else [0] * NUM_ROUNDS)
    tasks = [4, 4, 3, 3, 4, 4, 4] if kind == "down" else [4] * NUM_ROUNDS
    assert study.rounds["tasks"].tolist() == tasks
    assert study.rounds["replies"].tolist() == [4 - e for e in expected]


@pytest.mark.parametrize("options", FEDERATED.values(), ids=FEDERATED)
@pytest.mark.parametrize("kind", ["down", "slow", "empty"])
def test_federated_runs_finish_whatever_one_agent_does(options, kind):
    study, again = (run(FTS, {1: FAULTS[kind][0]}, **MODEL, **options)[0] for _ in range(2))
    for agent, expected in (("0", NUM_ROUNDS + 2), ("1", NUM_ROUNDS), ("3", NUM_ROUNDS + 2)):
        assert [t for t, _, _ in trials_of(study, agent)] == list(range(expected))
    assert again.trials == study.trials, "faults or not: the same seed, the same run"


def test_fault_in_the_first_round_delays_the_initial_design():
    study, calls = run(ThompsonSampling, {1: Fault("malformed", rounds=[1], change=empty)}, **SMALL)
    assert list(rounds_of(study, "1").values()) == [2, 2, 2, 3, 4, 5, 6, 7]
    assert calls.count(("1", 0)) == 1


def down(*names, rounds):
    return {name: Fault("down", rounds=rounds) for name in names}


@pytest.mark.parametrize(
    ("faults", "tasks", "trials"),
    [
        ({1: Fault("down")}, [3] * 7, [9, 0, 9, 9]),
        (down(1, rounds=range(4, 99)), [4, 4, 4, 3, 3, 3, 3], [9, 5, 9, 9]),
        (down(1, rounds=range(4)), [3, 3, 3, 4, 4, 4, 4], [9, 6, 9, 9]),
        (down(1, 2, 3, rounds=[3, 4]), [4, 4, 1, 1, 4, 4, 4], [9, 7, 7, 7]),
        (down(0, 1, 2, 3, rounds=range(3, 99)), [4, 4, 0, 0, 0, 0, 0], [4, 4, 4, 4]),
    ],
    ids=["never there", "gone for good", "late", "a pause", "nobody is left"],
)
def test_agents_that_are_away_get_no_tasks_and_begin_or_go_on_where_they_were(faults, tasks, trials):
    num_agents = NUM_AGENTS - (1 in faults and tasks[0] == 3)
    study, _ = run(faults=faults, num_agents=num_agents)
    assert study.rounds["tasks"].tolist() == tasks
    made = [[t for t, _, _ in trials_of(study, str(a))] for a in range(NUM_AGENTS)]
    assert made == [list(range(count)) for count in trials]


def test_run_without_a_single_answer_ends_as_failed():
    def never(config, context):
        raise AssertionError("nothing is evaluated")

    faults = {i: Fault("raising", rounds=range(1, 99)) for i in range(NUM_AGENTS)}
    strategy = FTS(num_agents=NUM_AGENTS, seed=3, num_features=24)
    with pytest.raises(ObjectiveError, match=r"a valid reply to one of 28 tasks, got none \(error:28"):
        strategy.start(agents(NUM_AGENTS, never, faults=faults), num_rounds=NUM_ROUNDS)
    study = strategy.study
    assert study.settings["runs"][0]["status"] == "failed"
    assert len(study.trials) == 0
    assert study.rounds["failures"].tolist() == [4] * NUM_ROUNDS
    assert np.isnan(study.rounds["best"]).all()


@pytest.mark.parametrize("seed", range(2))
def test_agent_that_answers_nonsense_of_every_kind_disturbs_nobody(seed, undisturbed):
    rng = np.random.default_rng(seed)

    def change(content):
        for _ in range(rng.integers(1, 4)):
            content = mutate(content, rng)
        return content

    study, _ = run(faults={1: Fault("malformed", rounds=range(1, 99), change=change)}, num_rounds=60)
    refused, replies = int(study.rounds["refused"].sum()), int(study.rounds["replies"].sum())
    assert refused > 20
    assert refused + replies == 4 * 60
    assert study.rounds["failures"].sum() <= 60
    for agent in ("0", "2", "3"):
        assert trials_of(study, agent)[:9] == trials_of(undisturbed["random"], agent)
        assert len(trials_of(study, agent)) == 62
    mine = [t for t, _, _ in trials_of(study, "1")]
    assert len(set(mine)) == len(mine), "nothing is written down twice"


def test_fuzzed_messages_of_every_agent_do_not_stop_fts():
    rng = np.random.default_rng(9)
    fault = Fault(
        "malformed", rounds=range(1, 99), change=lambda c: mutate(c, rng) if rng.random() < 0.5 else c
    )
    study, _ = run(FTS, dict.fromkeys(range(NUM_AGENTS), fault), 12, schedule=0.3, **MODEL)
    assert study.rounds["refused"].sum() > 10
    assert study.rounds["replies"].sum() > 10


def test_failed_trials_are_counted_apart_from_failed_agents():
    def sometimes(config, context):
        if context.trial == 3:
            raise ValueError("no luck")
        return 0.5

    study = RandomSearch(num_agents=2, seed=1).start(agents(2, sometimes), num_rounds=3).study
    counts = {name: study.rounds[name].tolist() for name in ("failed_trials", "replies", "failures")}
    assert counts == {"failed_trials": [0, 2, 0], "replies": [2, 2, 2], "failures": [0, 0, 0]}
    failed = study.trials.take(study.trials["trial"] == 3)
    assert failed["failure"].tolist() == ["ValueError: no luck"] * 2
    assert np.isnan(failed["value"]).all()


# -- nodes that join and leave at any time -----------------------------------------------------


class ComeAndGo(InProcessGrid):
    """A grid whose nodes are connected only between two counts of messages."""

    spans = ((0, 10**9), (0, 12), (9, 10**9), (14, 24), (0, 10**9))
    pushed = 0

    def get_node_ids(self):
        spans = zip(super().get_node_ids(), self.spans, strict=True)
        return [n for n, (first, end) in spans if first <= self.pushed < end]

    def push_messages(self, messages):
        listed = list(messages)
        self.pushed += len(listed)
        return super().push_messages(listed)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("algorithm", "options"), [("random", {}), ("fts", {"num_features": 16}), ("fed-ei", {"secure_sums": 0})]
)
def test_agents_join_and_leave_at_any_time(algorithm, options, mode):
    strategy = STRATEGIES[algorithm](num_agents=3, seed=1, round_timeout=5.0, **options)
    study = strategy.start(agents(5, grid=ComeAndGo), num_rounds=10, mode=mode).study
    assert len(study.rounds) == 10
    made = [study.trials.where(agent=str(a))["trial"].tolist() for a in range(5)]
    assert all(sorted(trials) == list(range(len(trials))) for trials in made)
    counts = [len(trials) for trials in made]
    # fed-ei begins with two trials and an exchange without one, the others with three trials
    all_rounds = 10 if algorithm == "fed-ei" else 12
    assert counts[0] == counts[4] == all_rounds if mode == "sync" else counts[0] >= 10
    assert 3 <= counts[1] < counts[0]
    assert counts[2] >= 3
    assert 0 < counts[3] < counts[0]


def test_in_async_mode_an_agent_that_returns_goes_on_where_it_was():
    strategy = ThompsonSampling(num_agents=3, seed=1, round_timeout=5.0)
    grid = agents(3, faults=down(2, rounds=[3, 4, 5]))
    mine = strategy.start(grid, num_rounds=9, mode="async").study.trials.where(agent="2")
    assert mine["trial"].tolist() == list(range(len(mine)))
    assert max(mine["round"]) >= 8
    assert not {4, 5} & set(mine["round"].tolist())


def test_an_asynchronous_study_goes_on_while_nobody_is_there():
    strategy = RandomSearch(num_agents=2, seed=1, round_timeout=1.0)
    study = strategy.start(agents(2, faults=down(0, 1, rounds=[3])), num_rounds=3, mode="async").study
    assert len(study.rounds) == 3
