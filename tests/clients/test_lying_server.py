"""A server that asks the same question twice, under decoys, or with other options, learns nothing more.

Every attack is also played against an agent without memory (or with one that is wiped), where it succeeds.
"""

from contextlib import suppress
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from agents import SPACE, Objective, node, packed, task
from federation import agents, hill

from fbo_flower import strategies
from fbo_flower.algorithms import DPFTS, FTS, RandomSearch, make_algorithm
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.cli import main as cli
from fbo_flower.clients import TuningAgent
from fbo_flower.clients.operator import Operator
from fbo_flower.errors import ConfigError, FBOError, ObjectiveError, WireError
from fbo_flower.numerics.privacy import Account
from fbo_flower.numerics.surrogates import rff
from fbo_flower.secure import keys
from fbo_flower.storage.agent_journal import AgentJournal, read_ledger

SMALL = {"num_features": 6, "num_candidates": 16, "num_path_features": 8}
LOCAL = DPFTS(noise="local", sampling_rate=1.0, **SMALL)
PLAIN = FTS(**SMALL)
both = pytest.mark.parametrize("algorithm", [LOCAL, PLAIN], ids=["dp-fts", "fts"])


@pytest.fixture
def own(tmp_path):
    return {"journal": str(tmp_path / "a.db")}


def device(objective=None, seed=None, **node_config):
    return TuningAgent(objective or Objective(), SPACE, node(**node_config), seed=seed)


def message(algorithm, trial, num_trials=1, features=None, study="s", phase=Phase.TRAIN, **values):
    """Return a task; `features`: the seed of the features of the message that it asks for."""
    arrays = {}
    if features is not None:
        drawn = rff.draw_features(6, 0.5, 2, np.random.default_rng(features))
        arrays, values = (
            {"frequencies": drawn.frequencies, "phases": drawn.phases},
            {"message": True, **values},
        )
    return packed(algorithm, task(trial, num_trials, phase, arrays=arrays, values=values), study=study)


def weights(agent, *messages):
    """Return the distinct noisy or drawn messages that an agent gave for some requests."""
    found = {}
    for asked in messages:
        with suppress(FBOError):
            arrays = agent.answer(asked).arrays
            if "weights" in arrays:
                found[arrays["weights"].tobytes()] = True
    return list(found)


# -- the same question twice -----------------------------------------------------------------------


def requests(algorithm):
    """The same trial three times: with other options, with other arrays, without trials."""
    other = make_algorithm(algorithm.name, {**algorithm.options(), "message_noise_variance": 0.5})
    asked = [(0, 3, 0), (0, 3, 1), (0, 2, 2), (1, 1, 3), (2, 1, 4)]
    first, *rest = (message(algorithm, *one) for one in asked)
    return [first, message(other, 0, 3, 0), *rest]


@both
def test_a_trial_is_answered_once_whatever_comes_with_the_second_request(algorithm, own):
    asked, objective = requests(algorithm), Objective()
    agent = device(objective, **own)
    (sent,) = weights(agent, *asked)
    assert objective.calls == 3
    for other in asked[1:]:  # and after its process was restarted
        assert weights(device(**own), other) in ([], [sent])
    for disclose in ("none", "incumbent"):  # the operator's change draws no other noise
        assert weights(device(**own, disclose=disclose), asked[0]) == [sent]
    forgetful = (device(seed=4) for _ in count())
    control = [found for request in asked[:4] for found in weights(next(forgetful), request)]
    assert len(set(control)) == 4


def test_reports_without_trials_are_one_of_a_kind(own):
    """A server that keeps asking for messages about the same observations gets the same one."""
    agent = device(**own)
    agent.answer(message(PLAIN, 0, 3))
    asked = [message(PLAIN, trial, 0, i) for i, trial in enumerate((3, 3, 2, 1, 0))]
    asked += [message(PLAIN, 3, 0, i, phase=phase) for i, phase in enumerate(Phase, start=20)]
    assert len(weights(agent, *asked)) == 1
    agent.answer(message(PLAIN, 3, 1))
    after = weights(agent, message(PLAIN, 4, 0, 9), *asked)
    assert len(after) == 2, "one about the new observation, and the first answer again"


