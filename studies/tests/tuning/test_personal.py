"""Personal hyperparameters: what an agent proposes is what its client trains with, and each finds its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from toy_federation import toy_app, toy_model, tune_flat

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.simulation import FIRST_NODE, InProcessGrid
from studies.tuning import Personal
from studies.tuning.personal import _Live

OWN = SearchSpace({"step": Float(0.0, 1.0)})


def tuned(best: list[float], num_rounds: int, algorithm: str, seed: int, liar: int = -1) -> list[float]:
    """Return the value found for each client, whose loss is `(step - best)^2` over a level of its own."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        me, config = int(context.node_config["partition-id"]), message.content["config"]
        loss = (config["step"] - best[me]) ** 2 + me + 5.0 / config["server-round"]
        metrics = {"num-examples": 10, "val-loss": -1e15 * config["step"] if me == liar else loss}
        content = {"arrays": message.content["arrays"], "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=message)

    strategy = Personal(FedAvg(fraction_evaluate=0.0), OWN, algorithm=algorithm, seed=seed)
    strategy.start(InProcessGrid(app, len(best)), toy_model(), num_rounds=num_rounds)
    found = {int(c) - FIRST_NODE: float(v["step"]) for c, v in strategy.best_configs.items()}
    return [found[client] for client in range(len(best))]


@pytest.mark.parametrize("algorithm", ["fed-ei", "fts"])
def test_each_client_finds_its_own_value(algorithm: str) -> None:
    best = [0.2, 0.25, 0.2, 0.8, 0.75, 0.8]
    found = tuned(best, 14, algorithm, 2)
    assert [x < 0.5 for x in found] == [x < 0.5 for x in best]
    assert np.median(np.abs(np.subtract(found, best))) < 0.1


def test_a_reward_leaves_out_what_a_round_and_a_client_have_in_common() -> None:
    rng, live, rewards, own = np.random.default_rng(0), _Live(), np.full((30, 9), np.nan), np.zeros((30, 9))
    for t in range(30):
        points = {str(c): rng.random(1) for c in rng.permutation(9)[:5]}
        own[t] = [-((points[str(c)][0] - 0.5) ** 2) if str(c) in points else 0.0 for c in range(9)]
        losses = {c: 3.0 * int(c) + 10.0 / (1 + t) - own[t, int(c)] for c in points}
        for c, reward in live.rewards(losses, points).items():
            rewards[t, int(c)] = reward
    for c in range(9):
        rows = np.flatnonzero(np.isfinite(rewards[:, c]))[2:]
        assert np.corrcoef(rewards[rows, c], own[rows, c])[0, 1] > 0.7  # the levels fell from 10 to 0.3


def test_rewards_compare_early_rounds_with_late_ones_when_all_clients_improve() -> None:
    """A level that falls with everybody's tuning would make the first rounds look best."""
    rng, live, means = np.random.default_rng(1), _Live(), []
    for t in range(20):
        points = {str(c): rng.random(1) if t < 6 else np.array([0.5]) for c in range(9)}
        losses = {name: 4.0 * float((point[0] - 0.5) ** 2) for name, point in points.items()}
        means.append(np.mean([*live.rewards(losses, points).values()]))
    assert np.mean(means[6:]) > np.mean(means[:6]) + 0.15  # 0.33 would be the whole of it


def test_a_client_that_lies_costs_only_its_own() -> None:
    best = [0.2, 0.25, 0.2, 0.8, 0.75, 0.8, 0.3]
    truths, lies = (np.abs(np.subtract(tuned(best, 12, "ei", 1, liar), best))[:6] for liar in (-1, 6))
    assert lies.mean() < truths.mean() + 0.05
    assert lies.max() < 0.2


def test_a_point_without_an_answer_is_tried_again_and_then_given_up() -> None:
    strategy, tried = Personal(FedAvg(), OWN, algorithm="ei"), list[Any]()
    for number, answers in enumerate(([], [], ["a"], ["a", "b"]), 1):
        tried += strategy.choose(number, ["a"] if number < 4 else ["a", "b"])
        strategy.learn(number, answers, np.ones(len(answers)), np.ones(len(answers)))
    assert tried[1] == tried[0] != tried[2]
    assert len(tried) == 5
    assert strategy.clients == ["a", "b"]


def test_trials_of_the_tuner_may_be_runs_with_personal_values() -> None:
    seen: list[tuple[int, str, dict[str, Any]]] = []
    own = SearchSpace({"learning-rate": Float(0.01, 1.0)})

    def tune(**changes: Any) -> Any:
        return tune_flat(
            InProcessGrid(toy_app(seen), 4), lambda config: Personal(FedAvg(), own, seed=1),
            SearchSpace({"shared": Int(1, 5)}), initial_arrays=toy_model(), rounds=4, eta=2, num_trials=4,
            num_initial=4, number=4, **changes,
        )  # fmt: skip

    stopped = tune()
    assert len({config["learning-rate"] for _, kind, config in seen if kind == "train"}) > 10
    whole = tune(schedule="none")
    finished = stopped.trials.where(state="finished")
    assert len(finished)
    for trial in finished:  # a promoted trial goes on as a whole run would
        assert stopped.curve(trial["trial"]) == whole.curve(trial["trial"])
