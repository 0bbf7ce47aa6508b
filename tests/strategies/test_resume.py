"""A server that is killed at a write of its journal goes on where it was, and comes to the same trials.

In this process the death is an exception; `make kill` kills processes at every write.
"""

from dataclasses import replace

import pytest

from fbo_flower.cli.main import run as command
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.simulation.agents import problem_app
from fbo_flower.simulation.durations import log_normal
from fbo_flower.simulation.grids import ClockedGrid, Fault, InProcessGrid
from fbo_flower.simulation.problems import make_problem
from fbo_flower.storage import StudyJournal
from fbo_flower.strategies import STRATEGIES
from fbo_flower.strategies.start_and_end import study_of_journal

NUM_AGENTS = 3
FTS = {"num_features": 20, "num_candidates": 32, "num_path_features": 16}
DP = {"num_features": 6, "sampling_rate": 0.6, "schedule": 0.3}
EI = {"num_candidates": 32}
POOL = {**EI, "secure_sums": 0}
CO_KG = {"num_initial": 3, "num_points": 16}
# the problem, options of the algorithm, and the number of rounds
CASES = {
    "random": ("gp-samples", {}, 3),
    "fts": ("gp-samples", FTS, 4),
    "fts with faults": ("gp-samples", FTS, 4),
    "dp-fts": ("gp-samples", DP, 4),
    "dp-fts in threes": ("gp-samples", {**DP, "trials_per_round": 3}, 3),
    "dp-fts secure": ("gp-samples", {**DP, "sampling_rate": 1.0, "secure_sums": 2}, 4),
    "pf-pne": ("garland", {"budget": 120, "max_evaluations_per_round": 50}, None),
    "pf-pne racing async": (
        "garland", {"variant": "racing", "budget": 40, "max_evaluations_per_round": 10}, None,
    ),
    "fed-pne": ("garland", {"budget": 12, "secure_sums": 2}, None),
    "co-kg auto async": ("f1", {**CO_KG, "central": "auto", "refit": 2, "refine_every": 1}, 4),
    "rfms": ("breast-cancer-5sites", {"method": "rand_mo", "num_trials": 3, "num_initial": 3}, None),
    "fed-ei secure": ("himmelblau", EI, 4),
    "fed-ei async in twos": ("himmelblau", {**POOL, "trials_per_round": 2}, 4),
    "fts async": ("gp-samples", FTS, 4),
}  # fmt: skip
SITES = {"learner": "elastic-net", "split": "srs", "openbox": 0, "lockbox": 1}


def spoil(content):
    if "phase" in content["config"]:  # not in a registration
        content["config"]["schema"] = 99
    return content


FAULTS = {0: Fault("raising", [1]), 1: Fault("malformed", [2, 3], change=spoil)}


class Killed(BaseException):
    """Stands for SIGKILL."""


class Federation:
    """Agents that outlive the servers that ask them."""

    def __init__(self, case):
        problem_name, self.options, self.num_rounds = CASES[case]
        self.algorithm = case.split(maxsplit=1)[0]
        self.mode = "async" if "async" in case else "sync"
        self.num_agents = 5 if case == "rfms" else NUM_AGENTS
        problem = make_problem(problem_name, self.num_agents, 1, SITES if case == "rfms" else {})
        self.evaluations = 0

        def objective(config, context):
            self.evaluations += 1
            return problem(config, context)

        if case == "rfms":
            app = problem_app(problem, STRATEGIES[case](**self.options).algorithm, 5)
        else:
            app = client_app(objective, problem.space, seed=5, disclose="trials")
        self.has_faults = "faults" in case
        self.grid = InProcessGrid(app, self.num_agents, faults=FAULTS if self.has_faults else None)

    def start(self, journal=None, resume=False, **settings):
        patience = 0.2 if self.has_faults else 1000.0  # nothing else keeps a reply back
        options = {"seed": 5, "num_agents": self.num_agents, "round_timeout": patience} | settings
        strategy = STRATEGIES[self.algorithm](**options, **self.options)
        self.clock = ClockedGrid(self.grid, log_normal(), 5, exchange_seconds=0.5)
        grid = self.clock if self.mode == "async" else self.grid
        return strategy.start(
            grid, num_rounds=self.num_rounds, journal=journal, resume=resume, mode=self.mode
        ).study

    def start_until(self, number, committed, journal):
        """Start or resume; at the journal's write of that number the server dies, and None returns."""
        write, done = StudyJournal.write, [0]

        def killing(journal, events):
            done[0] += 1
            if done[0] < number or committed:
                write(journal, events)
            if done[0] == number:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StudyJournal, "write", killing)
            try:
                return self.start(journal, resume=True)
            except Killed:
                return None


