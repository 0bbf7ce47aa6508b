"""Messages that are kept, and studies that start from them."""

import json
from functools import cache

import numpy as np
import pytest
from grouped import grouped

from fbo_flower.algorithms import PFPNE, make_algorithm
from fbo_flower.algorithms.records import Federation
from fbo_flower.cli import main as cli
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Keep, Start, simulate
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage.warm_start import FOLDER, WarmStart
from fbo_flower.study import Study

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
SMALL = {"num_features": 12, "num_candidates": 32, "num_path_features": 16}
FEATURES = {"frequencies": (12, 1), "phases": (12,)}
POSTERIORS = {**FEATURES, "means": (3, 12), "inverses": (3, 78)}


def run(algorithm="fts", seed=0, num_rounds=3, agents=3, warm_start=None, problem="gp-samples", **settings):
    settings["options"] = {**SMALL, **settings.get("options", {})}
    given = {"algorithm": algorithm, "agents": agents, "num_rounds": num_rounds, "warm_start": warm_start}
    return simulate(problem, seed=seed, engine="inline", **grouped(**given, **settings))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The directories of earlier studies of three agents, by algorithm, and these studies."""

    @cache
    def study_of(name):
        directory = tmp_path_factory.mktemp(name)
        return directory, run(name, out=directory)

    return study_of


def refused(algorithm, changes, arrays, match):
    """Every changed array is refused before anything is evaluated."""
    state = algorithm.init(Federation(SPACE, ("0",)), np.random.default_rng(0))
    for spoilt in changes:
        with pytest.raises(ConfigError, match=match):
            algorithm.warm_start(state, {**arrays, **spoilt})


def test_messages_that_are_kept_hold_no_observation(kept):
    directory, study = kept("fts")
    values = np.asarray(study.trials["value"], dtype=np.float64)
    points = [x for config in study.trials["config"] for x in config.values()]
    arrays = WarmStart.load(directory, "fts").arrays
    numbers = np.concatenate([array.ravel() for array in arrays.values()])
    secrets = np.concatenate([values, points, (values - values.mean()) / values.std()])
    assert not np.isclose(numbers[:, None], secrets[None], rtol=1e-9).any()


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("fts", {**FEATURES, "weights": (3, 12)}),
        ("taf", {**POSTERIORS, "incumbents": (3, 1)}),
    ],
)
def test_an_agent_alone_is_sent_earlier_messages_and_advised_by_them(name, shapes, kept):
    """Without others to hear of, a cold agent has only itself."""
    directory, _ = kept(name)
    arrays = WarmStart.load(directory, name).arrays
    assert {n: a.shape for n, a in arrays.items()} == shapes
    options = {"schedule": 0.0, "num_initial": 1} if name == "fts" else {}
    warm, cold = (run(name, 3, 4, 1, start, options=options) for start in (directory, None))
    assert warm.trials["value"][0] == cold.trials["value"][0], "the initial design is the same"
    assert warm.trials["value"].tolist() != cold.trials["value"].tolist()
    wrong = {"weights": (2, 12), "incumbents": (3, 2)}
    changes = [{n: np.full(wrong[n], np.nan)} for n in wrong if n in shapes]
    if name != "fts":
        changes += [{"inverses": np.zeros((2, 78))}, {"means": np.zeros((3, 11))}]
    refused(make_algorithm(name, SMALL), changes, arrays, "expected finite numbers|weights")


def test_sums_with_noise_are_used_again_without_new_releases(kept):
    directory, _ = kept("dp-fts")
    assert WarmStart.load(directory, "dp-fts").arrays["weights"].shape == (1, 12)
    options = {"schedule": 0.0, "max_epsilon": 4.0, "when_spent": "keep", "noise_multiplier": 5.0}
    run("dp-fts", 1, 3, options=options, warm_start=directory)
    with pytest.raises(ConfigError, match="regions"):
        run("dp-fts", 1, 3, options={**options, "num_regions": 3}, warm_start=directory)


def test_survivors_of_an_earlier_stage_1_save_its_pulls(tmp_path):
    options = {"budget": 150, "gap": 0.1}
    common = {"algorithm": PFPNE(**options), "agents": 2, "engine": "inline"}
    first = simulate("garland", **common, keep=Keep(out=tmp_path))
    shared = WarmStart.load(tmp_path, "pf-pne").arrays
    assert set(shared) == {"shared_cell", "shared_mean", "shared_radius", "arity"}
    assert len(shared["shared_cell"]) >= 1
    warm = simulate("garland", **common, seed=1, start=Start(warm_start=tmp_path))
    cold = simulate("garland", **common, seed=1)
    assert len(first.rounds) == len(cold.rounds) > len(warm.rounds), "stage 1 is over before it begins"
    assert warm.trials["pulls"].sum() == cold.trials["pulls"].sum() == 300
    assert not warm.rounds["floats_up"].any()
    changes = [
        {"shared_mean": shared["shared_mean"][1:]}, {"shared_cell": shared["shared_cell"] + 2**60},
        {"shared_cell": shared["shared_cell"][::-1]}, {"shared_radius": -shared["shared_radius"]},
        {"arity": np.array([3])},
    ]  # fmt: skip
    refused(make_algorithm("pf-pne", options), changes, shared, "expected")
    refused(make_algorithm("pf-pne", {"budget": 150, "gap": 2.0}), [{}], shared, "first stage")


def test_messages_that_do_not_fit_are_refused_before_anything_is_evaluated(kept, tmp_path):
    directory, _ = kept("fts")
    folder = tmp_path / FOLDER
    for path in (tmp_path / "empty", folder):
        path.mkdir()
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(folder / "x.npz", header=np.array([{"algorithm": "fts"}], dtype=object))
    for match, start, given in (
        ("none", directory, {"algorithm": "dp-fts"}),
        (r"frequencies: expected .*\(9, 1\)", directory, {"options": {"num_features": 9}}),
        ("search space", directory, {"problem": "f1", "agents": 2}),
        ("none", tmp_path / "empty", {}),
        (r"text\.npz", tmp_path / "text.npz", {}),
        (r"x\.npz", tmp_path, {}),  # pickles are not read
    ):
        with pytest.raises(ConfigError, match=match):
            run(**{"warm_start": start, "num_rounds": 2, **given})


@pytest.mark.usefixtures("unpictured")
def test_the_command_starts_from_what_a_study_kept(kept, tmp_path):
    directory, _ = kept("fts")
    given = "simulate --problem gp-samples --agents 2 --rounds 2 --engine inline -q --journal --warm-start"
    common = [*given.split(), str(directory), *(f"--option={name}={value}" for name, value in SMALL.items())]
    assert cli.run([*common, "--algorithm", "fts", "--compare", "random", "--out", str(tmp_path / "b")]) == 0
    assert Study.load(tmp_path / "b").algorithms == ["fts", "random"]
    plan = json.loads((tmp_path / "b" / "simulate.json").read_text())
    assert plan["warm_start"] == str(directory.resolve())
    assert cli.run([*common, "--algorithm", "random", "--out", str(tmp_path / "c")]) == 2
