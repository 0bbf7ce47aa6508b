"""Marked rows and values planted at the agents never leave them, where their operators disclose nothing.

A row is a secret number that the objective reads; a value is what the objective returns. They are searched
for in all messages, in the server's journal, in the log and in the results, as numbers of two precisions and
as text. `rfms` is not here: what a model may carry, and that rows do not leave with it, is in
`test_rfms_runs`.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.app import ArrayRecord, ConfigRecord

from fbo_flower.algorithms import ALGORITHMS
from fbo_flower.clients import client_app
from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage import AgentJournal
from fbo_flower.strategies import STRATEGIES

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
NUM_AGENTS = 3
ROWS = {agent: 0.7310000917 + int(agent) * 1e-3 for agent in ("0", "1", "2")}
SMALL = {"num_candidates": 32, "num_path_features": 16}
BUDGET = {"budget": 40, "max_evaluations_per_round": 15}
CASES = {
    "random": ({}, 4),
    "ts": (SMALL, 4),
    "fts": ({**SMALL, "num_features": 12, "schedule": 0.4}, 5),
    "fts portfolio": ({**SMALL, "num_features": 12, "schedule": 0.4, "advice": "portfolio"}, 5),
    "fts mixture": ({**SMALL, "num_features": 12, "advice": "mixture"}, 5),
    "fts federated": ({**SMALL, "num_features": 12, "lengthscale": "federated"}, 5),
    "ei": ({"num_candidates": 32}, 4),
    "fed-ei": ({"num_candidates": 32}, 5),
    "dp-fts": ({**SMALL, "num_features": 12, "schedule": 0.4, "sampling_rate": 1.0, "num_regions": 2}, 5),
    "dp-fts local": ({**SMALL, "num_features": 12, "schedule": 0.4, "noise": "local"}, 5),
    "rgpe": ({"num_features": 12, "num_candidates": 64, "num_draws": 10, "refresh_every": 2}, 5),
    "taf": ({"num_features": 12, "num_candidates": 64, "refresh_every": 2}, 5),
    "co-kg": ({"num_points": 25, "num_initial": 3}, 4),
    "co-kg product": ({"num_points": 25, "num_initial": 3, "central": "product"}, 4),
    "co-kg no-collaboration": ({"num_points": 25, "num_initial": 3, "framework": "no-collaboration"}, 4),
    "pf-pne": (BUDGET, None),
    "pf-pne racing": ({**BUDGET, "variant": "racing"}, None),
    "fed-pne": (BUDGET, None),
    "local-pne": (BUDGET, None),
    "hct": (BUDGET, None),
    "fed1-ucb": ({"budget": 40}, None),
    "fn-ucb": ({"budget": 12}, None),
}
# a mean over a single pull of a cell or an arm is that pull's value: the paper's algorithm sends it
SENDS_SINGLE_VALUES = {"pf-pne", "fed-pne", "fn-ucb"}


class Recording(InProcessGrid):
    """Keeps every content that passes, as bytes."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.passed: list[bytes] = []

    def push_messages(self, messages):
        messages = list(messages)
        self.passed += [piece for message in messages for piece in pieces(message.content)]
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        for reply in replies:
            assert not reply.has_error(), reply.error.reason
            self.passed += pieces(reply.content)
        return replies


def pieces(content) -> list[bytes]:
    found = []
    for record in content.values():
        if isinstance(record, ArrayRecord):
            found += [array.data for array in record.values()]
        elif isinstance(record, ConfigRecord):
            for key, value in record.items():
                found += [f"{key} {value!r}".encode()]
                found += [struct.pack("<d", value)] if isinstance(value, float) else []
    return found


def forms(number: float) -> list[bytes]:
    """The number as anybody might write it."""
    packed = [struct.pack(form, number) for form in ("<d", ">d", "<f")]
    return [*packed, repr(number).encode(), f"{number:.8f}".encode()]


def found(numbers: list[float], blob: bytes) -> int:
    return sum(any(form in blob for form in forms(number)) for number in numbers)


