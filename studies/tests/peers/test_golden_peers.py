"""The peers' trials are the stored ones."""

import golden_trials
import pytest


@pytest.mark.parametrize("seed", golden_trials.BY_SEED)
@pytest.mark.parametrize("name", golden_trials.PEERS)
def test_the_trials_of_a_peer_are_the_stored_ones(name: str, seed: int) -> None:
    golden_trials.check(name, seed)
