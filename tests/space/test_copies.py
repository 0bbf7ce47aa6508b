"""What users are given is theirs to change, and so is what they have given: our state stays as it is.

`said` writes down all that an object tells; `ruin` changes, in place, whatever comes out of it.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
from federation import agents
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from toy_federation import SPACE as RATES
from toy_federation import fedavg, toy_grid, toy_model
from tracked import SPACE as CONDITIONAL
from tracked import tune

from fbo_flower import Categorical, Float, Int, Optimizer, SearchSpace, simulate
from fbo_flower.algorithms import ALGORITHMS, DPFTS, FTS
from fbo_flower.clients import Bag, ObjectiveContext, SiteData, SiteObjective, client_app
from fbo_flower.federated import Run, Search, TunerProgress, tune_federation
from fbo_flower.federated.replies import Metric
from fbo_flower.simulation import Agents, Clock, InProcessGrid, Start
from fbo_flower.space.copies import own
from fbo_flower.space.held import HeldSpace
from fbo_flower.strategies import STRATEGIES, TuningStrategy
from fbo_flower.study import Study, Table
from fbo_flower.trackers import Callback

SPACE = SearchSpace({"x": Float(0, 1), "n": Int(1, 9)})
# they draw, write or run something, or belong to another library
UNCALLED = set(
    ["plot", "report", "save", "stop", "finish", "summary", "to_optuna", "to_dataframe", "ask", "should_stop"]
)


def told(value):
    """Return what the public properties of an object, and its methods without arguments, return."""
    found = {}
    for name in dir(value):
        if name.startswith("_") or name in UNCALLED:
            continue
        with suppress(Exception):  # a method that needs an argument, a study without a best value
            member = getattr(value, name)
            member = member() if callable(member) else member
            found[name] = list(member) if isinstance(member, Iterator) else member
    return {name: member for name, member in found.items() if member is not value}


def is_ours(value):
    return type(value).__module__.startswith("fbo_flower")


def said(value, depth=3):
    """Return all that a value says, as something that compares by value."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, [said(item, depth) for item in value.tolist()]
    if isinstance(value, Mapping):
        return [(name, said(item, depth)) for name, item in value.items()]
    if isinstance(value, list | tuple):
        return [said(item, depth) for item in value]
    if isinstance(value, Table):
        return [said(row, depth) for row in value]
    if is_ours(value) and depth:
        return [(name, said(item, depth - 1)) for name, item in told(value).items()]
    return type(value).__name__ if " at 0x" in repr(value) else repr(value)


def ruin(value, depth=3):
    """Change a value in place, and all that comes out of it; return the number of containers."""
    if isinstance(value, list | tuple):
        count = sum(ruin(item, depth) for item in value)
        if isinstance(value, list):
            value.append("ruined")
        return count + 1
    if isinstance(value, Mapping):
        count = sum(ruin(item, depth) for item in list(value.values()))
        if isinstance(value, MutableMapping):
            value.clear()
        return count + 1
    if isinstance(value, np.ndarray):
        count = sum(ruin(item, depth) for item in value.tolist()) if value.dtype.hasobject else 0
        with suppress(ValueError):  # it is read-only, and stays so
            value.flags.writeable = True
        with suppress(ValueError, TypeError):
            value.fill(7)
        return count + 1
    if isinstance(value, Table):
        return ruin([*value, *(value[name] for name in value.columns), value.kinds], depth)
    return sum(ruin(item, depth - 1) for item in told(value).values()) if is_ours(value) and depth else 0


@cache
def events():
    """Return one event of each kind that a callback is told, and the study."""
    found: dict[str, Any] = {}

    class Keeping(Callback):
        def on_trial(self, study, trial):
            found.update(info=study, trial=trial)

        def on_round(self, study, finished):
            found["round"] = finished

        def on_finish(self, study, result):
            found["study"] = result

    tune([Keeping()])
    return found


def outputs(config, data):
    return {"accuracy": config["x"], "seconds": float(config["n"])}


@cache
def with_outputs(num_objectives):
    objectives = dict(list({"accuracy": "max", "seconds": "min"}.items())[:num_objectives])
    limits = {"seconds": 8.0}
    return simulate(outputs, SPACE, 2, "random", 3, objectives=objectives, limits=limits, engine="inline")


@cache
def tuned():
    progress: list[TunerProgress] = []
    result = tune_federation(
        toy_grid(), lambda config: Run(fedavg(config), toy_model()), RATES, rounds=2,
        search=Search(num_trials=3, proposals="random", schedule="none"), callbacks=[progress.append],
    )  # fmt: skip
    return result, progress[-1]


