"""FedEx, FedPop and Personal leave absurd replies out, and go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from absurd_replies import ABSURD, lying
from toy_federation import fedavg, toy_model

from fbo_flower import Float, SearchSpace
from fbo_flower.simulation.grids import FIRST_NODE
from studies.tuning import FedEx, FedPop, Personal

CLIENTS = SearchSpace({"learning-rate": Float(0.01, 1.0)})
STRATEGIES: dict[str, Callable[[], Any]] = {
    "FedEx": lambda: FedEx(fedavg({}), CLIENTS, center={"learning-rate": 0.9}, num_configs=5),
    "FedPop": lambda: FedPop(fedavg({}), CLIENTS, center={"learning-rate": 0.9}, num_configs=4, every=2),
    "Personal": lambda: Personal(fedavg({}), CLIENTS, algorithm="random"),
}


@pytest.mark.parametrize("lie", ABSURD)
@pytest.mark.parametrize("name", STRATEGIES)
def test_an_absurd_reply_costs_its_own_contribution(name: str, lie: str, caplog: Any) -> None:
    with caplog.at_level("WARNING", logger="flwr"):
        result = STRATEGIES[name]().start(lying(lie), toy_model(), num_rounds=3)
    model = result.arrays["w"].numpy()
    assert model.dtype == np.float64
    assert 0.0 < model[0] < 1.2
    accuracies = [record["accuracy"] for record in result.evaluate_metrics_clientapp.values()]
    assert len(accuracies) == 3
    assert all(-1.0 < accuracy <= 1.0 for accuracy in accuracies)
    lines = [record.getMessage() for record in caplog.records]
    refused = [line for line in lines if "goes on without a reply" in line]
    assert len(refused) >= 3
    assert all(f"{name} goes on without a reply: client {FIRST_NODE + 4}: " in line for line in refused)
