"""The end of a study: every agent gets its own answer, once, and a study without values is a failure."""

import pytest
from federation import agents, log_lines
from flwr.app import Context, RecordDict

from fbo_flower.cli.main import run as command
from fbo_flower.cli.watch import state_of_study
from fbo_flower.clients import TuningAgent
from fbo_flower.errors import ObjectiveError, number_text
from fbo_flower.simulation import Keep, simulate
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.space import Float, Int, SearchSpace
from fbo_flower.strategies import RandomSearch
from fbo_flower.study import Study, Table
from fbo_flower.study.schema import ROUNDS
from fbo_flower.trackers import InlineProgress

SPACE = SearchSpace({"x": Float(0.0, 1.0), "n": Int(1, 9)})


def hill(config, context):
    return 1.0 - (config["x"] - 0.3) ** 2


class Kept(list):
    """Keeps the answers that `on_finish` gets."""

    def __call__(self, answer, context):
        self.append(answer)


@pytest.fixture
def lines():
    with log_lines() as found:
        yield found


def grid(objective=hill, count=2, **given):
    return agents(count, objective, **{"space": SPACE, "seed": 3, "disclose": None, **given})


def tune(agents, num_rounds=3, **given):
    strategy = RandomSearch(num_agents=len(agents.get_node_ids()), seed=3)
    return strategy.start(agents, num_rounds=num_rounds, **given).study


def test_an_answer_is_given_once_and_again_only_after_more_evaluations(tmp_path):
    kept = Kept()
    asked = grid(journals=tmp_path, on_finish=kept)
    for num_rounds, expected in ((3, 2), (3, 2), (5, 4)):
        tune(asked, num_rounds, journal=tmp_path / "study.db", resume=True)
        assert len(kept) == expected
    assert kept[-1].num_evaluations == kept[0].num_evaluations + 2


class Losing(InProcessGrid):
    def push_messages(self, messages):
        messages = list(messages)
        if any("end" in message.content["config"] for message in messages):
            raise ConnectionError("the line is dead")
        return super().push_messages(messages)


def raising(answer, context):
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("given", "told", "said"),
    [
        ({"grid": Losing}, [], "could not be told"),
        ({"faults": {1: Fault("down", rounds=[3, 4])}}, ["0"], "has ended: 3 rounds, 5 replies"),
        ({"on_finish": raising}, [], "on_finish raised"),
    ],
    ids=["a dead line", "an agent is gone", "a function raises"],
)
def test_what_goes_wrong_at_the_end_is_no_error_and_the_journal_has_the_answer(
    given, told, said, tmp_path, lines, capsys
):
    kept = Kept()
    study = tune(grid(journals=tmp_path, **{"on_finish": kept, **given}))
    assert study.settings["runs"][0]["status"] == "finished"
    assert [answer.agent for answer in kept] == told
    assert any(said in line for line in lines)
    assert not any("did not confirm" in line for line in lines)
    assert command(["best", str(tmp_path / "agent-0.db")]) == 0
    assert "best value: 0.9" in capsys.readouterr().out


def test_the_end_of_a_study_that_an_agent_does_not_know_is_nothing(tmp_path):
    kept = Kept()
    node = Context(1, 5, {"partition-id": 0, "journal": str(tmp_path / "a.db")}, RecordDict(), {})
    agent = TuningAgent(hill, SPACE, node, on_finish=kept)
    assert [agent.get_properties({"end": study}) for study in ("", "unknown", "x" * 10_000)] == [{}] * 3
    assert not kept


def test_the_best_of_noisy_values_is_the_same_wherever_it_is_shown(tmp_path, capsys, lines):
    """It is the measured value of the agent with the best mean; another agent has a larger value."""

    def noise(config, data, context):
        return context.rng.normal() - (config["x"] - 0.4) ** 2

    keep, rounds = Keep(out=tmp_path / "out", journals=tmp_path / "in"), []
    given = {"seed": 6, "engine": "inline", "keep": keep, "callbacks": [rounds.append, InlineProgress()]}
    study = simulate(noise, SearchSpace({"x": Float(0, 1)}), 2, "ei", 6, **given)
    progress = capsys.readouterr().err.splitlines()[-1]
    best, other = study.best["1"], study.best["0"]
    assert best["mean"] > other["mean"], "by its value it is the worse one"
    assert best["value"] < other["value"] < study.trials["value"].max()
    assert (study.best_value, study.best_config) == (best["value"], best["config"])
    assert study.rounds["best"][-1] == rounds[-1].best == best["value"]
    assert f", best {number_text(best['value'])}; " in progress
    assert f"Best value {number_text(best['value'])}, of agent 1;" in "\n".join(lines)
    for place in ("in", "out"):
        assert command(["watch", str(tmp_path / place), "--once"]) == 0
        assert f"best         {best['value']:.6g}, mean over agents" in capsys.readouterr().out
    bare = Study(study.settings, study.trials, Table.from_rows([], ROUNDS), None, study.recommendations)
    assert state_of_study(bare, "ei").best == best["value"]


def test_the_server_says_that_values_are_not_disclosed_and_agents_log_their_own(lines):
    tune(grid(seed=None, node_configs={1: {"disclose": "none"}}))
    own = [line for line in lines if "has ended: best value 0." in line]
    assert [line.split(":")[0] for line in own] == ["agent 0", "agent 1"]
    assert "after 5 evaluations" in own[0]
    text = "\n".join(line for line in lines if not line.startswith("agent"))
    assert "3 rounds, 6 replies, 0 lost, 0 refused" in text
    assert "Values not disclosed (none, default: 1 agent; none, operator: 1 agent)" in text
    assert "nan" not in text.lower()


def test_a_study_in_which_every_evaluation_failed_ends_as_failed(tmp_path):
    def fails(config, data):
        raise ModuleNotFoundError("torch")

    strategy = RandomSearch(num_agents=2, seed=3)
    text = "all of 6 evaluations failed, the reasons are in the agents' logs"
    with pytest.raises(ObjectiveError, match=text):
        strategy.start(grid(fails), num_rounds=3)
    assert strategy.study.settings["runs"][0]["status"] == "failed"
    assert strategy.study.rounds["failed_trials"].tolist() == [6], "there is no second round"
    with pytest.raises(ObjectiveError, match="the first with: ModuleNotFoundError"):
        simulate(fails, SPACE, 2, num_rounds=2, engine="inline", keep=Keep(out=tmp_path))
    assert (tmp_path / "rounds.csv").exists()


def test_an_agent_logs_the_traceback_of_each_distinct_error_once(lines):
    def fails(config, context):
        if context.trial == 0:
            return 1.0
        if context.trial == 4:
            raise KeyError("another error")
        raise ValueError(f"trial {context.trial}")

    tune(grid(fails, 1), 5)
    failed = [line for line in lines if line.startswith("agent 0, trial")]
    assert len(failed) == 6
    traced = [line for line in failed if "Traceback" in line]
    assert [line.splitlines()[0].split(": ")[1] for line in traced] == ["ValueError", "KeyError"]
    assert 'raise ValueError(f"trial' in traced[0]