def counts(study):
    names = ("round", "tasks", "replies", "failures", "refused", "bytes_down", "bytes_up", "best")
    return [tuple(row[name] for name in names) for row in study.rounds]


@pytest.mark.parametrize("case", sorted(CASES.keys() - {"fts", "dp-fts"}))
def test_killed_again_and_again_it_comes_to_the_same_trials_and_its_journal_holds_them(case, tmp_path):
    whole = Federation(case)
    expected = whole.start(tmp_path / "whole.db")
    with StudyJournal(tmp_path / "whole.db") as journal:
        num_events = len(journal)
    federation, study, lives = Federation(case), None, 0
    while study is None:
        number = 3 + num_events // 6 + lives % 2  # the first write of a life is that of its agents
        study = federation.start_until(number, lives % 2 == 0, tmp_path / "killed.db")
        lives += 1
        assert lives < 50
    assert lives > 2
    assert study.trials == expected.trials
    assert counts(study) == counts(expected)
    assert (study.models, study.judgements) == (expected.models, expected.judgements)
    assert federation.evaluations == whole.evaluations, "nothing was evaluated twice"
    if whole.mode == "async":
        assert federation.clock.times == whole.clock.times
        assert study.rounds["seconds"].tolist() == expected.rounds["seconds"].tolist()
    found = study_of_journal(tmp_path / "killed.db")
    assert (found.trials, found.replies) == (study.trials, study.replies)
    assert counts(found) == counts(study)
    one, other = found.settings["runs"][0], study.settings["runs"][0]
    names = ("algorithm", "options", "num_agents", "num_rounds", "status", "space", "study")
    assert [one[name] for name in names] == [other[name] for name in names]


def test_other_settings_are_refused_with_the_differences(tmp_path):
    federation, path = Federation("fts"), tmp_path / "j.db"
    federation.start(path)
    with pytest.raises(JournalError, match=r'seed was "5" and is "6"'):
        federation.start(path, resume=True, seed=6)
    with pytest.raises(ConfigError, match="resume"):
        federation.start(path)
    with pytest.raises(ConfigError, match="journal"):
        federation.start(None, resume=True)
    federation.num_rounds = 2
    with pytest.raises(JournalError, match="num_rounds was 4 and is 2"):
        federation.start(path, resume=True)
    federation.options = {"num_features": 30}
    with pytest.raises(JournalError, match="num_features was"):
        federation.start(path, resume=True)


def test_without_a_seed_a_resumed_study_has_the_noise_that_was_recorded(tmp_path):
    federation = Federation("dp-fts")
    first = federation.start(tmp_path / "j.db", seed=None)
    again = federation.start(tmp_path / "j.db", resume=True, seed=None)
    assert first.trials == again.trials
    assert counts(first) == counts(again)
    with StudyJournal(tmp_path / "j.db") as journal:
        asks = [event for event in journal.events() if event.kind == "ask" and event.arrays]
    assert [set(event.arrays) for event in asks] == [{"sampled"}] + 3 * [{"sampled", "sums"}]
    assert all(event.values["seeded"] is False for event in asks)
    other = Federation("dp-fts").start(tmp_path / "other.db", seed=None)
    assert first.trials != other.trials, "agents have the same seeds, the noise is another"
    assert first.settings["runs"][0]["privacy"]["noise_from"] == "system"


def test_a_dp_fts_journal_without_recorded_draws_is_refused_and_not_drawn_anew(tmp_path):
    federation = Federation("dp-fts")
    federation.start(tmp_path / "new.db")
    with StudyJournal(tmp_path / "new.db") as new, StudyJournal(tmp_path / "old.db") as old:
        old.begin(new.settings or {})
        old.write([replace(e, arrays={}) if e.kind == "ask" else e for e in new.events()])
    with pytest.raises(JournalError, match="written by another version"):
        federation.start(tmp_path / "old.db", resume=True)


def test_an_agent_that_fails_for_want_of_memory_is_asked_again_who_it_is():
    federation = Federation("fts")

    def forget(progress):
        if progress.server_round == 2:
            federation.grid.contexts[1002].state.clear()

    federation.num_rounds = 5
    study = federation.start(callbacks=[forget])
    assert study.rounds["failures"].tolist() == [0, 0, 1, 0, 0]
    assert study.trials["round"][study.trials["agent"] == "1~2"].tolist() == [4, 4, 4, 5]


def test_a_running_study_can_be_read_and_reported(tmp_path, capsys):
    journal = tmp_path / "study.db"
    StudyJournal(journal).close()
    with pytest.raises(JournalError, match="got none yet"):
        study_of_journal(journal)

    def on_round(progress):
        assert len(study_of_journal(journal).rounds) == 1
        assert command(["report", str(tmp_path), "--html"]) == 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Federation("random").start(journal, resume=True, callbacks=[on_round])
    assert (tmp_path / "report.html").is_file()
