"""When agents that send no replies are asked again."""

from __future__ import annotations

from fbo_flower.strategies.attendance import Silence


def rounds_asked(answers: set[int], num_rounds: int) -> list[int]:
    """Return the rounds in which an agent is asked that answers in some rounds only."""
    silence, asked = Silence(), []
    for server_round in range(1, num_rounds + 1):
        if silence.due(["a"], server_round):
            asked.append(server_round)
            silence.note("a", server_round, silent=server_round not in answers)
    return asked


def test_a_silent_agent_is_asked_in_the_second_round_then_the_fourth_then_every_eighth():
    assert rounds_asked(set(), 40) == [1, 2, 3, 5, 9, 17, 25, 33]


def test_an_answer_ends_the_rest():
    assert rounds_asked({5}, 12) == [1, 2, 3, 5, 6, 7, 8, 10]


def test_two_half_rounds_of_one_round_count_once():
    silence = Silence()
    for server_round in (1, 2):
        for _ in range(2):
            silence.note("a", server_round, silent=True)
    assert silence.due(["a"], 3) == ["a"]


def test_other_agents_are_asked_meanwhile():
    silence = Silence()
    for server_round in (1, 2, 3):
        silence.note("a", server_round, silent=True)
    assert silence.due(["a", "b"], 4) == ["b"]
