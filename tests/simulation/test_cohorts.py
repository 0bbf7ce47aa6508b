"""A study is the same, bit for bit, however many agents are answered together."""

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import make_algorithm
from fbo_flower.clients import client_app
from fbo_flower.simulation import grids, make_problem, simulate


def trials(algorithm, options, batch, monkeypatch):
    monkeypatch.setattr(grids, "BATCH", batch)
    made = make_algorithm(algorithm, options | {"num_candidates": 64})
    problem = make_problem("gp-samples", 4, 0, {"dimension": 2})
    found = simulate(problem, algorithm=made, num_rounds=4, engine="inline")
    return [tuple(found.trials[c].tolist()) for c in ("agent", "trial", "value")]


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("fts", {"lengthscale": "federated", "secure_sums": 3}),
        ("fts", {"advice": "mixture", "trials_per_round": 3}),
        ("rgpe", {"num_features": 20, "num_draws": 20, "refresh_every": 2, "draws": "bootstrap"}),
        ("fed-ei", {"secure_sums": 3, "trials_per_round": 2}),
    ],
)
def test_a_study_does_not_depend_on_the_size_of_batches(algorithm, options, monkeypatch):
    one, three = (trials(algorithm, options, batch, monkeypatch) for batch in (1, 3))
    assert one == three


def test_a_malformed_message_does_not_spoil_its_batch():
    app = client_app(lambda config, context: 0.0, SearchSpace({"x": Float(0.0, 1.0)}), seed=1)
    grids.identify()
    contexts = [Context(1, node, {"partition-id": node}, RecordDict(), {}) for node in range(2)]
    bad = Message(RecordDict({"config": ConfigRecord({"x": 1})}), 0, "train")
    query = Message(RecordDict(), 1, "query")
    first, second = app.answer_together([(bad, contexts[0]), (query, contexts[1])])
    assert isinstance(first, Exception)
    assert second.content["config"]["agent"] == "1"