def test_noise_is_not_averaged_away_and_the_options_of_a_study_are_pinned_at_its_first_task(own):
    agent = device(**own)
    agent.answer(message(LOCAL, 0, 3, 0))
    with pytest.raises(WireError, match="num-trials"):
        agent.answer(message(LOCAL, 3, 0, 0))
    weaker = replace(LOCAL, noise_multiplier=0.001)
    for other in (weaker, replace(LOCAL, noise="central"), PLAIN, RandomSearch()):
        with pytest.raises(WireError, match="options: expected those of the study's first task"):
            agent.answer(message(other, 3))
    agent.answer(message(LOCAL, 3, 1, 0))
    agent.answer(message(weaker, 0, 3, 0, study="another"))


# -- decoys and limits -------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "allowed"), [("max_trials", 5), ("max_studies", 1)])
def test_no_decoy_makes_an_agent_forget_what_its_operator_allows(own, limit, allowed):
    objective = Objective()
    agent = device(objective, **own, **{limit: allowed})
    agent.answer(message(RandomSearch(), 0, 1, study="first"))
    for i in range(40):
        weights(agent, message(RandomSearch(), 0, 1, study=f"decoy {i}"))
    assert objective.calls == allowed
    if limit == "max_studies":
        agent.answer(message(RandomSearch(), 1, study="first"))
        with pytest.raises(WireError, match="study: expected at most 1"):
            agent.answer(message(RandomSearch(), 0, study="second"))


def test_limits_and_protections_without_a_journal_are_declined():
    for limit in ({"max_trials": 5}, {"max_studies": 1}, {"max_epsilon": 1.0}, {"secure_sums": 3}):
        expected = f"journal: expected a file in node_config, because {next(iter(limit))}"
        with pytest.raises(ConfigError, match=expected):
            device(**limit)
        device(seed=1, **limit)  # a simulated agent promises nothing
    secured, objective = make_algorithm("fed-pne", {"secure_sums": 3, "budget": 50}), Objective()
    for asked in (message(LOCAL, 0, 3), message(secured, 0, 3, agents=3, depth=-1)):
        with pytest.raises(ConfigError, match="journal"):
            device(objective).answer(asked)
    with pytest.raises(ConfigError, match="journal"):
        device().get_properties({"key": True})
    with pytest.raises(ConfigError, match="disclose: expected 'trials', because fed-ei"):  # rows in the clear
        device(objective).answer(message(make_algorithm("fed-ei", {"secure_sums": 0}), 0, 2))
    assert objective.calls == 0
    assert device(objective).answer(message(PLAIN, 0, 3, 0)).arrays


# -- a bound on epsilon ---------------------------------------------------------------------------------

DELTA = 1e-3  # the operator's
BUDGETED = {"noise": "local", "sampling_rate": 1.0, "schedule": 0.5, **SMALL}


def run(tmp_path, strategy=strategies.DPFTS, num_rounds=6, **settings):
    """Run a study of agents that allow an epsilon of 3; return the evaluations and the number of replies."""
    calls = []
    own = {n: {"max_epsilon": 3.0, "delta": DELTA} for n in range(2)}
    objective = lambda config, context: calls.append(1) or hill(config, context)  # noqa: E731
    grid = agents(2, objective, disclose=None, journals=tmp_path, node_configs=own)
    given = BUDGETED if strategy is strategies.DPFTS else SMALL
    server = strategy(num_agents=2, seed=0, **given | settings)
    with suppress(ObjectiveError):  # agents that decline every task: the study ends as failed
        server.start(grid, num_rounds=num_rounds)
    return calls, int(server.study.rounds["replies"].sum())


