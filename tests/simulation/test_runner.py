import sys
import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from grouped import grouped
from made_study import made_study
from processes import python

from fbo_flower import algorithms
from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.clients import Pruning
from fbo_flower.errors import ConfigError
from fbo_flower.reports.summary import summarise
from fbo_flower.simulation import Agents, Keep, RayEngine, Start, runner, simulate
from fbo_flower.simulation.problems import Problem
from fbo_flower.simulation.runner import observations, with_regret
from fbo_flower.space import Categorical, Float, SearchSpace
from fbo_flower.study import Study

SMALL = {"num_candidates": 64, "num_path_features": 32}
FTS = {**SMALL, "num_features": 24, "schedule": 0.3}


@dataclass(frozen=True)
class Bowl(Problem):
    """Agent `a` has its optimum, 0, at `x = a / 10` with kind "b"."""

    num_agents: int = 3
    seed: int = 0
    noise: float = 0.0

    name: ClassVar[str] = "bowl"
    metric: ClassVar[str] = "height"
    default_agents: ClassVar[int] = 3

    @property
    def space(self):
        return SearchSpace({"x": Float(0.0, 1.0), "kind": Categorical(["a", "b"])})

    def __call__(self, config, context):
        return self.true_value(config, context.partition) + self.noise * context.rng.standard_normal()

    def true_value(self, config, partition):
        return -abs(config["x"] - partition / 10) - 0.5 * (config["kind"] == "a")

    def optimum(self, partition):
        return 0.0


def run(algorithm="ts", num_rounds=4, problem=None, options=None, **settings):
    options = (FTS if algorithm == "fts" else SMALL if algorithm == "ts" else {}) | (options or {})
    given = {"algorithm": algorithm, "num_rounds": num_rounds, "options": options, **settings}
    return simulate(problem or Bowl(), engine="inline", **grouped(**given))


def same_rows(one, two):
    return one.trials == two.trials and one.regret == two.regret


def test_values_of_any_size_make_a_good_study_or_an_error_with_the_remedy():
    size = sys.float_info.max

    def objective(config, data):
        return size if config["x"] > 0.6 else -size if config["x"] < 0.4 else config["x"]

    space = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
    assert set(simulate(objective, space, 2, "co-kg", 3, engine="inline").best) == {"0", "1"}
    with pytest.raises(ConfigError, match=r"means: .*; let the objective return smaller values"):
        simulate(objective, space, 2, "fed1-ucb", 3, engine="inline")


def test_a_study_improves_says_what_was_run_and_repeats_with_its_seed(tmp_path):
    study = run("fts", 8, seed=5, out=tmp_path / "deep" / "run")
    assert len(study.trials) == 3 * 10
    last = study.regret.take(study.regret["evaluations"] == 10)["simple"]
    first = study.regret.take(study.regret["evaluations"] == 1)["simple"]
    assert last.mean() < first.mean()
    (settings,) = study.settings["runs"]
    assert settings["problem_options"] == {"num_agents": 3, "seed": 0, "noise": 0.0}
    found = [settings[name] for name in ("problem", "engine", "metric", "seed", "status", "num_rounds")]
    assert found == ["bowl", "inline", "height", 5, "finished", 8]
    assert Study.load(tmp_path / "deep" / "run") == study
    noisy = [run("fts", 2, Bowl(noise=0.1), seed=seed) for seed in (3, 3, 4)]
    assert same_rows(noisy[0], noisy[1])
    assert not same_rows(noisy[0], noisy[2])


def test_prior_rounds_give_every_agent_observations_that_are_not_trials():
    before = Start(prior_rounds=6, prior_algorithm="random")
    study = run("fts", 2, start=before)
    assert study.settings["runs"][0]["prior_trials"] == {"0": 8, "1": 8, "2": 8}
    assert study.trials.where(agent="0")["trial"].tolist() == [0, 1, 2, 3]
    assert not same_rows(study, run("fts", 2))
    study = run("fts", 2, options={"targets": ["1"]}, start=before)
    assert study.settings["runs"][0]["prior_trials"] == {"0": 8, "2": 8}, "a target starts from nothing"
    assert set(study.trials["agent"].tolist()) == {"1"}, "the others only answer"


