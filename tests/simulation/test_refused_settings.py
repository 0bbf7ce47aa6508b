"""What `simulate`, its problems and its settings refuse: a row a refusal, one line with the remedy each."""

import re
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from grouped import grouped

from fbo_flower import Categorical, Float, SearchSpace, simulate
from fbo_flower.algorithms import FTS, PFPNE, CoKG
from fbo_flower.algorithms.protocol import Independent
from fbo_flower.algorithms.registry import find
from fbo_flower.errors import FBOError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Agents, Start, Sync
from fbo_flower.simulation.durations import durations, parse_durations
from fbo_flower.simulation.partitioners import clustered, dirichlet, stratified_random, train_validation
from fbo_flower.simulation.problems import make_problem
from fbo_flower.simulation.problems.learners import LEARNERS, logistic_regression, make_learner
from fbo_flower.strategies import STRATEGIES, TuningStrategy

SPACE = SearchSpace({"x": Float(0, 1), "kind": Categorical(["a", "b"])})
CENTRES = {"north": 0.2, "south": 0.3, "east": 0.8}
KNOWN = [{"x": 0.25, "kind": "b"}]
ONE = {"objectives": {"a": "max"}, "limits": {"ms": 20.0}}
LABELS, FEATURES = np.repeat([0, 1], 250), np.zeros((500, 2))
TEN_CLASSES = np.arange(1800) % 10
SITES = "breast-cancer-5sites"
SVM_SITES = make_problem(SITES, 5, 0, {"learner": "svm"})


def gain(config, centre):
    return 1.0 - (config["x"] - centre) ** 2


@dataclass(frozen=True, kw_only=True)
class Taken(Independent):
    name: ClassVar[str] = "fts"

    def propose(self, task, agent_state, rng):
        return None


def tune(**changes):
    """Run a study of three agents with some arguments changed."""
    settings = {"space": SPACE, "agents": CENTRES, "num_rounds": 1, "engine": "inline", "algorithm": "random"}
    aims = {name: changes.pop(name) for name in ("objectives", "limits") if name in changes}
    return simulate(**grouped(**{"objective": gain, **settings, **changes}), **aims)


def fit_without_parameters(learner):
    make_learner(learner).make_model({}).fit(np.arange(4.0)[:, None], np.array([0, 1, 0, 1]))


def making(name, /, **options):
    return partial(make_problem, name, None, 0, options)


