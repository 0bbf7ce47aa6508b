"""The peers' trials are the stored ones."""

import golden_trials
import pytest


@pytest.mark.parametrize("name", golden_trials.PEERS)
def test_the_trials_of_a_peer_are_the_stored_ones(name: str) -> None:
    golden_trials.check(name, golden_trials.SEEDS[0])