def test_prior_study_is_what_the_agents_hold():
    before = run("random", 5, seed=9)
    held = observations(before, Bowl())
    for agent, (points, values) in held.items():
        rows = before.trials.where(agent=agent)
        assert [Bowl().space.decode(p) for p in points] == rows["config"].tolist()
        np.testing.assert_array_equal(values, rows["value"])
    assert set(observations(before, Bowl(), without=("1",))) == {"0", "2"}
    one, two = (run("fts", 3, start=Start(observations=known)) for known in (before, held))
    assert same_rows(one, two)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_leaves_its_files(tmp_path, error):
    def stop(progress):
        if progress.server_round == 2:
            raise error

    with pytest.raises(error) as caught:
        run("random", 9, out=tmp_path, on_round=stop)
    if error is KeyboardInterrupt:
        kept = "holds the results so far; only a run with keep=Keep(journals=...) can be continued"
        assert str(caught.value) == f"simulate was interrupted; {tmp_path} {kept}"
        assert len(caught.traceback) < 5, "not that of whatever ran just then"
    study = Study.load(tmp_path)
    assert study.settings["runs"][0]["status"] == ("failed" if error is RuntimeError else "interrupted")
    assert study.rounds["round"].tolist() == [1, 2]
    assert len(study.regret) == len(study.trials) == 3 * 4


def test_an_interrupted_run_says_that_the_former_study_is_gone(tmp_path, monkeypatch):
    run("random", 1, out=tmp_path)

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_on_engine", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"the study that was in .* is removed"):
        run("random", 1, out=tmp_path, overwrite=True)
    assert Keep(journals=tmp_path).how_to_continue() == "nothing was written; repeat the call"
    (tmp_path / "study.db").touch()
    assert Keep(journals=tmp_path).how_to_continue().startswith("continue with the same call and keep=Keep(")


# -- engines and machines ----------------------------------------------------------------------

CODE = """
from fbo_flower.algorithms import FTS
from fbo_flower.simulation import make_problem, simulate
problem = make_problem("gp-samples", 2, 3, {"dimension": 2, "lengthscale": 0.2})
algorithm = FTS(num_initial=150, num_features=200, schedule=0.3, num_candidates=1024)
study = simulate(problem, algorithm=algorithm, num_rounds=3, seed=3, engine="inline")
print(found := repr(study.trials["config"].tolist()))
"""


def test_number_of_blas_threads_does_not_change_the_trials():
    done = python("-c", CODE, OPENBLAS_NUM_THREADS="4", OMP_NUM_THREADS="4")
    here = {}
    exec(CODE, here)
    assert done.stdout == f"{here['found']}\n"
    assert len(here["study"].trials) == 304


def same_messages(one, two):
    assert repr([*one.trials, *one.regret]) == repr([*two.trials, *two.regret])
    assert two.rounds["failures"].sum() == two.rounds["refused"].sum() == 0
    for column in ("tasks", "replies", "bytes_down", "bytes_up"):
        assert one.rounds[column].tolist() == two.rounds[column].tolist()


@pytest.mark.ray
def test_flowers_engine_is_equal_bit_for_bit(ray_cluster):
    def own(config, centre):
        return {"accuracy": 1 - (config["x"] - centre) ** 2, "latency_ms": 40 * config["x"]}

    inline, flower = (
        simulate(
            own, SearchSpace({"x": Float(0.0, 1.0)}), Agents([0.2, 0.9], limits={"0": {"latency_ms": 5.0}}),
            make_algorithm("fed-ei", {"secure_sums": 0, "trials_per_round": 3}), num_trials=6, seed=4,
            objectives={"accuracy": "max"}, limits={"latency_ms": 20.0}, engine=engine,
        )
        for engine in ("inline", "flower")
    )  # fmt: skip
    assert len(inline.trials) == 2 * 6, "the last task is a part of one"
    same_messages(inline, flower)


