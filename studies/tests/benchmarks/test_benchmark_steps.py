"""The steps that `make bench` repeats are recorded from real runs; no other test runs that code."""

from __future__ import annotations

import pytest

from studies.benchmarks import replay


@pytest.mark.parametrize("algorithm", ["random", "fts", "pf-pne"])
def test_recorded_steps_of_agents_and_server_can_be_repeated(algorithm: str) -> None:
    found = replay.scene(algorithm, 3, 2, 4)
    replies = [step() for step in found.agent_steps()]
    assert len(replies) == 4 * replay.NUM_STEPS
    assert all(reply.has_content() for reply in replies)
    states = [step() for step in found.server_steps()]
    assert len(states) == replay.NUM_STEPS