def num_messages(tmp_path, agent):
    path = tmp_path / f"agent-{agent}.db"
    return sum(row.name == "weights" for row in read_ledger(path).rows) if path.exists() else 0


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (strategies.DPFTS, {"noise_multiplier": 0.0}),
        (strategies.DPFTS, {"noise": "central", "noise_multiplier": 100.0}), (strategies.FTS, {}),
    ],
)  # fmt: skip
def test_a_server_that_asks_without_noise_gets_nothing(tmp_path, strategy, settings):
    assert run(tmp_path, strategy, 2, **settings) == ([], 0)
    assert num_messages(tmp_path, 0) == 0


def test_every_message_is_priced_at_its_own_noise_and_the_servers_delta_has_no_effect(tmp_path):
    """The audit's server mixed cheap and dear studies: 60 messages cost 7.8 under a budget of 3."""
    sent = {}
    for noise_multiplier in (40.0, 2.0, 50.0):
        before = num_messages(tmp_path, 0)
        run(tmp_path, num_rounds=10, noise_multiplier=noise_multiplier, delta=0.4)
        sent[noise_multiplier] = num_messages(tmp_path, 0) - before
    account = Account(sent)
    assert account.epsilon(DELTA) <= 3.0
    assert sent[40.0] == sent[50.0] == 10
    assert 0 < sent[2.0] < 10
    assert Account({**sent, 2.0: sent[2.0] + 1}).epsilon(DELTA) > 3.0


@pytest.mark.parametrize("setting", [{"disclose": "incumbent"}, {"disclose_curves": True}])
def test_nothing_without_noise_is_disclosed_beside_a_budget(setting):
    with pytest.raises(ConfigError, match=f"{next(iter(setting))}: expected .* together with max_epsilon"):
        TuningAgent(hill, SPACE, node(max_epsilon=1.0, journal="any", **setting))


@pytest.mark.parametrize("text", ["{}", "5", '{"account": "{"}'])
def test_an_account_that_cannot_be_read_is_not_replaced_by_an_empty_one(tmp_path, text):
    run(tmp_path, num_rounds=1, noise_multiplier=4.0)
    with AgentJournal(tmp_path / "agent-0.db", "0") as journal:
        journal.put_note("privacy", {"account": text, "earlier": 0.0, "last": ""})
    before = num_messages(tmp_path, 0)
    run(tmp_path, num_rounds=2, noise_multiplier=4.0)
    assert num_messages(tmp_path, 0) == before
    assert num_messages(tmp_path, 1) == before + 2


# -- secure sums: keys, the operator's list of peers, and what survives a kill ---------------------------


def sum_task(number, cards, trials=1):
    arrays = {
        "cells": np.zeros(1, dtype=np.int64),
        "pulls": np.ones(1, dtype=np.int64),
        "secure.members": np.array([np.frombuffer(card, dtype=np.uint8) for card in cards]),
    }
    values = {"secure.sum": number, "sum": True, "agents": 3, "depth": 0}
    return Task(Phase.TRAIN, number, 0, trials, arrays, values)


def sent_names(context, task, study="s"):
    """Return the names of the arrays that an agent sends for a task."""
    message = packed(make_algorithm("fed-pne", {"secure_sums": 2}), task, study=study)
    return set(TuningAgent(Objective(), SPACE, context, seed=1).answer(message).arrays)


def new_card():
    return keys.make_card(keys.new_identity(), keys.new_private_key())


def test_the_command_prints_the_key_that_the_agent_registers(tmp_path, capsys):
    path = tmp_path / "agent.db"
    assert cli.run(["key", str(path)]) == 2
    assert "pass --agent" in capsys.readouterr().err
    assert not path.exists()
    assert cli.run(["key", str(path), "--agent", "3"]) == cli.run(["key", str(path)]) == 0
    printed, again = capsys.readouterr().out.split()
    registered = TuningAgent(Objective(), SPACE, node(path)).get_properties({"key": True})["key"]
    assert keys.identity_of(bytes.fromhex(registered)).hex() == printed == again
    assert cli.run(["key", str(path), "--agent", "1"]) == cli.run(["key", str(tmp_path)]) == 1


