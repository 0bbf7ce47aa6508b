"""Refactoring changes no trial: the studies of `golden_trials.py` give the trials that were stored."""

from __future__ import annotations

import json

import golden_trials
import pytest

SEEDS = [
    pytest.param(seed, marks=pytest.mark.slow if i else ()) for i, seed in enumerate(golden_trials.SEEDS)
]


@pytest.fixture(scope="module")
def stored():
    found = golden_trials.stored()
    if found["arithmetic"] != golden_trials.arithmetic():
        pytest.skip("golden trials were stored on another processor, or with other numerical libraries")
    return found["trials"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", golden_trials.STUDIES)
def test_the_trials_of_a_study_are_the_stored_ones(stored, name, seed):
    trials = json.loads(json.dumps(golden_trials.STUDIES[name].trials(seed)))
    assert json.dumps(trials) == json.dumps(stored[name][str(seed)])  # as text, so that NaN equals NaN