@pytest.mark.ray
def test_ray_is_equal_bit_for_bit_for_what_a_notebook_defines_and_stops_the_same_trials(ray_cluster):
    def own(config, rows, context):  # these are pickled by value
        for epoch in range(8):
            context.report(epoch, -np.mean((rows - config["x"]) ** 2) * 0.9**epoch)
            if context.should_stop():
                break
        return float(-np.mean((rows - config["x"]) ** 2))

    @dataclass(frozen=True, kw_only=True)
    class OwnFTS(algorithms.FTS):
        name: ClassVar[str] = "own-fts"

    data = {"a": np.linspace(0, 1, 100_000), "b": np.array([0.3]), "c": np.array([0.5])}
    pruning = Pruning("federated", min_trials=3)
    space = SearchSpace({"x": Float(0.0, 1.0)})
    inline, ray = (
        simulate(own, space, Agents(data, pruning=pruning), OwnFTS(**FTS), num_trials=11, engine=engine)
        for engine in ("inline", RayEngine(num_workers=2))
    )
    same_messages(inline, ray)
    assert "stopped_at" in inline.trials.columns
    lock = threading.Lock()
    for engine in ("ray", "flower"):
        with pytest.raises(ConfigError, match=r"expected what can be pickled.*lock.*inline'"):
            simulate(lambda config, _: float(lock.locked()), space, 2, engine=engine)


# -- regret ------------------------------------------------------------------------------------

NAN = float("nan")


class Slope(Bowl):
    """`x + agent`; the optimum is `1 + agent`."""

    def true_value(self, config, partition):
        return config["x"] + partition

    def optimum(self, partition):
        return 1.0 + partition


def regrets(rows, num_agents):
    """Return a study of rows `(agent, trial, x)`; without an x the trial has failed."""
    known = [{"algorithm": "a", "agent": agent, "trial": trial} for agent, trial, _ in rows]
    more = [{"config": {"x": 0.5}, "value": NAN, "failure": "no"} if x is None else
            {"config": {"x": x}, "value": 0.0} for _, _, x in rows]  # fmt: skip
    rows = [one | other for one, other in zip(known, more, strict=True)]
    return with_regret(made_study([{"algorithm": "a"}], trials=rows), Slope(num_agents, 0))


def test_cumulative_and_simple_regret_are_as_worked_by_hand_without_the_noise():
    found = regrets([("0", 2, 0.5), ("0", 0, 0.25), ("0", 1, 0.75), ("1", 1, 0.5), ("1", 0, 1.0)], 2)
    assert found.trials["regret"].tolist() == [0.75, 0.25, 0.5, 0.0, 0.5]
    assert found.trials["value"].tolist() == [0.0] * 5
    assert found.regret["evaluations"].tolist() == [1, 2, 3, 1, 2]
    assert found.regret["cumulative"].tolist() == [0.75, 1.0, 1.5, 0.0, 0.5]
    assert found.regret["simple"].tolist() == [0.75, 0.25, 0.25, 0.0, 0.0]


def test_a_failed_trial_costs_as_much_as_the_worst_of_its_agent_and_finds_nothing():
    found = regrets([("0", 0, None), ("0", 1, 0.75), ("0", 2, 0.25), ("0", 3, None)], 1)
    np.testing.assert_array_equal(found.trials["regret"], [NAN, 0.25, 0.75, NAN])
    assert found.regret["cumulative"].tolist() == [0.75, 1.0, 1.75, 2.5]
    np.testing.assert_array_equal(found.regret["simple"], [NAN, 0.25, 0.25, 0.25])
    assert regrets([("0", 0, None), ("1", 0, 0.75)], 2).regret["agent"].tolist() == ["1"], "no success"


