"""An operator's bound on epsilon holds whatever the server asks."""

from __future__ import annotations

import contextlib
import math

import pytest
from agents import node
from federation import SPACE, agents, hill

from fbo_flower.clients import TuningAgent
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.numerics.privacy import Account, sampled_epsilon
from fbo_flower.storage import AgentJournal
from fbo_flower.storage.agent_journal import read_ledger
from fbo_flower.strategies import DPFTS, FTS

SMALL = {"num_candidates": 16, "num_path_features": 8, "num_features": 6}
DELTA = 1e-3  # the operator's
LOCAL = {"noise": "local", "sampling_rate": 1.0, "schedule": 0.5, **SMALL}


def run(tmp_path, strategy, num_rounds=6, **settings):
    """Run a study of agents that allow an epsilon of 3; return the evaluations and the number of replies."""
    calls = []
    own = {n: {"max_epsilon": 3.0, "delta": DELTA} for n in range(2)}
    objective = lambda config, context: calls.append(1) or hill(config, context)  # noqa: E731
    grid = agents(2, objective, disclose=None, journals=tmp_path, node_configs=own)
    server = strategy(num_agents=2, seed=0, **settings)
    with contextlib.suppress(ObjectiveError):  # agents that decline every task: the study ends as failed
        server.start(grid, num_rounds=num_rounds)
    return calls, int(server.study.rounds["replies"].sum())


def messages(tmp_path, agent: int) -> int:
    path = tmp_path / f"agent-{agent}.db"
    return sum(row.name == "weights" for row in read_ledger(path).rows) if path.exists() else 0


def test_an_agent_answers_as_long_as_its_budget_lasts(tmp_path):
    run(tmp_path, DPFTS, noise_multiplier=2.0, **LOCAL)
    affordable = max(k for k in range(50) if cost_of(k, 2.0) <= 3.0)
    assert 1 <= affordable < 6
    assert messages(tmp_path, 0) == messages(tmp_path, 1) == affordable


def test_the_budget_is_one_for_all_studies(tmp_path):
    run(tmp_path, DPFTS, 2, noise_multiplier=4.0, **LOCAL)
    first = messages(tmp_path, 0)
    assert first == 2
    run(tmp_path, DPFTS, 12, noise_multiplier=4.0, **LOCAL)
    second = messages(tmp_path, 0) - first
    assert cost_of(first + second, 4.0) <= 3.0 < cost_of(first + second + 1, 4.0)


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (DPFTS, {**LOCAL, "noise_multiplier": 0.0}),
        (DPFTS, {**SMALL, "noise": "central", "sampling_rate": 1.0, "noise_multiplier": 100.0}),
        (FTS, SMALL),
    ],
)
def test_a_server_that_asks_without_noise_gets_nothing(tmp_path, strategy, settings):
    assert run(tmp_path, strategy, 2, **settings) == ([], 0)
    assert messages(tmp_path, 0) == 0


def test_a_budget_and_disclosure_do_not_go_together():
    with pytest.raises(ConfigError, match="disclose"):
        TuningAgent(hill, SPACE, node(max_epsilon=1.0, disclose="incumbent"))
    for wrong in (-1.0, math.nan, "much"):
        with pytest.raises(ConfigError, match="max_epsilon"):
            TuningAgent(hill, SPACE, node(max_epsilon=wrong))
    for wrong in (0.0, 1.0, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            TuningAgent(hill, SPACE, node(delta=wrong))


def test_every_message_is_priced_at_its_own_noise_and_the_servers_delta_has_no_effect(tmp_path):
    """The audit's server mixed cheap and dear studies: 60 messages cost 7.8 under a budget of 3."""
    sent: dict[float, int] = {}
    for noise_multiplier in (40.0, 2.0, 30.0, 1.0, 50.0):
        before = messages(tmp_path, 0)
        run(tmp_path, DPFTS, 12, noise_multiplier=noise_multiplier, delta=0.4, **LOCAL)
        sent[noise_multiplier] = messages(tmp_path, 0) - before
    account = Account({noise: count for noise, count in sent.items() if count})
    assert account.epsilon(DELTA) <= 3.0
    assert sent[40.0] == sent[30.0] == sent[50.0] == 12
    assert 0 < sent[2.0] < 12
    one_more = Account({**account.releases, 2.0: sent[2.0] + 1})
    assert one_more.epsilon(DELTA) > 3.0 or sent[1.0] == 0


@pytest.mark.parametrize("text", ["{}", "[]", "5", '{"account": "{"}', '{"account": "{\\"releases\\": 3}"}'])
def test_an_account_that_cannot_be_read_is_not_replaced_by_an_empty_one(tmp_path, text):
    run(tmp_path, DPFTS, 1, noise_multiplier=4.0, **LOCAL)
    with AgentJournal(tmp_path / "agent-0.db", "0") as journal:
        journal.put_note("privacy", {"account": text, "earlier": 0.0, "last": ""})
    before = messages(tmp_path, 0)
    run(tmp_path, DPFTS, 2, noise_multiplier=4.0, **LOCAL)
    assert messages(tmp_path, 0) == before
    assert messages(tmp_path, 1) == before + 2


def cost_of(count: int, multiplier: float) -> float:
    """Epsilon after equal releases; `tests/numerics` compares the account with exact values."""
    return sampled_epsilon(multiplier, 1.0, count, DELTA)
