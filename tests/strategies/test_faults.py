"""Agents that fail in every way there is, come and go: the run goes on, nothing is lost or done twice."""

import pytest
from federation import EVER, agents, hill
from waiting import LATE

from fbo_flower.algorithms.bandits.base import MAX_MISSED, Attendance
from fbo_flower.algorithms.protocol import Progress
from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import FTS, STRATEGIES, RandomSearch, ThompsonSampling
from fbo_flower.strategies.node_report import Registration
from fbo_flower.strategies.registration import Agent, AgentRegistry

NUM_AGENTS, NUM_ROUNDS = 4, 7
SMALL = {"num_candidates": 32, "num_path_features": 16}


def run(strategy=RandomSearch, faults=None, num_rounds=NUM_ROUNDS, count=NUM_AGENTS, **options):
    """Return the study, and which agent was called for which trial, in order."""
    calls = []

    def objective(config, context):
        calls.append((context.agent, context.trial))
        return hill(config, context) + 0.1 * context.rng.standard_normal()

    made = strategy(**{"num_agents": count, "seed": 3, "round_timeout": 0.1, **options})
    study = made.start(agents(count, objective, seed=3, faults=faults), num_rounds=num_rounds).study
    assert len(set(calls)) == len(calls), "no trial is evaluated twice"
    return study, calls


def trials_of(study, agent):
    rows = study.trials.where(agent=str(agent))
    return list(zip(rows["trial"].tolist(), rows["config"], rows["value"].tolist(), strict=True))


def rounds_of(study, agent):
    rows = study.trials.where(agent=str(agent))
    return dict(sorted(zip(rows["trial"].tolist(), rows["round"].tolist(), strict=True)))


def numbers_of(study, count=NUM_AGENTS):
    return [[trial for trial, _, _ in trials_of(study, agent)] for agent in range(count)]


def entry(name, value):
    return lambda content: content["config"].update({name: value}) or content


def faults_in(rounds):
    """Return one fault of each kind; an agent with one of the last four has done its work."""
    return [
        Fault("down", rounds),
        Fault("silent", rounds),
        Fault("raising", rounds),
        Fault("slow", rounds, seconds=LATE),
        Fault("malformed", rounds, change=entry("trial", 99)),
        Fault("malformed", rounds, change=entry("names", "a,b,c")),
        Fault("malformed", rounds, change=lambda content: type(content)()),
    ]


@pytest.mark.parametrize(
    ("strategy", "options"),
    [(ThompsonSampling, SMALL), (FTS, {"advice": "random", "schedule": 0.5, **SMALL})],
    ids=["ts", "fts"],
)
def test_a_fault_costs_its_agent_two_rounds_and_nobody_else_anything(strategy, options):
    whole, _ = run(strategy, count=8, **options)
    study, calls = run(strategy, dict(enumerate(faults_in([3, 4]), start=1)), count=8, **options)
    assert trials_of(study, 0) == trials_of(whole, 0)
    assert rounds_of(study, 0) == rounds_of(whole, 0)
    for agent in range(1, 8):  # its own trials are the same ones, two rounds late
        mine = trials_of(study, agent)
        if strategy is not FTS:  # there, the coin belongs to the round
            assert mine == trials_of(whole, agent)[:NUM_ROUNDS]
        done = [t for name, t in calls if name == str(agent)]
        assert done == [t for t, _, _ in mine] == list(range(NUM_ROUNDS))
        assert rounds_of(study, agent)[4] == 5
        if agent >= 4:  # trial 4 was evaluated in round 3, and its reply accepted in round 5
            assert calls.index((str(agent), 4)) < calls.index(("0", 5))
    rounds = study.rounds
    assert rounds["tasks"].tolist() == [8, 8, 7, 7, 8, 8, 8]
    assert rounds["failures"].tolist() == rounds["refused"].tolist() == [0, 0, 3, 3, 0, 0, 0]
    assert rounds["replies"].tolist() == [8, 8, 1, 1, 8, 8, 8]


@pytest.mark.parametrize(
    ("away", "tasks", "trials"),
    [
        ({1: None, 2: range(4, 99), 3: range(4)}, [2, 2, 2, 2, 2, 2, 2], [9, 0, 5, 6]),
        ({1: [3, 4], 2: [3, 4], 3: [3, 4]}, [4, 4, 1, 1, 4, 4, 4], [9, 7, 7, 7]),
        (dict.fromkeys(range(4), range(3, 99)), [4, 4, 0, 0, 0, 0, 0], [4, 4, 4, 4]),
    ],
    ids=["never there, gone for good and late", "a pause", "nobody is left"],
)
def test_agents_that_are_away_get_no_tasks_and_begin_or_go_on_where_they_were(away, tasks, trials):
    faults = {agent: Fault("down", rounds) for agent, rounds in away.items()}
    study, _ = run(faults=faults, num_agents=tasks[0])
    assert study.rounds["tasks"].tolist() == tasks
    assert numbers_of(study) == [list(range(count)) for count in trials]


