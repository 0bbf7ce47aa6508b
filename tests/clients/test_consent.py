"""What an operator's `disclose` keeps at the agent: some arrays of a report leave only with its consent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fbo_flower import wire
from fbo_flower.algorithms import RandomSearch, make_algorithm
from fbo_flower.algorithms.disclosure import DISCLOSURES
from fbo_flower.algorithms.messages import Content, real, summable
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.records import AgentState, Array, Payload, Phase, Task
from fbo_flower.algorithms.requests import Rng
from fbo_flower.clients import TuningAgent
from fbo_flower.clients.operator import Operator
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.problems import make_problem

PROBLEM = make_problem("himmelblau", 4, 0)


@dataclass(frozen=True, kw_only=True)
class Told(Content):
    """A report: a sum, the best value and the best point."""

    total: Annotated[Array | None, summable(1, bound=1e6)] = None
    best: Annotated[Array | None, real(1)] = None
    point: Annotated[Array | None, real("D", low=0.0, high=1.0)] = None


@dataclass(frozen=True, kw_only=True)
class Telling(RandomSearch):
    """Random search whose agents tell the sum of their values; with consent their best value and point."""

    name: ClassVar[str] = "telling"
    report_content: ClassVar[type[Content]] = Told
    consent: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "best": ("incumbent", "trials"), "point": ("trials",)
    }  # fmt: skip

    secure_sums: int = 0

    def asks_for_sum(self, task: Task) -> bool:
        return True

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Payload:
        points, values = agent_state.history.points, agent_state.history.values
        row = int(np.argmax(values))
        return Told(total=values.sum(keepdims=True), best=values[[row]], point=points[row]).payload


def report(app: str | None, secure_sums: int = 0, **node_config: Any) -> wire.Packed:
    """Return an agent's answer to the first task."""
    context = Context(1, 2, {"partition-id": 0, **node_config}, RecordDict(), {})
    agent = TuningAgent(PROBLEM, PROBLEM.space, context, seed=1, disclose=app, algorithms=[Telling])
    options = canonical_json(make_algorithm("telling", {"secure_sums": secure_sums}).options())
    envelope = wire.Envelope("s", "0", PROBLEM.space.digest, "telling", options)
    return agent.answer(wire.encode_task(Task(Phase.TRAIN, 1, 0, 3), envelope))


def own(sent: wire.Packed) -> set[str]:
    """Return the names of the algorithm's own arrays in an answer."""
    return {name for name in sent.arrays if not name.startswith("disclosed.")}


EXPECTED = {
    None: {"total"},
    "none": {"total"},
    "incumbent": {"total", "best"},
    "trials": {"total", "best", "point"},
}


def test_every_setting_is_here() -> None:
    assert set(EXPECTED) == {None, *DISCLOSURES}


@pytest.mark.parametrize("disclose", EXPECTED)
def test_arrays_leave_only_with_consent(disclose: str | None) -> None:
    assert own(report(disclose)) == EXPECTED[disclose]


def test_consent_to_the_best_value_is_no_consent_to_points() -> None:
    sent = report("incumbent")
    assert {name for name in (*sent.arrays, *sent.config) if name.startswith("disclosed.")} == {
        "disclosed.incumbent"
    }
    assert sent.arrays["best"].shape == (1,)
    found = [np.asarray(array).shape for array in sent.arrays.values()]
    assert (PROBLEM.space.dimension,) not in found


def test_the_operator_overrides_the_app() -> None:
    assert own(report("trials", disclose="none")) == EXPECTED["none"]
    assert own(report("none", disclose="trials")) == EXPECTED["trials"]


def test_with_secure_sums_an_agent_outside_of_a_sum_sends_what_it_consents_to_alone() -> None:
    assert own(report("incumbent", 3)) == {"best"}
    assert own(report("trials", 3)) == {"best", "point"}
    assert not report("none", 3).arrays


@pytest.mark.parametrize("disclose", ["point", "all", ""])
def test_other_settings_are_refused(disclose: str) -> None:
    with pytest.raises(ConfigError, match="expected one of none, incumbent, trials"):
        report(disclose)
    with pytest.raises(ConfigError, match="expected one of none, incumbent, trials"):
        report("none", disclose=disclose)


def test_a_bound_on_epsilon_excludes_what_has_no_noise() -> None:
    for disclose in ("incumbent", "trials"):
        with pytest.raises(ConfigError, match="max_epsilon"):
            Operator.read({"disclose": disclose, "max_epsilon": 1.0}, None)
