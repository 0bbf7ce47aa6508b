"""What is true of every problem: tests to import with `*`.

Of the studies' problems, where they are registered, and of the package's otherwise.
"""

import ast
import os
import pickle
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import numpy as np
import pytest
from processes import python
from real_data import needs_data

from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import PROBLEMS, make_problem

FIVE_SITES = ("breast-cancer-5sites", "madelon-5sites", "fri-5sites", "semeion-5sites", "gravier-5sites")
CALIFORNIA = ("california-mlp", "california-trees")
NEED_DATA = ("landmine-svm", "parkinsons-lr", *CALIFORNIA, "heart-4sites", *FIVE_SITES[1:])
OPTIONS = {name: {"split": "srs"} for name in FIVE_SITES}  # each site has both classes, at once
OURS = [n for n, problem in PROBLEMS.items() if problem.__module__.startswith("studies")] or list(PROBLEMS)
ALL = [pytest.param(name, marks=needs_data if name in NEED_DATA else ()) for name in OURS]


@dataclass(frozen=True)
class Context:
    partition: int
    rng: np.random.Generator


def context(partition, seed=0):
    return Context(partition, generator(seed, "evaluation", partition))


def five_agents(name):
    return make_problem(name, min(5, PROBLEMS[name].max_agents or 5), 1, OPTIONS.get(name))


def some_config(problem, seed=0):
    return dict(problem.space.decode(generator(seed, "config").random(problem.space.dimension)))


@pytest.mark.parametrize("name", ALL)
def test_a_problem_evaluates_to_the_same_finite_number_again_and_after_pickling(name):
    problem = five_agents(name)
    for partition in range(min(2, problem.num_agents)):
        config = some_config(problem, partition)
        value: Any = problem(config, context(partition))
        numbers = [value[name] for name in problem.aims.names] if problem.aims.names else [value]
        assert all(type(number) is float and np.isfinite(number) for number in numbers)
        assert problem(config, context(partition)) == value
        copy = pickle.loads(pickle.dumps(problem))
        assert copy == problem
        assert hash(copy) == hash(problem)
        assert copy(config, context(partition)) == value


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """The value of a configuration of every problem whose data are there, evaluated in a new process."""
    names = [name for name in OURS if name not in NEED_DATA or os.environ.get("FBO_FLOWER_DATA")]
    problems = {name: five_agents(name) for name in names}
    program = (
        "import pickle, sys; from fbo_flower.numerics.seeding import generator;"
        "c = lambda: type('C', (), {'partition': 3, 'rng': generator(0, 'evaluation', 3)});"
        "given = pickle.load(open(sys.argv[1], 'rb'));"
        "print(repr({name: problem(config, c()) for name, (problem, config) in given.items()}))"
    )
    given = tmp_path_factory.mktemp("given") / "problems"
    given.write_bytes(pickle.dumps({n: (problem, some_config(problem)) for n, problem in problems.items()}))
    return dict(ast.literal_eval(python("-c", program, given).stdout))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.xdist_group("elsewhere")  # one process starts the new one
def test_a_problem_gives_the_same_value_in_a_new_process(name, elsewhere):
    problem = five_agents(name)
    assert elsewhere[name] == problem(some_config(problem), context(3))


@pytest.mark.parametrize("name", OURS)
def test_a_problem_says_what_it_is_cannot_be_changed_and_travels_as_a_few_bytes(name):
    problem = make_problem(name, None, 0, {})
    assert problem.name == name
    assert problem.metric
    assert problem.space.dimension >= 1
    natural = {"digits-svm": 20, "landmine-svm": 29, "parkinsons-lr": 42, "gp-samples": 50}
    natural |= {"california-trees": 32, "digits-trees": 8}
    natural |= dict.fromkeys(("f1", "rosenbrock", "breast-cancer-mlp", "california-mlp", "heart-4sites"), 4)
    natural |= dict.fromkeys(FIVE_SITES, 5)
    assert problem.num_agents == natural.get(name, 10)
    with pytest.raises(FrozenInstanceError):
        problem.seed = 1
    assert len(pickle.dumps(problem)) < 400


@pytest.mark.parametrize("name", ALL)
def test_a_partition_that_does_not_take_part_or_a_missing_parameter_is_an_error(name):
    problem = make_problem(name, 3, 0, OPTIONS.get(name))
    for partition in (-1, 3):
        with pytest.raises(ConfigError, match=r"partition: expected 0 <= partition < 3"):
            problem(some_config(problem), context(partition))
        with pytest.raises(ConfigError, match="partition"):
            problem.optimum(partition)
    with pytest.raises(ObjectiveError, match="expected a number in the configuration, got None"):
        problem({}, context(0))