def test_peers_are_keys_by_commas_or_a_file_of_lines(tmp_path):
    peers = [keys.public_identity(keys.new_identity()).hex() for _ in range(3)]
    file = tmp_path / "peers.txt"
    file.write_text("\n".join(peers) + "\n")
    for setting in (",".join(peers), ", ".join(peers).upper(), str(file)):
        read = Operator.read({"secure_sums": 2, "secure_peers": setting}, "none")
        assert read.secure_peers == frozenset(peers)
    assert Operator.read({}, "none").secure_peers == frozenset()
    for content in ("", "abc\n", "ab" * 32 + "\nxyz\n", None):
        file.unlink(missing_ok=True) if content is None else file.write_text(content)
        with pytest.raises(ConfigError, match="secure_peers: expected keys of 64 hexadecimal digits"):
            Operator.read({"secure_sums": 2, "secure_peers": str(file)}, "none")
    with pytest.raises(ConfigError, match="secure_sums: expected at least 2"):
        Operator.read({"secure_peers": "ab" * 32}, "none")
    with pytest.raises(ConfigError, match="secure_sums: expected sums of at least 3 agents"):
        Operator.read({"secure_sums": 3}, "none").admit(make_algorithm("fed-pne", {"secure_sums": 2}))


def test_an_agent_with_peers_goes_into_no_sum_with_an_agent_that_the_server_made_up():
    cards, made_up = [new_card() for _ in range(3)], new_card()
    peers = ",".join(keys.identity_of(card).hex() for card in cards)
    pinned = node(secure_sums=2, secure_peers=peers)
    for others in ([made_up], [*cards[:2], made_up]):
        with pytest.raises(WireError, match="secure_peers: expected only agents that node_config names"):
            sent_names(pinned, sum_task(1, others))
    assert "secure.words" in sent_names(pinned, sum_task(1, cards))
    assert "secure.words" in sent_names(node(), sum_task(1, [made_up])), (
        "without peers the server is believed"
    )


@pytest.mark.parametrize("committed", [False, True])
def test_an_agent_that_is_killed_masks_a_report_for_one_set_of_agents(committed, tmp_path, monkeypatch):
    """What leaves is stored before it leaves: a set that was not stored has received nothing."""
    path, first, second = tmp_path / "0.db", [new_card() for _ in range(2)], [new_card() for _ in range(3)]
    finish = AgentJournal.finish

    class Killed(BaseException):
        pass

    def dying(self, *arguments):
        if committed:
            finish(self, *arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(AgentJournal, "finish", dying)
        with pytest.raises(Killed):
            sent_names(node(path), sum_task(1, first))
    if committed:  # the reply never left, but the agent cannot know
        assert "secure.words" not in sent_names(node(path), sum_task(2, second))
        assert "secure.words" in sent_names(node(path), sum_task(1, first)), "the stored report, again"
    else:
        assert "secure.words" in sent_names(node(path), sum_task(2, second))
        with pytest.raises(WireError, match=r"secure\.sum"):  # nor can it be revealed
            sent_names(node(path), Task(Phase.EVALUATE, 1, 0, 0, {"secure.there": np.ones(2, np.uint8)},
                                       {"secure.sum": 1}))  # fmt: skip
        assert "secure.words" not in sent_names(node(path), sum_task(3, first))


def test_a_study_that_flowers_state_has_forgotten_makes_no_masks_again(tmp_path):
    """The masks of a sum depend on its study and number: they must not hide two reports."""
    cards, forgetful, kept = [new_card() for _ in range(2)], node(), node(tmp_path / "3.db")
    wider = [*cards, new_card()]
    for place in (forgetful, kept):
        assert "secure.words" in sent_names(place, sum_task(1, cards))
        assert "secure.words" not in sent_names(place, sum_task(2, wider)), "it was masked for others"
        assert "secure.words" in sent_names(place, sum_task(1, cards), "another")
    with pytest.raises(WireError, match="forgotten"):
        sent_names(forgetful, sum_task(1, wider))
    assert "secure.words" not in sent_names(kept, sum_task(1, wider)), "a journal remembers"
