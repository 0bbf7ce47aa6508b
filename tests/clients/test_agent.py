"""An agent: what it answers, what it discloses, what it refuses, and what it remembers."""

import json
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pytest
from agents import SPACE, Objective, node, packed, task
from contract import same
from flwr.app import ConfigRecord, Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import FTS, RandomSearch
from fbo_flower.algorithms.messages import Content, real, summable
from fbo_flower.algorithms.records import Array, Phase
from fbo_flower.clients import TuningAgent
from fbo_flower.errors import ConfigError, FBOError, JournalError, WireError
from fbo_flower.numerics.surrogates import rff
from fbo_flower.wire.flower_records import to_lists

CANARY = 0.7234567890123457  # a value that must not leave
FEATURES = rff.draw_features(20, 0.5, 2, np.random.default_rng(0))
MODEL = FTS(num_features=20, num_candidates=64, num_path_features=32)
ARRAYS = {"frequencies": FEATURES.frequencies, "phases": FEATURES.phases}


def canary(function=lambda config, context: CANARY * (1 + context.trial)):
    return Objective(function)


def agent(objective=None, context=None, **options):
    return TuningAgent(objective or canary(), SPACE, context or node(), **{"seed": 4, **options})


def asked(trial=0, num_trials=3, arrays=ARRAYS, phase=Phase.TRAIN, **envelope):
    """Return a task of FTS, with the features of its message."""
    return packed(MODEL, task(trial, num_trials, phase, arrays=arrays, values={"message": True}), **envelope)


def simple(trial=0, num_trials=3, phase=Phase.TRAIN, **envelope):
    return packed(RandomSearch(), task(trial, num_trials, phase), **envelope)


# -- what it answers ---------------------------------------------------------------------------


@pytest.mark.parametrize(("config", "name"), [({"partition-id": 3}, "3"), ({"agent": "pump-7"}, "pump-7")])
def test_objective_is_told_where_it_is(config, name):
    seen = []
    objective = canary(lambda config, context: seen.append((config, context)) or 0.5)
    context = Context(1, 5, {"data": "here.csv", **config}, RecordDict(), {})
    agent(objective, context).answer(simple(0, 2, agent=name))
    assert set(seen[1][0]) == {"x", "y"}
    told, partition = seen[1][1], config.get("partition-id", -1)
    assert (told.agent, told.partition, told.trial, told.server_round) == (name, partition, 1, 1)
    assert told.node_config["data"] == "here.csv"


def test_evaluate_returns_scalars_only():
    loss, count, config = agent(disclose="incumbent").evaluate(*to_lists(simple(phase=Phase.EVALUATE)))
    assert (loss, count) == (0.0, 3)
    assert config["disclosed.incumbent"] == pytest.approx(3 * CANARY)
    _, _, everything = agent(disclose="trials").evaluate(*to_lists(simple(phase=Phase.EVALUATE)))
    assert everything == config, "trials are arrays, which cannot travel"
    with pytest.raises(WireError, match="scalars"):
        agent().evaluate(*to_lists(asked(phase=Phase.EVALUATE)))


# -- what it discloses -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Told(Content):
    """A report: a sum, the best value and the best point."""

    total: Annotated[Array | None, summable(1, bound=1e6)] = None
    best: Annotated[Array | None, real(1, disclose=("incumbent", "trials"))] = None
    point: Annotated[Array | None, real("D", low=0.0, high=1.0, disclose=("trials",))] = None


@dataclass(frozen=True, kw_only=True)
class Telling(RandomSearch):
    """Random search whose agents tell the sum of their values; with consent their best value and point."""

    name: ClassVar[str] = "telling"
    report_content: ClassVar[type[Content]] = Told

    def summarise(self, task, agent_state, rng):
        points, values = agent_state.history.points, agent_state.history.values
        row = int(np.argmax(values))
        return Told(total=values.sum(keepdims=True), best=values[[row]], point=points[row])


NOTHING = {"total"}
BEST = {"total", "best", "disclosed.incumbent"}
TRIALS = {"point", "disclosed.failures", "disclosed.points", "disclosed.values", "disclosed.times"} | BEST


@pytest.mark.parametrize(
    ("app", "operator", "expected"),
    [
        (None, {}, NOTHING), ("none", {}, NOTHING), ("incumbent", {}, BEST), ("trials", {}, TRIALS),
        ("trials", {"disclose": "none"}, NOTHING), ("trials", {"disclose": "incumbent"}, BEST),
        ("none", {"disclose": "trials"}, TRIALS),
    ],
)  # fmt: skip
def test_arrays_leave_only_with_consent_and_the_operator_overrides_the_app(app, operator, expected):
    def names(secure_sums):
        one = agent(context=node(**operator), disclose=app, algorithms=[Telling])
        reply = one.answer(packed(Telling(secure_sums=secure_sums), task()))
        if "disclosed.incumbent" in expected:
            assert reply.config["disclosed.incumbent"] == 3 * CANARY
        return {*reply.arrays, *(n for n in reply.config if n.startswith("disclosed."))}

    assert names(0) == expected
    assert names(3) == expected - NOTHING, "an agent outside of a secure sum sends no summand"


def test_reasons_of_failures_stay_at_home_unless_trials_are_disclosed():
    def failing(config, context):
        raise ValueError(f"patient {CANARY} at {config['x']}")

    context = node()
    reply = agent(canary(failing), context).answer(simple())
    assert reply.config["num-failed"] == 3
    assert "patient" not in str(reply)
    told = agent(canary(failing), context, disclose="trials").answer(simple())
    failures = json.loads(told.config["disclosed.failures"])
    assert list(failures) == ["0", "1", "2"]
    assert failures["0"].startswith(f"ValueError: patient {CANARY}")


