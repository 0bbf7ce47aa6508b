"""`simulate(objective=..., space=..., agents=...)`: the user's own function and data."""

import numpy as np
import pytest
from grouped import grouped

from fbo_flower import Categorical, Float, SearchSpace
from fbo_flower.algorithms.registry import RECOMMENDED
from fbo_flower.reports.summary import summarise
from fbo_flower.simulation import Start, simulate
from fbo_flower.study import Study

SPACE = SearchSpace(
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
    settings = {"space": SPACE, "agents": CENTRES, "num_rounds": 4, "engine": "inline", "algorithm": "random"}
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
