"""Messages that are kept, and studies that start from them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from grouped import grouped

from fbo_flower import strategies
from fbo_flower.algorithms import FTS, PFPNE, FedPNE, make_algorithm
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.records import Federation
from fbo_flower.cli import main as cli
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.simulation import Keep, Start, simulate
from fbo_flower.simulation.grids import FIRST_NODE, Fault, InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage.warm_start import FOLDER, WarmStart
from fbo_flower.study import Study

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
SMALL = {"num_features": 12, "num_candidates": 32, "num_path_features": 16}


def run(algorithm="fts", seed=0, num_rounds=4, agents=3, warm_start=None, **settings):
    settings["options"] = {**SMALL, **settings.get("options", {})}
    given = {"algorithm": algorithm, "agents": agents, "num_rounds": num_rounds, "warm_start": warm_start}
    return simulate("gp-samples", seed=seed, engine="inline", **grouped(**given, **settings))


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """The directory of an earlier study of three agents, and that study."""
    directory = tmp_path_factory.mktemp("earlier")
    return directory, run(out=directory)


def test_messages_are_kept_with_the_study_and_hold_no_observation(earlier):
    directory, study = earlier
    kept = WarmStart.load(directory, "fts")
    assert {name: array.shape for name, array in kept.arrays.items()} == {
        "frequencies": (12, 1), "phases": (12,), "weights": (3, 12),
    }  # fmt: skip
    values = np.asarray(study.trials["value"], dtype=np.float64)
    points = [x for config in study.trials["config"] for x in config.values()]
    numbers = np.concatenate([array.ravel() for array in kept.arrays.values()])
    secrets = np.concatenate([values, points, (values - values.mean()) / values.std()])
    assert not np.isclose(numbers[:, None], secrets[None], rtol=1e-9).any()


def test_a_warm_start_is_known_before_the_first_message_and_changes_the_first_advice(earlier):
    """Without others to hear of, a cold agent has only itself; a warm one is sent an earlier message."""
    options = {"schedule": 0.0, "num_initial": 1}
    warm, cold = (
        run(seed=3, num_rounds=3, agents=1, options=options, warm_start=start) for start in (earlier[0], None)
    )
    assert warm.trials["value"][0] == cold.trials["value"][0], "the initial design is the same"
    assert warm.trials["value"].tolist() != cold.trials["value"].tolist()
    assert np.sum(warm.rounds["floats_down"]) > np.sum(cold.rounds["floats_down"])


def test_sums_with_noise_are_used_again_without_new_releases(tmp_path):
    run("dp-fts", out=tmp_path)
    kept = WarmStart.load(tmp_path, "dp-fts")
    assert kept.arrays["weights"].shape == (1, 12)
    options = {"schedule": 0.0, "max_epsilon": 4.0, "when_spent": "keep", "noise_multiplier": 5.0}
    run("dp-fts", 1, 3, options=options, warm_start=tmp_path)
    with pytest.raises(ConfigError, match="regions"):
        run("dp-fts", 1, 3, options={**options, "num_regions": 3}, warm_start=tmp_path)


@pytest.mark.parametrize("name", ["rgpe", "taf"])
def test_posteriors_of_an_earlier_study_are_members_from_the_first_model_on(name, tmp_path):
    run(name, out=tmp_path)
    kept = WarmStart.load(tmp_path, name)
    best = {"rgpe": 0, "taf": 1}[name]
    assert {n: a.shape for n, a in kept.arrays.items()} == {
        "frequencies": (12, 1), "phases": (12,),
        "means": (3, 12), "inverses": (3, 78), "incumbents": (3, best),
    }  # fmt: skip
    warm, cold = (run(name, 2, 4, 1, warm_start=start) for start in (tmp_path, None))
    assert np.sum(warm.rounds["floats_down"]) > np.sum(cold.rounds["floats_down"]) + 3 * (12 + 78 + best) - 1
    assert warm.trials["value"].tolist() != cold.trials["value"].tolist()
    algorithm = make_algorithm(name, SMALL)
    state = algorithm.init(Federation(SearchSpace({"x": Float(0.0, 1.0)}), ("0",)), np.random.default_rng(0))
    for spoilt in (
        {"inverses": np.zeros((2, 78))},
        {"incumbents": np.full((3, best + 1), np.nan)},
        {"means": np.zeros((3, 11))},
    ):
        with pytest.raises(ConfigError, match="expected finite numbers"):
            algorithm.warm_start(state, {**kept.arrays, **spoilt})


def test_survivors_of_an_earlier_stage_1_save_its_pulls(tmp_path):
    options = {"budget": 150, "gap": 0.1}
    common = {"algorithm": PFPNE(**options), "agents": 4, "engine": "inline"}
    first = simulate("garland", **common, keep=Keep(out=tmp_path))
    kept = WarmStart.load(tmp_path, "pf-pne")
    assert set(kept.arrays) == {"shared_cell", "shared_mean", "shared_radius", "arity"}
    warm = simulate("garland", **common, seed=1, start=Start(warm_start=tmp_path))
    cold = simulate("garland", **common, seed=1)
    assert len(first.rounds) == len(cold.rounds) > len(warm.rounds), "stage 1 is over before it begins"
    assert warm.trials["pulls"].sum() == cold.trials["pulls"].sum() == 600
    assert not warm.rounds["floats_up"].any()
    shared = WarmStart.load(tmp_path, "pf-pne").arrays
    assert len(shared["shared_cell"]) >= 1
    for spoilt in (
        {"shared_mean": shared["shared_mean"][1:]},
        {"shared_cell": shared["shared_cell"] + 2**60},
        {"shared_cell": shared["shared_cell"][::-1]},
        {"shared_radius": -shared["shared_radius"]},
        {"arity": np.array([3])},
    ):
        algorithm = make_algorithm("pf-pne", options)
        space = SearchSpace({"x": Float(0.0, 1.0)})
        state = algorithm.init(Federation(space, ("0",)), np.random.default_rng(0))
        with pytest.raises(ConfigError, match="expected"):
            algorithm.warm_start(state, {**shared, **spoilt})
    alone = make_algorithm("pf-pne", {"budget": 150, "gap": 2.0})
    state = alone.init(Federation(space, ("0",)), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="first stage"):
        alone.warm_start(state, shared)


def test_fed_pne_goes_on_below_the_deepest_survivors(tmp_path):
    common = {"agents": 4, "engine": "inline"}
    simulate("garland", algorithm=FedPNE(budget=60), keep=Keep(out=tmp_path), **common)
    shared = WarmStart.load(tmp_path, "fed-pne").arrays
    start, keep = Start(warm_start=tmp_path), Keep(out=tmp_path / "next")
    simulate("garland", algorithm=FedPNE(budget=900), keep=keep, start=start, **common)
    after = WarmStart.load(tmp_path / "next", "fed-pne").arrays
    assert after["shared_cell"].max() >= 2 * shared["shared_cell"].max()
    rows = len(shared["shared_cell"])
    np.testing.assert_array_equal(after["shared_cell"][:rows], shared["shared_cell"])


def test_an_agent_that_joins_late_is_told_what_the_server_holds_before_it_has_sent_anything():
    """Its first task after the initial design carries another agent's weights, as after a warm start."""
    app = client_app(lambda config, context: -((config["x"] - 0.3) ** 2), SPACE, seed=2, disclose="trials")
    tasks = []

    class Tapped(InProcessGrid):
        def push_messages(self, messages):
            messages = list(messages)
            tasks.extend(m for m in messages if m.metadata.dst_node_id == FIRST_NODE + 2)
            return super().push_messages(messages)

    grid = Tapped(app, 3, faults={2: Fault("down", rounds=range(5))})
    strategies.FTS(seed=1, num_agents=2, schedule=0.0, **SMALL).start(grid, num_rounds=7)
    own = [m.content["config"] for m in tasks if "round" in m.content.get("config", {})]
    assert [config["trial"] for config in own] == [0, 3, 4]
    assert ["weights" in str(config["names"]).split(",") for config in own] == [False, True, True]