@cache
def optimizer(algorithm):
    found = Optimizer(SPACE, algorithm, objectives={"accuracy": "max"}, limits={"seconds": 8.0})
    for _ in range(4):
        config = found.ask()
        found.tell(config, outputs(config, None))
    return found


@cache
def strategy(name):
    found = STRATEGIES[name](num_agents=3, seed=1)
    found.start(agents(3), num_rounds=2)
    return found


GIVEN: dict[str, Callable[[], object]] = {
    "a study": lambda: events()["study"],
    "a study with regret": lambda: simulate("garland", algorithm="random", num_rounds=3, engine="inline"),
    "a study of noisy values": lambda: simulate(
        lambda config, data, context: config["x"] + context.rng.normal(), SPACE, 2, "ei", 9, engine="inline"
    ),
    "a study with limits": lambda: with_outputs(1),
    "a study with two objectives": lambda: with_outputs(2),
    "a callback's study": lambda: events()["info"],
    "a callback's trial": lambda: events()["trial"],
    "a callback's round": lambda: events()["round"],
    "a tuned federation": lambda: tuned()[0],
    "a tuner's progress": lambda: tuned()[1],
    "an optimizer": lambda: optimizer("ei"),
    "an optimizer at random": lambda: optimizer("random"),
    "a strategy that exports messages": lambda: strategy("fts"),
    "a strategy with sums": lambda: strategy("fed1-ucb"),
    "a space": lambda: CONDITIONAL,
    "a parameter": lambda: CONDITIONAL.parameters["gamma"],
    "a space with fixed values": lambda: HeldSpace(SPACE, {"n": 3}),
    "a context": lambda: ObjectiveContext(
        "0", 0, 0, 1, np.random.default_rng(0), {"data": "a.csv"}, {"epochs": 3}
    ),
    "agents": lambda: Agents(max_trials={"0": 3}, fixed=[{"n": 3}], site_options={"query_budget": 3}),
    "a start": lambda: Start(
        initial=[{"x": 0.5, "n": 3}], observations={"0": (np.zeros((2, 2)), np.zeros(2))}
    ),
    "a clock": lambda: Clock({"0": [1.0, 2.0]}),
    "a federation's run": lambda: Run(fedavg({}), toy_model(), {"epochs": [1, 2]}),
    **dict(ALGORITHMS),
    "options": lambda: DPFTS(lengthscale=(0.5, 0.25), secure_sums=3),
}


@pytest.mark.parametrize("make", GIVEN.values(), ids=GIVEN)
def test_nothing_that_comes_out_of_an_object_leads_into_it(make):
    given = make()
    before = said(given)
    twin = None if isinstance(given, Optimizer | TuningStrategy) else copy.deepcopy(given)
    assert before == said(given), "an object says the same twice"
    assert ruin(given) > 0
    assert said(given) == before
    if twin is not None:
        assert said(twin) == before, "a copy is equal"


# -- what users hand over ------------------------------------------------------------------------