def test_run_without_a_single_answer_ends_as_failed():
    grid = agents(NUM_AGENTS, faults=dict.fromkeys(range(NUM_AGENTS), Fault("raising", rounds=EVER)))
    strategy = FTS(num_agents=NUM_AGENTS, seed=3, num_features=24, round_timeout=0.02)
    with pytest.raises(ObjectiveError, match=r"a valid reply to one of 12 tasks, got none \(error:12"):
        strategy.start(grid, num_rounds=3)
    assert strategy.study.settings["runs"][0]["status"] == "failed"
    assert strategy.study.rounds["failures"].tolist() == [4] * 3


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


@pytest.mark.parametrize(
    ("algorithm", "options", "mode"),
    [("fts", {"num_features": 16, **SMALL}, "async"), ("fed-ei", {"secure_sums": 0}, "sync")],
)
def test_agents_join_and_leave_at_any_time(algorithm, options, mode):
    strategy = STRATEGIES[algorithm](num_agents=3, seed=1, round_timeout=5.0, **options)
    study = strategy.start(agents(5, grid=ComeAndGo), num_rounds=10, mode=mode).study
    assert len(study.rounds) == 10
    made = numbers_of(study, 5)
    assert [sorted(trials) for trials in made] == [list(range(len(trials))) for trials in made]
    counts = [len(trials) for trials in made]
    assert counts[0] == counts[4] == 10 if mode == "sync" else counts[0] >= 10
    assert 3 <= counts[1] < counts[0]
    assert counts[2] >= 3
    assert 0 < counts[3] < counts[0]


def test_an_asynchronous_study_goes_on_while_nobody_is_there():
    strategy = RandomSearch(num_agents=2, seed=1, round_timeout=1.0)
    grid = agents(2, faults=dict.fromkeys(range(2), Fault("down", [3])))
    assert len(strategy.start(grid, num_rounds=3, mode="async").study.rounds) == 3


BUDGET = 120
BANDITS = {
    "pf-pne secure": {"secure_sums": 2},
    "pf-pne racing": {"variant": "racing"},
    "fed-pne": {},
    "fed1-ucb": {"noise_stddev": 0.05},
    "fn-ucb": {"budget": 12},
}


def noisy(config, context):
    return hill(config, context) + 0.01 * context.rng.standard_normal()


def spent(name, faults, num_rounds=None, **options):
    """Run a bandit; return the study, each agent's number of pulls, and its budget."""
    settings = {"budget": BUDGET, **BANDITS[name], **options}
    strategy = STRATEGIES[name.split()[0]](num_agents=NUM_AGENTS, seed=3, round_timeout=0.02, **settings)
    study = strategy.start(agents(NUM_AGENTS, noisy, seed=3, faults=faults), num_rounds=num_rounds).study
    made = [int(study.trials.where(agent=str(m))["pulls"].sum()) for m in range(NUM_AGENTS)]
    return study, made, settings["budget"]


@pytest.mark.parametrize("name", ["fed-pne", "fed1-ucb"])
def test_agents_silent_for_ever_cost_the_others_nothing(name):
    study, made, budget = spent(name, {1: Fault("silent", EVER), 3: Fault("silent", EVER[2:])})
    assert made[0] == made[2] == budget
    assert len(study.rounds) <= 60


@pytest.mark.parametrize("name", BANDITS)
def test_agents_that_answer_again_are_readmitted(name):
    """A late report of an earlier stage counts trials, and the result of the stage follows it."""
    options = {} if name == "fn-ucb" else {"max_evaluations_per_round": 10}
    slow, silent = Fault("slow", range(2, 8), seconds=LATE), Fault("silent", range(1, 8))
    faults = {1: Fault("raising", [1]), 2: slow, 3: silent}
    study, made, budget = spent(name, faults, 90, **options)
    lost = 2 if name == "pf-pne secure" else 0  # trials of a lost report are not disclosed a second time
    assert made[:2] == [budget, budget]
    assert made[3] == budget
    assert budget - lost <= made[2] <= budget
    assert study.rounds["refused"].sum() == 0


def test_a_silent_agent_is_asked_less_and_less_often_and_at_once_after_it_answered():
    registry, found = AgentRegistry(None, agents={name: Agent(Registration()) for name in "ab"}), []
    for server_round in range(1, 41):
        due = registry.due(["a", "b"], server_round)
        assert due[-1] == "b", "others are asked meanwhile"
        if "a" in due:
            found.append(server_round)
            for _ in range(2):  # two half-rounds of a round count once
                registry.agents["a"].note_silence(server_round, silent=server_round != 5)
    assert found == [1, 2, 3, 5, 6, 7, 8, 10, 14, 22, 30, 38]


def test_a_run_is_over_when_the_agents_that_answer_have_spent_their_budgets():
    gone = Attendance(("b",), {"b": MAX_MISSED - 1}).tell("")
    spent_by_a = Progress({"a": 10, "b": 4})
    assert gone.is_over("ab", spent_by_a, 10)
    assert not gone.is_over("ab", Progress({"a": 9, "b": 4}), 10), "an agent that answers is not finished"
    assert not gone.ask("b").tell("b").is_over("ab", spent_by_a, 10), "the agent is back"
    everybody = Attendance(("a", "b"), {"a": MAX_MISSED, "b": MAX_MISSED}).tell("")
    assert not everybody.is_over("ab", Progress({"a": 9, "b": 4}), 10), "the network may be down"