# -- what it refuses ---------------------------------------------------------------------------


WRONG_ENTRIES = {  # `tests/wire` shows what a message may be made of; None: the key itself is in the error
    "agent": [("4", None), ("", None)], "space": [("0" * 64, "digest")],
    "algorithm": [("nope", "random, ts, fts"), ("", "random, ts, fts")],
    "options": [
        ('{"nope":1}', "no option"), ('{"num_initial":0}', "num_initial"), ("[]", None),
        ("[" * 100_000, None), ('{"num_initial":' + "9" * 5000 + "}", None),
    ],
    "schema": [(2, None)], "phase": [("later", None)], "trial": [(1, None), (-1, None)],
    "num-trials": [(wire.MAX_TASK + 1, "num-trials: expected at most 10000000")],
    "names": [("a", None)], "values": [('{"message":1}', None)], "round": [(None, None)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "match"), [(key, *pair) for key, every in WRONG_ENTRIES.items() for pair in every]
)
def test_tasks_that_cannot_be_trusted_are_refused_before_anything_is_evaluated(key, value, match):
    objective, context = canary(), node()
    arrays, config = to_lists(simple())
    with pytest.raises(FBOError, match=match or key):
        agent(objective, context).fit(arrays, config | {key: value})
    assert not objective.calls
    assert not context.state


def test_arrays_that_do_not_fit_the_schema_and_options_that_do_not_fit_the_space_are_refused():
    objective = canary()
    with pytest.raises(ConfigError, match="lengthscale"):
        agent(objective).answer(asked(options='{"lengthscale":[0.1]}'))
    for name, array in (
        ("point", np.array([0.5, 1.5])), ("weights", np.ones(21)), ("frequencies", np.ones((20, 3))),
        ("messages", np.ones((33, 20))), ("history.points", np.zeros((1, 2))),
    ):  # fmt: skip
        with pytest.raises(WireError, match=name):
            agent(objective).answer(asked(arrays={**ARRAYS, name: array}))
    assert not objective.calls


@pytest.mark.parametrize("config", [{}, {"agent": ""}, {"agent": "a,b"}, {"agent": "x\n"}])
def test_nodes_without_a_usable_name_are_config_errors(config):
    with pytest.raises(ConfigError, match="agent"):
        agent(context=Context(1, 5, config, RecordDict(), {}))


# -- what it remembers -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [4, None])
def test_a_task_that_comes_again_is_not_done_again(seed):
    """Without a seed a device draws once what nobody can repeat."""
    objective, context = canary(), node()
    first = agent(objective, context, seed=seed).answer(asked())
    later = asked()
    later.config["round"] = 6
    again = agent(objective, context, seed=seed).answer(later)  # a new process, the same state
    assert again.config == first.config | {"round": 6}
    assert same(again.arrays, first.arrays)
    assert objective.trials == [0, 1, 2]
    other = agent(seed=seed).answer(asked()).arrays["weights"]
    assert np.array_equal(first.arrays["weights"], other) == (seed == 4)


def test_a_task_that_begins_with_a_trial_that_was_made_is_refused_and_tells_nothing():
    objective, context = canary(), node()
    agent(objective, context).answer(simple(0, 3))
    for first in (1, 9):
        with pytest.raises(WireError, match="trial: expected 3") as caught:
            agent(objective, context, disclose="trials").answer(simple(first, 4))
        assert "0.72" not in str(caught.value)
    agent(objective, context).answer(simple(0, 1, study="another"))
    assert objective.trials == [0, 1, 2, 0]


def test_a_task_beyond_the_budget_is_done_as_far_as_it_reaches_and_the_next_one_declined():
    objective, context = canary(), node(max_trials=2)
    reply = agent(objective, context).answer(simple(0, 3))
    assert (objective.trials, reply.config["num-trials"]) == ([0, 1], 2)
    assert reply.config["spent"] is True
    for study, trial in (("s", 2), ("another", 0)):  # the budget is one for all studies
        further = simple(trial, 1, study=study)
        declined = agent(objective, context).answer(further)
        assert wire.declines(declined, wire.decode_envelope(further.config))
    agent(objective, context).answer(simple(0, 3))  # answered before: costs nothing
    assert objective.trials == [0, 1]


def test_damaged_memory_is_a_journal_error_and_nothing_is_evaluated():
    objective = canary()
    known = {"study": "s", "entropy": "4", "algorithm": "", "answered": "{}"}
    damaged = ConfigRecord({**known, "data": b"\x00" * 40})
    with pytest.raises(JournalError, match="stored state"):
        agent(objective, node(state=RecordDict({"fbo-flower.memory": damaged}))).answer(asked())
    assert not objective.calls


def test_observations_from_before_make_the_first_message_and_are_not_disclosed():
    points = np.random.default_rng(0).random((8, 2))
    prior = (points, 99 + points.sum(axis=1))
    sent = [agent(prior={name: prior}).answer(asked(0, 0)).arrays for name in ("3", "4")]
    assert list(map(list, sent)) == [["weights"], []]
    reply = agent(prior={"3": prior}, disclose="trials").answer(simple())
    assert reply.arrays["disclosed.points"].shape == (3, 2)
    assert reply.config["disclosed.incumbent"] == 3 * CANARY, "the best of this study"
