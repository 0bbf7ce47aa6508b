"""Personal hyperparameters: what an agent proposes is what its client trains with, and each finds its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from toy_federation import toy_app, toy_model, tune_flat

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.algorithms import find
from fbo_flower.simulation import FIRST_NODE, InProcessGrid
from studies.tuning import Personal
from studies.tuning.personal import PersonalAgents, _Levels, expected

OWN = SearchSpace({"step": Float(0.0, 1.0)})


def own_app(best: list[float], liar: int | None = None, seen: list[Any] | None = None) -> ClientApp:
    """Return an app whose client `i` has the loss `(step - best[i])^2`, over a level of round and client."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        me = int(context.node_config["partition-id"])
        config: Any = message.content["config"]
        if seen is not None:
            seen.append((me, dict(config)))
        loss = (config["step"] - best[me]) ** 2 + me + 5.0 / config["server-round"]
        if me == liar:
            loss = -1e15 * config["step"]
        content = RecordDict({
            "arrays": message.content["arrays"],
            "metrics": MetricRecord({"num-examples": 10, "val-loss": float(loss)}),
        })  # fmt: skip
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 10, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def model() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(1))})


def found_by(strategy: Personal, space: SearchSpace = OWN) -> dict[int, float]:
    return {int(c) - FIRST_NODE: float(v["step"]) for c, v in strategy.best_configs.items()}


@pytest.mark.parametrize("algorithm", ["fed-ei", "fts"])
def test_each_client_finds_its_own_value(algorithm: str) -> None:
    best = [0.2, 0.25, 0.2, 0.8, 0.75, 0.8]
    strategy = Personal(FedAvg(), OWN, algorithm=algorithm, seed=2)
    strategy.start(InProcessGrid(own_app(best), 6), model(), num_rounds=14)
    found = found_by(strategy)
    assert all((found[i] < 0.5) == (best[i] < 0.5) for i in range(6))
    assert np.median([abs(found[i] - best[i]) for i in range(6)]) < 0.1


def test_a_reward_leaves_out_what_a_round_and_a_client_have_in_common() -> None:
    rng = np.random.default_rng(0)
    levels, client, falling = _Levels(), rng.normal(0, 3, 9), 10.0 / np.arange(1, 31)
    found, own = np.full((30, 9), np.nan), np.full((30, 9), np.nan)
    for t in range(30):
        present = rng.permutation(9)[:5]
        points = {str(c): rng.random(1) for c in present}
        for c in present:
            own[t, c] = -float((points[str(c)][0] - 0.5) ** 2)
        losses = {str(c): float(client[c] + falling[t] - own[t, c]) for c in present}
        for name, reward in levels.rewards(losses, points).items():
            found[t, int(name)] = reward
    for c in range(9):
        rows = np.flatnonzero(np.isfinite(found[:, c]))[2:]
        assert np.corrcoef(found[rows, c], own[rows, c])[0, 1] > 0.7  # the levels fell from 10 to 0.3


def test_rewards_compare_early_rounds_with_late_ones_when_all_clients_improve() -> None:
    """A level that falls with everybody's tuning would make the first rounds look best."""
    rng = np.random.default_rng(1)
    levels, early, late = _Levels(), [], []
    for t in range(20):
        points = {str(c): rng.random(1) if t < 6 else np.array([0.5]) for c in range(9)}
        losses = {name: 4.0 * float((point[0] - 0.5) ** 2) for name, point in points.items()}
        (early if t < 6 else late).extend(levels.rewards(losses, points).values())
    assert np.mean(late) > np.mean(early) + 0.15  # 0.33 would be the whole of it


def test_what_is_expected_is_the_posterior_mean_of_scikit_learn() -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    rng = np.random.default_rng(2)
    x, y, z = rng.random((7, 2)), rng.normal(3, 1, 7), rng.random((3, 2))
    process = GaussianProcessRegressor(RBF(0.3 * 2**0.5), alpha=0.1, optimizer=None)
    process.fit(x, y - y.mean())
    np.testing.assert_allclose(expected(x, y, z), process.predict(z) + y.mean(), rtol=1e-9)


def test_a_client_that_lies_costs_only_its_own() -> None:
    best = [0.2, 0.25, 0.2, 0.8, 0.75, 0.8, 0.3]
    honest = Personal(FedAvg(), OWN, algorithm="ei", seed=1)
    honest.start(InProcessGrid(own_app(best), 7), model(), num_rounds=12)
    strategy = Personal(FedAvg(), OWN, algorithm="ei", seed=1)
    strategy.start(InProcessGrid(own_app(best, liar=6), 7), model(), num_rounds=12)
    found, without = found_by(strategy), found_by(honest)
    lies, truths = (
        np.abs(np.subtract([values[i] for i in range(6)], best[:6])) for values in (found, without)
    )
    assert lies.mean() < truths.mean() + 0.05
    assert lies.max() < 0.2
    assert np.isfinite(strategy.answers[:, 2]).all()


def test_losses_out_of_bounds_are_left_out_with_their_models() -> None:
    best = [0.2, 0.25, 0.2, 0.8]
    strategy = Personal(FedAvg(), OWN, algorithm="ei", bounds=(0.0, 100.0))
    strategy.start(InProcessGrid(own_app(best, liar=3), 4), model(), num_rounds=3)
    place = strategy.clients.index(str(FIRST_NODE + 3))
    assert np.isnan(strategy.answers[strategy.answers[:, 1] == place, 2]).all()
    assert str(FIRST_NODE + 3) not in strategy.best_configs


def test_a_point_without_an_answer_is_tried_again_and_then_given_up() -> None:
    algorithm = find("ei").load().from_options({"num_initial": 2})
    agents = PersonalAgents(algorithm, OWN, 0)
    first = agents.ask(1, ["a"])["a"]
    agents.tell({"a": float("nan")})
    np.testing.assert_array_equal(agents.ask(2, ["a"])["a"], first)
    agents.tell({"a": float("nan")})
    assert (agents.ask(3, ["a"])["a"] != first).all()
    agents.tell({"a": 1.0})
    assert len(agents.ask(4, ["a", "b"])) == 2


# within the tuner


def test_trials_of_the_tuner_may_be_runs_with_personal_values() -> None:
    seen: list[tuple[int, str, dict[str, Any]]] = []
    own = SearchSpace({"learning-rate": Float(0.01, 1.0)})

    def tune(**changes: Any) -> Any:
        arguments: dict[str, Any] = {"rounds": 4, "eta": 2, "num_trials": 4, "num_initial": 4, "number": 4}
        return tune_flat(
            InProcessGrid(toy_app(seen), 4),
            lambda config: Personal(FedAvg(), own, seed=1),
            SearchSpace({"shared": Int(1, 5)}),
            initial_arrays=toy_model(),
            **{**arguments, **changes},
        )

    stopped = tune()
    assert len({config["learning-rate"] for _, kind, config in seen if kind == "train"}) > 10
    whole = tune(schedule="none")
    finished = stopped.trials.where(state="finished")
    assert len(finished)
    for trial in finished:  # a promoted trial goes on as a whole run would
        assert stopped.curve(trial["trial"]) == whole.curve(trial["trial"])
