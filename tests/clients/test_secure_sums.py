"""An agent in secure sums: its keys, the operator's list of peers, and what survives a kill."""

import numpy as np
import pytest
from agents import SPACE, Objective, node, packed
from federation import agents

from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.cli import main as cli
from fbo_flower.clients import TuningAgent
from fbo_flower.clients.guards import public_identity
from fbo_flower.clients.operator import Operator
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.secure import keys
from fbo_flower.storage import AgentJournal
from fbo_flower.strategies import STRATEGIES

OPTIONS = {"secure_sums": 2}


def task(number, cards, trials=1):
    arrays = {
        "cells": np.zeros(1, dtype=np.int64),
        "pulls": np.ones(1, dtype=np.int64),
        "secure.members": np.array([np.frombuffer(card, dtype=np.uint8) for card in cards]),
    }
    values = {"secure.sum": number, "sum": True, "agents": 3, "depth": 0}
    return Task(Phase.TRAIN, number, 0, trials, arrays, values)


def answer(context, task, study="s"):
    """Return the names of the arrays that an agent sends for a task."""
    message = packed(make_algorithm("fed-pne", OPTIONS), task, study=study)
    return set(TuningAgent(Objective(), SPACE, context, seed=1).answer(message).arrays)


def new_card():
    return keys.make_card(keys.new_identity(), keys.new_private_key())


# -- keys ----------------------------------------------------------------------------------------------


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


# -- peers ---------------------------------------------------------------------------------------------


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


def test_an_agent_with_peers_goes_into_no_sum_with_an_agent_that_the_server_made_up():
    cards, made_up = [new_card() for _ in range(3)], new_card()
    peers = ",".join(keys.identity_of(card).hex() for card in cards)
    pinned = node(secure_sums=2, secure_peers=peers)
    for others in ([made_up], [*cards[:2], made_up]):
        with pytest.raises(WireError, match="secure_peers: expected only agents that node_config names"):
            answer(pinned, task(1, others))
    assert "secure.words" in answer(pinned, task(1, cards))
    assert "secure.words" in answer(node(), task(1, [made_up])), "without peers the server is believed"


def test_a_study_of_peers_that_know_each_other_runs_and_strangers_stay_out(tmp_path):
    configs = {i: {"journal": str(tmp_path / f"{i}.db")} for i in range(4)}
    printed = []
    for i in range(4):
        with AgentJournal(tmp_path / f"{i}.db", str(i)) as memory:
            printed.append(public_identity(memory).hex())
    for i in range(3):  # agent 3 is in nobody's list
        configs[i] |= {"secure_sums": 3, "secure_peers": ",".join(printed[:3])}
    made = {}
    for count in (3, 4):
        strategy = STRATEGIES["fed-pne"](num_agents=count, seed=0, budget=20, secure_sums=3)
        study = strategy.start(agents(count, node_configs=configs), num_rounds=3).study
        made[count] = study.settings["runs"][0]["privacy"]["sums_made"]
    assert made[3] == 3
    assert made[4] == 0, "they refuse to be summed with the stranger"


# -- killed --------------------------------------------------------------------------------------------


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
            answer(node(path), task(1, first))
    if committed:  # the reply never left, but the agent cannot know
        assert "secure.words" not in answer(node(path), task(2, second))
        assert "secure.words" in answer(node(path), task(1, first)), "the stored report, again"
    else:
        assert "secure.words" in answer(node(path), task(2, second))
        with pytest.raises(WireError, match=r"secure\.sum"):  # nor can it be revealed
            answer(node(path), Task(Phase.EVALUATE, 1, 0, 0, {"secure.there": np.ones(2, np.uint8)},
                                       {"secure.sum": 1}))  # fmt: skip
        assert "secure.words" not in answer(node(path), task(3, first))


def test_a_study_that_flowers_state_has_forgotten_makes_no_masks_again(tmp_path):
    """The masks of a sum depend on its study and number: they must not hide two reports."""
    cards, forgetful, kept = [new_card() for _ in range(2)], node(), node(tmp_path / "3.db")
    wider = [*cards, new_card()]
    for place in (forgetful, kept):
        assert "secure.words" in answer(place, task(1, cards))
        assert "secure.words" not in answer(place, task(2, wider)), "it was masked for others"
        assert "secure.words" in answer(place, task(1, cards), "another")
    with pytest.raises(WireError, match="forgotten"):
        answer(forgetful, task(1, wider))
    assert "secure.words" not in answer(kept, task(1, wider)), "a journal remembers"
