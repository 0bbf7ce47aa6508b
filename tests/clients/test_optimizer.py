"""`Optimizer`: the trials of `simulate` without a server, told in any order, saved and loaded."""

import math

import pytest

from fbo_flower import Categorical, Float, Int, Optimizer, SearchSpace, simulate
from fbo_flower.algorithms import ExpectedImprovement, RandomSearch, ThompsonSampling
from fbo_flower.cli.main import run
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.storage import AgentJournal

SPACE = SearchSpace({"rate": Float(1e-4, 1.0, log=True), "depth": Int(1, 9), "kind": Categorical(["a", "b"])})
NUM_TRIALS = 9


def loss(config, data=None):
    if config["depth"] == 3:
        raise ValueError("the third depth fails")
    return math.log10(config["rate"]) ** 2 + 0.1 * config["depth"] + (config["kind"] == "b")


def told(optimizer, count):
    """Ask and tell `count` times; return configurations and values."""
    trials = []
    for _ in range(count):
        config = optimizer.ask()
        try:
            value = loss(config)
        except ValueError:
            value = math.nan
        optimizer.tell(config, value)
        trials.append((config, value))
    return trials


@pytest.mark.parametrize("algorithm", [RandomSearch(), ThompsonSampling(num_candidates=32)])
def test_the_trials_are_those_of_a_simulation_with_one_agent(algorithm):
    num_rounds = NUM_TRIALS - algorithm.num_initial + 1
    study = simulate(loss, SPACE, 1, algorithm, num_rounds, seed=4, minimize=True, engine="inline")
    expected = list(zip(study.trials["config"], study.trials["value"].tolist(), strict=True))
    found = told(Optimizer(SPACE, algorithm, seed=4, minimize=True), NUM_TRIALS)
    assert repr(found) == repr(expected), "repr shows all bits, and NaN equals NaN"


def test_a_loaded_optimizer_goes_on_as_if_it_had_never_stopped_and_the_command_reads_it(tmp_path, capsys):
    algorithm, path = ExpectedImprovement(num_candidates=32), tmp_path / "state.db"
    undisturbed = told(Optimizer(SPACE, algorithm, seed=1, minimize=True), NUM_TRIALS)
    optimizer = Optimizer(SPACE, algorithm, seed=1, minimize=True)
    before = told(optimizer, 4)
    asked, value = undisturbed[4]
    assert optimizer.ask() == asked
    for _ in range(2):
        optimizer.save(path)
    loaded = Optimizer.load(path)
    loaded.tell(asked, value)  # as it was asked before
    assert loaded.ask() == loaded.ask()
    after = told(loaded, NUM_TRIALS - 4 - 1)
    assert repr([*before, (asked, value), *after]) == repr(undisturbed)
    assert run(["best", str(path)]) == 0
    assert f"best value: {optimizer.best.value:.6g}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "failure", [{"value": None}, {"value": math.nan}, {"value": -math.inf}, {"value": 2.0, "failed": True}]
)
def test_a_failure_counts_as_a_trial_without_a_value(failure):
    optimizer = Optimizer(SPACE, "ei")
    config = optimizer.ask()
    optimizer.tell(config, **failure)
    assert optimizer.best.config is None
    assert optimizer.best.num_evaluations == 1
    assert optimizer.ask() != config


def test_mistakes_are_refused_with_a_sentence_and_change_nothing():
    optimizer = Optimizer(SPACE, "ei")
    asked = optimizer.ask()
    for config, value, expected in (
        ({**asked, "rate": 7.0}, 1.0, "rate: expected"),
        ({**asked, "momentum": 0.5}, 1.0, "momentum.*unknown name"),
        (asked, "0.5", "value: expected a number, or None for a failure, got a str"),
    ):
        with pytest.raises(ConfigError, match=expected):
            optimizer.tell(config, value)
    assert optimizer.best.num_evaluations == 0
    assert optimizer.ask() == asked
    with pytest.raises(ConfigError, match=r"algorithm: expected one that tunes alone.* got fed-ei"):
        Optimizer(SPACE, "fed-ei")
    with pytest.raises(ConfigError, match="space: expected a SearchSpace, got a dict"):
        Optimizer({"x": Float(0, 1)}, "ei")


def test_a_state_is_neither_written_over_another_one_nor_read_from_another_file(tmp_path):
    path = tmp_path / "state.db"
    Optimizer(SPACE, "ei", seed=1).save(path)
    for change in ({"seed": 2}, {"algorithm": "random"}, {"minimize": True}):
        with pytest.raises(ConfigError, match="path: expected a new file"):
            Optimizer(**{"space": SPACE, "algorithm": "ei", "seed": 1, **change}).save(path)
    AgentJournal(tmp_path / "agent.db", "3").close()
    AgentJournal(tmp_path / "empty.db", "optimizer").close()
    for name in ("agent.db", "empty.db", "missing.db"):
        with pytest.raises(JournalError):
            Optimizer.load(tmp_path / name)


def test_several_outputs_give_the_trials_of_simulate_and_are_saved(tmp_path):
    def outputs(config):
        return {"loss": math.log10(config["rate"]) ** 2, "cost": config["depth"]}

    wanted = {"objectives": {"loss": "min"}, "limits": {"cost": 4.0}}
    study = simulate(
        lambda config, agent: outputs(config), SPACE, 1, "ei", 5, seed=4, engine="inline", **wanted
    )
    optimizer = Optimizer(SPACE, "ei", seed=4, **wanted)
    for number in range(len(study.trials)):
        config = optimizer.ask()
        optimizer.tell(config, outputs(config))
        if number == 4:
            optimizer.save(tmp_path / "o.db")
            optimizer = Optimizer.load(tmp_path / "o.db")
    (best,) = study.best.values()
    assert (optimizer.best.config, optimizer.best.value) == (best["config"], best["value"])
    assert optimizer.best.outputs["cost"] <= 4
    with pytest.raises(ConfigError, match="expected a dict of loss, cost"):
        optimizer.tell(config, 3.0)
    with pytest.raises(ConfigError, match="expected one number, because ts models one"):
        Optimizer(SPACE, "ts", **wanted)
