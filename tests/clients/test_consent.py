"""What an operator's `disclose` keeps at the agent: the best point of `fed-ei` leaves only if it may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.disclosure import DISCLOSURES
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.clients import TuningAgent
from fbo_flower.clients.operator import Operator
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates.rff import draw_features
from fbo_flower.simulation.problems import make_problem

PROBLEM = make_problem("himmelblau", 4, 0)


def report(app: str | None, secure_sums: int = 0, **node_config: Any) -> wire.Packed:
    """Return an agent's answer to the first task of fed-ei."""
    algorithm = make_algorithm("fed-ei", {"secure_sums": secure_sums, "num_features": 5})
    options = canonical_json(algorithm.options())
    envelope = wire.Envelope("s", "0", PROBLEM.space.digest, "fed-ei", options)

    features = draw_features(5, 0.5, 2, np.random.default_rng(0))
    arrays = {"frequencies": features.frequencies, "phases": features.phases}
    task = Task(Phase.TRAIN, 1, 0, 3, arrays, {"share": True})
    context = Context(1, 2, {"partition-id": 0, **node_config}, RecordDict(), {})
    agent = TuningAgent(PROBLEM, PROBLEM.space, context, seed=1, disclose=app)
    return agent.answer(wire.encode_task(task, envelope))


@pytest.mark.parametrize("disclose", [None, *DISCLOSURES])
def test_the_best_point_leaves_only_with_consent(disclose: str | None) -> None:
    sent = report(disclose)
    assert ("point" in sent.arrays) == (disclose in ("point", "trials"))
    assert {"gram", "moment", "agreement"} <= set(sent.arrays)


def test_consent_to_the_point_is_no_consent_to_its_value_or_to_other_points() -> None:
    sent = report("point")
    assert not [name for name in (*sent.arrays, *sent.config) if name.startswith("disclosed.")]
    assert sent.arrays["point"].shape == (2,)


def test_the_operator_overrides_the_app() -> None:
    assert "point" not in report("trials", disclose="none").arrays
    assert "point" in report("none", disclose="point").arrays


def test_with_secure_sums_an_agent_outside_of_a_sum_sends_its_consented_point_alone() -> None:
    assert set(report("point", 3).arrays) == {"point"}
    assert not report("none", 3).arrays


def test_a_bound_on_epsilon_excludes_points() -> None:
    with pytest.raises(ConfigError, match="max_epsilon"):
        Operator.read({"disclose": "point", "max_epsilon": 1.0}, None)
