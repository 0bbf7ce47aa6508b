"""An operator's bound on epsilon holds whatever the server asks."""

import contextlib

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


def run(tmp_path, strategy=DPFTS, num_rounds=6, **settings):
    """Run a study of agents that allow an epsilon of 3; return the evaluations and the number of replies."""
    calls = []
    own = {n: {"max_epsilon": 3.0, "delta": DELTA} for n in range(2)}
    objective = lambda config, context: calls.append(1) or hill(config, context)  # noqa: E731
    grid = agents(2, objective, disclose=None, journals=tmp_path, node_configs=own)
    server = strategy(num_agents=2, seed=0, **(LOCAL if strategy is DPFTS else SMALL) | settings)
    with contextlib.suppress(ObjectiveError):  # agents that decline every task: the study ends as failed
        server.start(grid, num_rounds=num_rounds)
    return calls, int(server.study.rounds["replies"].sum())


def messages(tmp_path, agent):
    path = tmp_path / f"agent-{agent}.db"
    return sum(row.name == "weights" for row in read_ledger(path).rows) if path.exists() else 0


def cost_of(count, multiplier):
    """Epsilon after equal releases; `tests/numerics` compares the account with exact values."""
    return sampled_epsilon(multiplier, 1.0, count, DELTA)


def test_an_agent_answers_as_long_as_its_budget_lasts_which_is_one_for_all_studies(tmp_path):
    run(tmp_path, num_rounds=2, noise_multiplier=4.0)
    assert messages(tmp_path, 0) == messages(tmp_path, 1) == 2
    run(tmp_path, num_rounds=14, noise_multiplier=4.0)
    both = messages(tmp_path, 0)
    assert both == messages(tmp_path, 1) < 2 + 14
    assert cost_of(both, 4.0) <= 3.0 < cost_of(both + 1, 4.0)


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [(DPFTS, {"noise_multiplier": 0.0}), (DPFTS, {"noise": "central", "noise_multiplier": 100.0}), (FTS, {})],
)
def test_a_server_that_asks_without_noise_gets_nothing(tmp_path, strategy, settings):
    assert run(tmp_path, strategy, 2, **settings) == ([], 0)
    assert messages(tmp_path, 0) == 0


def test_every_message_is_priced_at_its_own_noise_and_the_servers_delta_has_no_effect(tmp_path):
    """The audit's server mixed cheap and dear studies: 60 messages cost 7.8 under a budget of 3."""
    sent = {}
    for noise_multiplier in (40.0, 2.0, 50.0):
        before = messages(tmp_path, 0)
        run(tmp_path, num_rounds=10, noise_multiplier=noise_multiplier, delta=0.4)
        sent[noise_multiplier] = messages(tmp_path, 0) - before
    account = Account(sent)
    assert account.epsilon(DELTA) <= 3.0
    assert sent[40.0] == sent[50.0] == 10
    assert 0 < sent[2.0] < 10
    assert Account({**sent, 2.0: sent[2.0] + 1}).epsilon(DELTA) > 3.0


@pytest.mark.parametrize("setting", [{"disclose": "incumbent"}, {"disclose_curves": True}])
def test_nothing_without_noise_is_disclosed_beside_a_budget(setting):
    with pytest.raises(ConfigError, match=f"{next(iter(setting))}: expected .* together with max_epsilon"):
        TuningAgent(hill, SPACE, node(max_epsilon=1.0, journal="any", **setting))


@pytest.mark.parametrize("text", ["{}", "[]", "5", '{"account": "{"}', '{"account": "{\\"releases\\": 3}"}'])
def test_an_account_that_cannot_be_read_is_not_replaced_by_an_empty_one(tmp_path, text):
    run(tmp_path, num_rounds=1, noise_multiplier=4.0)
    with AgentJournal(tmp_path / "agent-0.db", "0") as journal:
        journal.put_note("privacy", {"account": text, "earlier": 0.0, "last": ""})
    before = messages(tmp_path, 0)
    run(tmp_path, num_rounds=2, noise_multiplier=4.0)
    assert messages(tmp_path, 0) == before
    assert messages(tmp_path, 1) == before + 2