class Objective:
    """Looks at its row and remembers what it answered."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def __call__(self, config, context):
        row = ROWS[context.agent]
        value = (
            0.4 + 0.31 * (config["x"] - row) ** 2 + 0.17 * config["y"] + 0.01 * context.rng.standard_normal()
        )
        self.values.append(value)
        return value


@pytest.fixture
def log_text() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("flwr"), Keeping(logging.DEBUG)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(before)


def run(name: str, directory: Path, disclose: str = "none"):
    options, num_rounds = CASES[name]
    objective = Objective()
    agents = {i: {"journal": str(directory / "agents" / f"{i}.db")} for i in range(NUM_AGENTS)}
    app = client_app(objective, SPACE, seed=3, disclose=disclose)
    grid = Recording(app, NUM_AGENTS, node_configs=agents)
    strategy = STRATEGIES[name.split(maxsplit=1)[0]](
        num_agents=NUM_AGENTS, seed=3, round_timeout=1.0, **options
    )
    server = directory / "server"
    study = strategy.start(grid, num_rounds=num_rounds, journal=server / "study.db").study
    study.save(server / "results")
    return objective, grid, study


def test_every_algorithm_is_here() -> None:
    agents = {name for name, kind in ALGORITHMS.items() if not kind.roles}
    assert {name.split()[0] for name in CASES} == agents


@pytest.mark.parametrize("name", CASES)
def test_no_row_and_no_value_leaves_an_agent_that_discloses_nothing(
    name: str, tmp_path: Path, log_text: list[str]
) -> None:
    objective, grid, study = run(name, tmp_path)
    assert len(objective.values) >= 12
    assert len(study.trials) == 0
    files = b"".join(p.read_bytes() for p in (tmp_path / "server").rglob("*") if p.is_file())
    everything = {"messages": b"|".join(grid.passed), "files": files, "log": "\n".join(log_text).encode()}
    for where, blob in everything.items():
        assert len(blob) > 100, where
        assert found(list(ROWS.values()), blob) == 0, where
        if name not in SENDS_SINGLE_VALUES:
            assert found(objective.values, blob) == 0, where
    # the search would find them: agents that disclose their trials tell their values
    assert found(objective.values[:3], struct.pack("<d", objective.values[1])) == 1


@pytest.mark.parametrize("name", ["random", "fts", "co-kg"])
def test_values_are_found_where_they_are_disclosed_and_where_they_belong(name: str, tmp_path: Path) -> None:
    objective, grid, _ = run(name, tmp_path, disclose="trials")
    assert found(objective.values, b"|".join(grid.passed)) == len(objective.values)
    with AgentJournal(tmp_path / "agents" / "0.db", "0") as journal:
        studies = journal.connection.execute("SELECT study FROM studies").fetchall()
        made = journal.evaluations(studies[0][0])
    assert made
    assert {e.value for e in made} <= set(objective.values)


def test_data_communication_asks_only_agents_that_disclose_their_trials(tmp_path: Path) -> None:
    strategy = STRATEGIES["co-kg"](
        num_agents=NUM_AGENTS, seed=3, round_timeout=1.0, framework="data-communication", num_initial=3
    )
    objective = Objective()
    grid = InProcessGrid(client_app(objective, SPACE, seed=3), NUM_AGENTS)
    with pytest.raises(ObjectiveError, match="expected a valid reply"):
        strategy.start(grid, num_rounds=2)
    study = strategy.study
    assert study is not None
    assert not objective.values, "nothing was evaluated"
    assert study.rounds["reasons"].tolist() == ["error:3", "error:3"]


@pytest.mark.parametrize("name", sorted(SENDS_SINGLE_VALUES))
def test_a_single_pull_of_a_cell_is_what_the_papers_algorithm_sends(name: str, tmp_path: Path) -> None:
    objective, grid, _ = run(name, tmp_path)
    assert found(objective.values, b"|".join(grid.passed)) > 0, "else it need not be excepted"