def test_messages_that_do_not_fit_are_refused_before_anything_is_evaluated(earlier, tmp_path):
    directory, _ = earlier
    with pytest.raises(ConfigError, match="none"):
        run("dp-fts", warm_start=directory)
    with pytest.raises(ConfigError, match=r"frequencies: expected .*\(9, 1\)"):
        run(options={"num_features": 9}, warm_start=directory)
    algorithm = make_algorithm("fts", SMALL)
    start = Start(warm_start=directory)
    with pytest.raises(ConfigError, match="search space"):
        simulate("f1", agents=2, algorithm=algorithm, num_rounds=2, engine="inline", start=start)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="none"):
        run(warm_start=tmp_path / "empty")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ConfigError, match=r"text\.npz"):
        run(warm_start=tmp_path / "text.npz")
    kept = WarmStart.load(directory, "fts")
    of_another = WarmStart("ts", kept.space, {"weights": np.zeros(2)})
    prior = Start(warm_start=of_another.save(tmp_path / "ts", "ts"))
    with pytest.raises(ConfigError, match="keeps messages"):
        simulate("gp-samples", agents=3, algorithm="ts", num_rounds=2, engine="inline", start=prior)
    arrays = {**kept.arrays, "weights": np.full((2, 12), np.nan)}
    state = FTSState(SearchSpace({"x": Float(0.0, 1.0)}))
    with pytest.raises(ConfigError, match="weights"):
        FTS(**SMALL).warm_start(state, arrays)


def test_a_file_without_pickles_is_all_that_is_read(tmp_path):
    folder = tmp_path / FOLDER
    folder.mkdir()
    np.savez(folder / "x.npz", header=np.array([{"algorithm": "fts"}], dtype=object))
    with pytest.raises(ConfigError, match=r"x\.npz"):
        WarmStart.load(tmp_path, "fts")


def test_a_resumed_study_must_start_from_the_same_messages(earlier, tmp_path):
    run(seed=5, out=tmp_path / "other", num_rounds=2)
    begin, resume = (Keep(journals=tmp_path / "journals", resume=resume) for resume in (False, True))
    whole = run(seed=1, warm_start=earlier[0], keep=begin, num_rounds=2)
    again = run(seed=1, warm_start=earlier[0], keep=resume, num_rounds=2)
    assert again.trials["value"].tolist() == whole.trials["value"].tolist()
    with pytest.raises(JournalError, match="warm_start"):
        run(seed=1, warm_start=tmp_path / "other", keep=resume, num_rounds=2)


def test_the_command_starts_from_what_a_study_kept(earlier, tmp_path):
    given = "simulate --algorithm fts --problem gp-samples --agents 2 --rounds 2 --engine inline -q --journal"
    given += " --warm-start"
    warm = [*given.split(), str(earlier[0]), *(f"--option={name}={value}" for name, value in SMALL.items())]
    assert cli.run([*warm, "--compare", "random", "--out", str(tmp_path / "b")]) == 0
    assert Study.load(tmp_path / "b").algorithms == ["fts", "random"]
    plan = json.loads((tmp_path / "b" / "simulate.json").read_text())
    assert plan["warm_start"] == str(earlier[0].resolve())
    assert (
        cli.run([*given.split(), str(earlier[0]), "--algorithm", "random", "--out", str(tmp_path / "c")]) == 2
    )
