from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from real_data import needs_data

from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import PROBLEMS, BreastCancerSites, SitesProblem, make_problem

NAMES = [name for name, problem in PROBLEMS.items() if issubclass(problem, SitesProblem)]
CASES = [
    pytest.param(name, options, marks=() if name == "breast-cancer-5sites" else needs_data)
    for name in NAMES
    for options in ([{}] if name == "heart-4sites" else [{"split": "srs"}, {"split": "drc"}])
]
ALL_ROWS = {
    "heart-4sites": 920,
    "breast-cancer-5sites": 569,
    "madelon-5sites": 2000,
    "fri-5sites": 500,
    "semeion-5sites": 1593,
    "gravier-5sites": 168,
}


def sites(name: str, options: dict[str, Any], seed: int = 0) -> SitesProblem:
    problem = make_problem(name, None, seed, options)
    assert isinstance(problem, SitesProblem)
    return problem


def context(partition: int) -> ObjectiveContext:
    return ObjectiveContext(str(partition), partition, 0, 1, generator(0))


# every problem


@pytest.mark.parametrize(("name", "options"), CASES)
def test_sites_have_roles_and_bags_with_each_row_once_and_four_fifths_of_each_class(
    name: str, options: Any
) -> None:
    problem = sites(name, options)
    problem.check_data()
    roles = [problem.role(k) for k in range(problem.num_agents)]
    assert roles.count("openbox") == roles.count("lockbox") == 1
    assert roles.count("curator") == problem.num_agents - 2
    with pytest.raises(ConfigError, match="partition"):
        problem.role(problem.num_agents)
    total = 0
    for k in range(problem.num_agents):
        inbag, outbag = problem.site(k)
        total += len(inbag.y) + len(outbag.y)
        for label in (0, 1):
            inside, outside = int(np.sum(inbag.y == label)), int(np.sum(outbag.y == label))
            assert abs(inside - 0.8 * (inside + outside)) <= 1
    assert total == ALL_ROWS[name]


def test_roles_do_not_change_the_bags_but_the_seed_does() -> None:
    assert make_problem("himmelblau", 3, 0).role(2) == ""
    first = BreastCancerSites(5, 0)
    with pytest.raises(ValueError, match="read-only"):
        first.rows("")[0].x[0, 0] = 1.0
    other = replace(first, openbox=3, lockbox=0)
    assert [other.role(k) for k in range(5)] == ["lockbox", "curator", "curator", "openbox", "curator"]
    assert np.array_equal(first.site(3).inbag.x, other.site(3).inbag.x)
    assert not np.array_equal(first.site(3).inbag.x, replace(first, seed=1).site(3).inbag.x)


def test_as_a_problem_each_site_sees_the_cross_validated_accuracy_of_its_own_inbag() -> None:
    problem = BreastCancerSites(5, 0, split="srs")
    config = {"alpha": 0.5, "lambda": 0.01}
    for k in range(5):
        trained = problem.site_objective().train(config, context(k))
        assert problem(config, context(k)) == 1 - trained.loss > 0.9
        outbag = problem.site_objective().judge(trained.model.predict, "outbag", context(k))
        assert outbag.num_rows == len(problem.site(k).outbag.y)
        assert outbag.loss < 0.2


def test_algorithms_without_roles_run_on_sites() -> None:
    study = simulate(BreastCancerSites(5, 0, split="srs"), algorithm="random", num_rounds=2, engine="inline")
    assert (np.asarray(study.trials["value"], dtype=float) > 0.5).all()


# openboxes that cannot be


def test_a_site_of_one_class_cannot_be_the_openbox() -> None:
    problem = BreastCancerSites(5, 7, openbox=4)
    assert problem.site(4).inbag.y.sum() == 0
    with pytest.raises(
        ConfigError, match=r"openbox: expected a site .* both classes \(0, 1, 2, 3\), got 4 with 78 negative"
    ):
        problem.check_data()
    assert [problem.can_train(k) for k in range(5)] == [True, True, True, True, False]
    replace(problem, openbox=3).check_data()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"openbox": 5}, "openbox: expected a site from 0 to 4, got 5"),
        ({"lockbox": -1}, "lockbox: expected a site from 0 to 4, got -1"),
        ({"openbox": 2, "lockbox": 2}, "lockbox: expected another site than the openbox, got 2"),
        ({"learner": "knn"}, "learner: expected 'elastic-net' or 'svm' or 'forest', got 'knn'"),
        ({"split": "dirichlet"}, "split: expected 'drc' or 'srs'"),
        ({"variance": 1.0}, "variance: expected a number between 0 and 1"),
        ({"max_trees": 100}, "max_trees: expected more than 100, got 100"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"breast-cancer-5sites: {message}"):
        make_problem("breast-cancer-5sites", None, 0, options)


@pytest.mark.parametrize(("learner", "weighted", "dimension"), [("elastic-net", False, 2), ("svm", True, 3)])
def test_the_space_is_the_learners(learner: Any, weighted: bool, dimension: int) -> None:
    assert BreastCancerSites(5, 0, learner=learner, class_weight=weighted).space.dimension == dimension