OWN_SPACE = SearchSpace(
    {"x": Float(0, 1), "kind": Categorical(["a", "b"]), "z": Float(0, 1, active_when={"kind": "a"})}
)
CENTRES = {"north": 0.2, "south": 0.3, "east": 0.8}
KNOWN = [{"x": 0.25, "kind": "b"}, {"x": 0.5, "kind": "a", "z": 0.5}]


def gain(config, centre):
    return 1.0 - (config["x"] - centre) ** 2


def loss(config, centre):
    return 3.0 + (config["x"] - centre) ** 2


def minus_loss(config, centre):
    return -loss(config, centre)


def tune(objective=gain, **changes):
    settings = {
        "space": OWN_SPACE,
        "agents": CENTRES,
        "num_rounds": 4,
        "engine": "inline",
        "algorithm": "random",
    }
    return simulate(**grouped(**{"objective": objective, **settings, **changes}))


def test_every_agent_has_its_name_and_evaluates_its_own_data():
    study = tune(algorithm=None)
    numbered = tune(agents=2)
    assert tune(agents=[0, 1]).trials == numbered.trials, "numbers stand for the data"
    assert list(study.best) == ["east", "north", "south"]
    for row in study.trials:
        assert row["value"] == gain(row["config"], CENTRES[row["agent"]])
    (settings,) = study.settings["runs"]
    assert settings["problem"] == "gain"
    assert settings["algorithm"] == RECOMMENDED


@pytest.mark.parametrize("algorithm", [None, "co-kg"])
def test_a_loss_is_minimised_and_shown_as_it_is(algorithm, tmp_path):
    progress, gains = [], []
    settings = {"algorithm": algorithm, "num_rounds": 3}
    maximised = tune(minus_loss, on_round=gains.append, **settings)
    study = tune(loss, minimize=True, on_round=progress.append, out=tmp_path / "study", **settings)
    assert study.trials["config"].tolist() == maximised.trials["config"].tolist()
    np.testing.assert_array_equal(study.trials["value"], -maximised.trials["value"])
    for agent, best in study.best.items():
        assert best["config"] == maximised.best[agent]["config"]
        for name in best.keys() & {"value", "mean"}:
            assert best[name] == -maximised.best[agent][name]
    assert (progress[-1].best, progress[-1].mean) == (-gains[-1].best, pytest.approx(-gains[-1].mean))
    assert study.rounds["best"][-1] == progress[-1].best
    loaded = Study.load(tmp_path / "study")
    assert loaded == study
    (row,) = summarise(loaded)
    assert row.final.mean == pytest.approx(-summarise(maximised)[0].final.mean)


def test_known_configurations_come_first_and_the_initial_design_follows():
    study = tune(algorithm="co-kg", initial=KNOWN, num_rounds=2)
    for agent in CENTRES:
        rows = study.trials.where(agent=agent)
        assert rows["config"].tolist()[:2] == KNOWN
        assert rows["trial"].tolist() == list(range(len(rows)))
    (settings,) = study.settings["runs"]
    (without,) = tune(algorithm="co-kg", num_rounds=1).settings["runs"]
    assert settings["num_initial"] == without["num_initial"] + 2
    assert study.rounds["failures"].sum() == study.rounds["refused"].sum() == 0


def test_an_earlier_study_of_a_loss_is_known_with_the_right_sign():
    earlier = tune(loss, minimize=True, algorithm="random", num_rounds=3, seed=9)
    negated = tune(minus_loss, algorithm="random", num_rounds=3, seed=9)
    one = tune(loss, minimize=True, algorithm="ts", start=Start(observations=earlier))
    two = tune(minus_loss, algorithm="ts", start=Start(observations=negated))
    assert one.trials["config"].tolist() == two.trials["config"].tolist()