HANDED_OVER = {
    "settings of a study": (
        lambda settings: Study(settings, events()["study"].trials, events()["study"].rounds),
        {**events()["study"].settings, "further": [1, {"deep": [2]}]},
    ),
    "rows of a table": (lambda rows: Table.from_rows(rows, ["config"]), [{"config": {"layers": [64]}}]),
    "columns of a table": (
        lambda columns: Table(columns, {"v": "real"}), {"v": np.zeros(3), "config": [{}, {}, {"x": 1}]}
    ),
    "parameters": (SearchSpace, {"x": Float(0, 1)}),
    "choices": (Categorical, [1, 2, 3]),
    "conditions": (lambda when: Float(0, 1, active_when=when), {"kernel": ["rbf", "poly"]}),
    "fixed": (lambda fixed: HeldSpace(SPACE, fixed), {"n": 3}),
    "targets": (lambda targets: FTS(targets=targets), ["0", "1"]),
    "lengthscales": (lambda scales: DPFTS(lengthscale=scales), [0.5, 0.25]),
    "agents": (lambda given: Agents(max_trials=given, limits={"0": given}), {"0": 3.0}),
    "initial": (lambda initial: Start(initial=initial), [{"x": 0.5, "n": 3}]),
    "observations": (lambda held: Start(observations=held), {"0": (np.zeros((2, 2)), np.zeros(2))}),
    "durations": (Clock, {"0": [1.0, 2.0]}),
    "train_config": (lambda config: Run(fedavg({}), toy_model(), config, config), {"epochs": [1, 2]}),
    "initial_arrays": (lambda arrays: Run(fedavg({}), arrays), toy_model()),
    "node_config": (lambda config: ObjectiveContext("0", 0, 0, 1, None, config, config), {"data": "a.csv"}),
    "objectives": (
        lambda given: Optimizer(SPACE, objectives=given[0], limits=given[1], reference=given[2]).aims,
        [{"accuracy": "max", "seconds": "min"}, {"seconds": 3.0}, {"seconds": 9.0}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "given"), HANDED_OVER.values(), ids=HANDED_OVER)
def test_a_user_may_change_what_was_handed_over(make, given):
    given = copy.deepcopy(given)
    made = make(given)
    before = said(made), repr(made)
    assert ruin(given) > 0
    assert (said(made), repr(made)) == before


def test_an_app_keeps_what_it_was_given():
    prior = {str(n): (np.full((2, 2), 0.5), np.ones(2)) for n in range(2)}
    handed: dict[str, Any] = {"fixed": {"n": 3}, "prior": prior, "initial": [{"x": 0.25, "n": 3}]}

    def study(*, clumsy):
        given = copy.deepcopy(handed)
        app = client_app(lambda config, context: config["x"], SPACE, seed=1, disclose="trials", **given)
        if clumsy:
            ruin(given)
        grid = InProcessGrid(app, 2)
        return STRATEGIES["ts"](num_agents=2, seed=1, num_initial=2).start(grid, num_rounds=3).study

    assert study(clumsy=True).trials == study(clumsy=False).trials


# -- what functions of users are given -----------------------------------------------------------


def clumsy(config, context):
    """Ruin all arguments and return a value."""
    value = float(config.pop("n")) + context.node_config.pop("partition-id", 0) * 1e-3
    config["layers"] = [1]
    context.node_config.clear()
    context.run_config.clear()
    return value


def careful(config, context):
    return float(config["n"]) + context.node_config["partition-id"] * 1e-3


@pytest.mark.parametrize("num_parallel", [1, 2])
@pytest.mark.parametrize(("name", "options"), [("fed1-ucb", {"budget": 40}), ("random", {})])
def test_an_objective_may_change_its_arguments(name, options, num_parallel):
    """Repeats of one point, several trials of a task, and worker processes."""

    def study(objective):
        app = client_app(objective, SPACE, seed=1, disclose="trials", num_parallel=num_parallel)
        grid = InProcessGrid(app, 2, run_config={"epochs": 3})
        return STRATEGIES[name](num_agents=2, seed=1, **options).start(grid, num_rounds=1).study

    found = study(clumsy)
    assert set(found.trials["failure"]) == {""}
    assert found.trials == study(careful).trials


class InPlace:
    """An estimator that scales its rows in place; a larger configuration is better."""

    def __init__(self, size):
        self.size = size

    def fit(self, x, y):
        x *= 2.0
        y[:] = 0
        self.scale = float(np.abs(x).max())
        return self

    def predict(self, x):
        x += 1.0
        return np.zeros(len(x))


def test_a_site_keeps_its_rows_and_its_configuration():
    rng = np.random.default_rng(0)
    data = SiteData(*(Bag(rng.normal(size=(20, 2)), np.arange(20) % 2) for _ in range(2)))
    before = said(data)
    site = SiteObjective(lambda config: InPlace(config.pop("size")), lambda context: data, folds=2)
    context = ObjectiveContext("0", 0, 0, 1, rng)
    models = []
    found = [site.train({"size": 3.0}, context, lambda model, x: models.append(x.copy())) for _ in range(2)]
    found += [site.judge(trained.model.predict, "all", context) for trained in found]
    assert said(data) == before
    assert [one.loss for one in found] == [0.5] * 4
    assert found[0].model.scale == found[1].model.scale
    assert np.array_equal(models[0], data.inbag.x)


class Ruining(Callback):
    """Ruins what it is told."""

    def on_trial(self, study, trial):
        ruin(study)
        ruin(trial)

    def on_round(self, study, finished):
        ruin(finished)

    def on_finish(self, study, result):
        ruin(result)


def test_a_callback_changes_neither_the_study_nor_what_others_are_told():
    def study(*callbacks):
        heard: list[Any] = []

        class Listening(Callback):
            def on_trial(self, study, trial):
                heard.append([pair for pair in said(trial) if pair[0] not in {"started", "ended"}])

        objectives, told = {"accuracy": "max", "seconds": "min"}, [*callbacks, Listening()]
        found = simulate(
            outputs, SPACE, 2, "random", 3, objectives=objectives, engine="inline", callbacks=told
        )
        return found.trials, heard

    assert study(Ruining()) == study()


class ClumsyStrategy(FedAvg):
    """Empties the models that it is given, and those that it has returned."""

    def configure_train(self, server_round, arrays, config, grid):
        found = list(super().configure_train(server_round, copy.deepcopy(arrays), config, grid))
        arrays.clear()
        return found

    def aggregate_train(self, server_round, replies):
        self.returned = super().aggregate_train(server_round, replies)
        return self.returned

    def configure_evaluate(self, server_round, arrays, config, grid):
        self.returned[0].clear()
        found = list(super().configure_evaluate(server_round, copy.deepcopy(arrays), config, grid))
        arrays.clear()
        return found


def test_hooks_of_a_tuned_federation_may_change_what_they_are_given():
    def result(*, clumsy):
        shared: dict[str, Any] = {"epochs": [1]}
        model, seen = toy_model(), []

        def build(config):
            shared["epochs"].append(2) if clumsy else shared.update(epochs=[*shared["epochs"], 2])
            seen.append(config.pop("learning-rate"))
            least = {"min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}
            kind = ClumsyStrategy if clumsy else FedAvg
            return Run(kind(**least), model, shared, evaluate_fn=evaluate)

        def evaluate(server_round, arrays):
            norm = float(np.linalg.norm(arrays.to_numpy_ndarrays()[0]))
            if clumsy:
                arrays.clear()
            return MetricRecord({"norm": norm})

        return tune_federation(
            toy_grid(), build, RATES, rounds=2, callbacks=[ruin] if clumsy else [],
            search=Search(num_trials=3, num_parallel=2, proposals="random", schedule="none"),
        )  # fmt: skip

    found, expected = result(clumsy=True), result(clumsy=False)
    assert (found.trials, found.curves) == (expected.trials, expected.curves)
    assert found.best_arrays == expected.best_arrays


def test_a_function_of_the_metrics_may_change_them():
    metrics = {"losses": [3.0, 2.0, 1.0]}
    metric = Metric(lambda given: given.pop("losses").pop())
    assert [metric.of(metrics), metric.required(metrics), metrics] == [1.0, 1.0, {"losses": [3.0, 2.0, 1.0]}]


def test_each_node_of_a_grid_gets_a_message_of_its_own():
    app, seen = ClientApp(), []

    @app.train()
    def train(message, context):
        seen.append(message.content["config"].pop("rate"))
        return Message(RecordDict(), reply_to=message)

    grid = InProcessGrid(app, 2)
    content = RecordDict({"config": ConfigRecord({"rate": 0.5})})
    grid.send_and_receive([Message(content, node, "train") for node in grid.get_node_ids()])
    assert seen == [0.5, 0.5]
    assert content["config"] == ConfigRecord({"rate": 0.5})


def test_the_end_of_a_study_gives_an_agent_a_context_of_its_own():
    def on_finish(answer, context):
        ruin([answer.config, context.node_config, context.run_config])

    grid = agents(2, on_finish=on_finish)
    STRATEGIES["random"](num_agents=2, seed=1).start(grid, num_rounds=1)
    assert [context.node_config["partition-id"] for context in grid.contexts.values()] == [0, 1]


def test_a_copy_is_deep_and_leaves_other_objects_as_they_are():
    data, array = object(), np.asfortranarray(np.eye(3))
    value = {"a": [1, (2, {"b": array})], "data": data, "f": math.sqrt, "s": {1}}
    found: Any = own(value)
    assert found["data"] is data
    assert found["a"][1][1]["b"].flags.f_contiguous
    assert ruin(found) > 0
    assert said(value) == said({"a": [1, (2, {"b": np.eye(3)})], "data": data, "f": math.sqrt, "s": {1}})


def test_a_server_may_return_one_record_in_all_rounds():
    record = MetricRecord()

    def evaluate(server_round, arrays):
        record["round"] = server_round
        return record

    result = STRATEGIES["random"](num_agents=2, seed=1).start(agents(2), num_rounds=2, evaluate_fn=evaluate)
    assert [one["round"] for one in result.evaluate_metrics_serverapp.values()] == [0, 1, 2]