# what the error says, and the arguments of `simulate`
ARGUMENTS = [
    ("expected a function of two arguments, f(config, data)", {"objective": lambda config: 1.0}),
    ("expected a SearchSpace, got a dict; wrap it: SearchSpace({...})", {"space": {"x": Float(0, 1)}}),
    ("agents: expected the agents' data", {"agents": None}),
    ("agents: expected different names", {"agents": {1: 0, "1": 0}}),
    ("without a comma, got 'a,b'", {"agents": {"a,b": 0}}),
    ("expected the agents' data, a dict from names to data or a list", {"agents": CENTRES.values()}),
    ("minimize: expected True or False, got 'yes'", {"minimize": "yes"}),
    ("initial: expected a list of configurations", {"initial": KNOWN[0]}),
    ("initial: expected an algorithm with an initial design", {"initial": KNOWN, "algorithm": "pf-pne"}),
    ("minimize, objectives, initial: expected none with a bundled problem", {"objective": "digits-svm"}),
    ("or an object such as algorithms.FTS(), got a function", {"algorithm": gain}),
    ("out: expected the path of a file or directory, got 5", {"out": 5}),
    ("callbacks: expected functions, or objects of a class", {"callbacks": [5]}),
    ("got 5; pass the number of rounds as num_rounds", {"rounds": 5}),
    ("'77'", {"algorithm": "fts", "options": {"targets": ["77"]}}),
    ("an argument of simulate, got an unknown one; here that is num_trials", {"n_trials": 3}),
    ("expected the number of the problem's agents, got a dict", {"objective": "digits-svm", "space": None}),
    ("quorum: expected 1 ", {"rounds": Sync(quorum=0.5)}),
    ("site_options: expected none with random", {"agents": Agents(2, site_options={"query_budget": 3})}),
    *((text, {"agents": Agents(CENTRES, max_trials=wrong)}) for text, wrong in (
        ("expected agents of the simulation", {"9": 3}), ("one item for each of 3 agents", [3, 4]),
        ("expected a number", "many"), ("max_trials", -1),
    )),
    # -- numbers of trials
    ("num_trials: expected either num_rounds or num_trials", {"num_trials": 3, "num_rounds": 3}),
    *(("num_trials: expected an integer >= 1", {"num_trials": n, "num_rounds": None}) for n in (0, 2.5)),
    *((text, {"algorithm": kind, "num_trials": n, "num_rounds": None}) for text, kind, n in (
        ("num_trials: expected 30, the budget of pf-pne, got 20", PFPNE(budget=30), 20),
        ("num_trials: expected at least 5, the num_initial of co-kg, got 4", CoKG(), 4),
    )),
    # -- algorithms
    ("'fts' is the name of fbo_flower", {"algorithm": Taken()}),
    ("algorithm: expected a name such as 'fts', or an object", {"algorithm": FTS}),
    # -- objectives and limits
    ("limits: expected objectives beside them", {"limits": {"a": 1.0}}),
    ("objectives: expected no minimize beside them", {"objectives": {"a": "max"}, "minimize": True}),
    ("objectives: a: expected 'max' or 'min', got 'up'", {"objectives": {"a": "up"}}),
    *(("objectives: expected a dict of 1 to 3 names", {"objectives": o})
      for o in ({}, dict.fromkeys("abcd", "max"))),
    ("or text such as 'accuracy max, kilobytes min', got 'accuracy'", {"objectives": "accuracy"}),
    *((f"limits: {text}", {"objectives": {"a": "max"}, "limits": limits}) for text, limits in (
        *(("b: expected the largest value allowed", {"b": wrong}) for wrong in ("< 3", np.inf)),
        ("a: expected >=, because it is", {"a": 3}), ("expected names of 1 to 100", {"": 3}),
    )),
    ("limits: expected other bounds", {**ONE, "agents": Agents(CENTRES, limits={"north": {"x": 1}})}),
    ("observations of a, ms, got one number",
     {**ONE, "start": Start(observations={"north": (np.ones((1, 2)), np.ones(1))})}),
    ("directions: expected an argument of simulate", {"directions": ["maximize"]}),
    *((text, {"objective": SITES, "space": None, "agents": 5, "algorithm": "rfms", "num_rounds": None} | more)
      for text, more in (
        ("the agents of digits-svm have none", {"objective": "digits-svm"}),
        ("allow_models_with_data", {"objective": SVM_SITES, "agents": None}),
        ("start: expected no observations", {"start": Start(prior_rounds=2)}),
        ("query_budget=200", {"agents": Agents(5, site_options={"budget": 3})}),
    )),
]  # fmt: skip
# what the error says, and a call
CALLS = [
    ("TuningStrategy: expected an algorithm, got", partial(TuningStrategy, 3)),
    ("FTS: expected options of fts, got", partial(STRATEGIES["fts"], CoKG())),
    ("algorithm: expected one of", partial(find, "halton-of-nobody")),
    # -- problems
    ("digits-svm, digits-trees, gp-samples, .*, table:FILE, got 'mnist'", making("mnist")),
    ("f1: expected options among noise_variance=0.02; got noise$", making("f1", noise=1)),
    *((f"^{name}: .*expected .*{expected}.*, got", making(name, **{option: value}))
      for name, option, value, expected in (
        ("digits-svm", "concentration", float("nan"), "a finite number"),
        ("digits-svm", "min_size", 40.0, "an integer"), ("digits-svm", "min_size", 10, "more than 10 rows"),
        ("digits-svm", "min_size", 90, "at most 19 agents with min_size=90"),
        ("digits-svm", "train_fraction", 1.0, "between 0 and 1"),
        ("gp-samples", "difference", -0.1, "a non-negative number"), ("gp-samples", "dimension", 3, "1 or 2"),
        ("gp-samples", "offset", None, "'sign' or 'smooth'"),
        ("gp-samples", "lengthscale", 0.0, "a positive number"),
        ("gp-samples", "function_seed", -1, "None or a non-negative int"),
    )),
    *((r"agents: expected an integer|gp-samples: ", partial(make_problem, "gp-samples", n, seed, {}))
      for n, seed in ((0, 0), (2.0, 0), (2, -1), (2, 0.5), (True, 0))),
    *((f"{SITES}: {text}", making(SITES, **options)) for text, options in (
        ("openbox: expected a site from 0 to 4, got 5", {"openbox": 5}),
        ("lockbox: expected another site than the openbox, got 2", {"openbox": 2, "lockbox": 2}),
        ("variance: expected a number between 0 and 1", {"variance": 1.0}),
    )),
    ("learner: expected one of elastic-net, svm, forest, got 'knn'", partial(make_learner, "knn")),
    *(("expected a number in the configuration, got None", partial(fit_without_parameters, name))
      for name in LEARNERS),
    ("expected two classes, got 1", partial(logistic_regression, np.zeros((3, 1)), [1, 1, 1], 0.1, 0.5, 1.0)),
    # -- partitions
    *((text, partial(dirichlet, labels, *given[:2], generator(0), *given[2:])) for text, labels, given in (
        ("at least 2000 rows for 20 parts of 100, got 1800", TEN_CLASSES, (20, 0.5, 100, 1)),
        ("2 classes in each of 3 parts, got 2 classes that serve 4 of 6", [0] * 5 + [1], (3, 0.5, 1, 2)),
        *(("concentration: expected", TEN_CLASSES, (2, c, 1, 1)) for c in (0.0, np.nan, np.inf)),
        *(("an integer >= 1", TEN_CLASSES, m) for m in ((0, 0.5, 1, 1), (2, 0.5, 0, 1), (2, 0.5, 1, 0))),
    )),
    *(("labels: expected two classes of at least 5 rows, got", call)
      for labels in ([0] * 20, [0] * 16 + [1] * 4, [0, 1, 2] * 10)
      for call in (partial(stratified_random, labels, 5, generator(0)),
                   partial(clustered, np.zeros((len(labels), 2)), labels, 5, 0.1, generator(0)))),
    *((f"clustered: {name}: expected", partial(clustered, FEATURES, LABELS, 5, rng=generator(0), **{
        "variance": 0.1, "min_share": 0.1, name: wrong,
    })) for name, wrong in (("variance", 0.0), ("variance", 1.0), ("min_share", 0.21), ("min_share", -0.1))),
    ("a class with two rows", partial(train_validation, [0, 1, 2], 0.5, generator(0))),
    # -- durations
    *(("expected", partial(durations, wrong)) for wrong in ("fast", True, -1.0)),
    *(("expected seconds for 'a'", partial(durations, {"a": wrong})) for wrong in (-1.0, [], [1.0, np.nan])),
    *(("expected constant:SECONDS", partial(parse_durations, text))
      for text in ("", "constant:", "constant:1,2", "heavy:1", "table:")),
    *(("expected", partial(parse_durations, text))
      for text in ("constant:nan", "lognormal:1,inf", "heavy:1,0", "lognormal:-1,1")),
]  # fmt: skip
TABLES = {
    "": "got none",
    "agent,second\na,1\n": "expected the columns agent and seconds",
    "agent,seconds\na,fast\n": "expected a CSV file with numbers",
    "agent,seconds\na\n": "expected a CSV file with numbers",
    "agent,seconds\na,nan\n": "expected seconds for 'a', not negative",
    "agent,started,ended\na,5,3\n": "expected seconds for 'a', not negative",
}


def refused(call, message):
    with pytest.raises((FBOError, ValueError), match=message):
        call()


@pytest.mark.parametrize(("words", "changes"), ARGUMENTS)
def test_a_wrong_argument_is_one_line_with_the_remedy(words, changes):
    refused(partial(tune, **changes), re.escape(words))


@pytest.mark.parametrize(("message", "call"), CALLS)
def test_a_problem_a_partition_or_a_duration_that_cannot_be_is_one_line(message, call):
    refused(call, message)


def test_a_wrong_table_of_durations_is_refused(tmp_path):
    for text, message in TABLES.items():
        (tmp_path / "seconds.csv").write_text(text)
        refused(partial(parse_durations, f"table:{tmp_path / 'seconds.csv'}"), message)
