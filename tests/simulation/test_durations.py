"""Simulated durations have the distributions that they are named after, and bad ones are refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.durations import constant, durations, heavy_tailed, log_normal, slower


def draws(duration, number=2000, agent="a"):
    return np.array([duration(agent, trial, generator(3, agent, trial)) for trial in range(number)])


def test_log_normal_durations_have_their_median_and_spread():
    logs = np.log(draws(log_normal(3.0, 0.7)))
    assert stats.kstest(logs, "norm", (np.log(3.0), 0.7)).pvalue > 0.01


def test_agents_have_medians_of_their_own():
    duration = log_normal(2.0, 0.0, of_agents=0.5)
    medians = [duration(str(agent), 0, generator(1)) for agent in range(800)]
    assert stats.kstest(np.log(medians), "norm", (np.log(2.0), 0.5)).pvalue > 0.01
    assert duration("7", 0, generator(1)) == duration("7", 9, generator(2))


def test_heavy_tailed_durations_are_pareto():
    assert stats.kstest(draws(heavy_tailed(2.0, 1.3)), "pareto", (1.3, 0.0, 2.0)).pvalue > 0.01


def test_a_mapping_gives_each_agent_its_seconds_and_a_table_begins_again():
    given = durations({"a": 2.0, "b": [1.0, 5.0]})
    rng = generator(0)
    assert given("a", 7, rng) == 2.0
    assert [given("b", trial, rng) for trial in range(3)] == [1.0, 5.0, 1.0]
    assert durations(4)("a", 0, rng) == 4.0
    assert slower(constant(2.0), {"a": 10.0})("a", 0, rng) == 20.0
    assert slower(constant(2.0), {"a": 10.0})("b", 0, rng) == 2.0


@pytest.mark.parametrize("wrong", ["fast", True, {"a": -1.0}, {"a": []}, {"a": [1.0, float("nan")]}, -1.0])
def test_wrong_durations_are_refused(wrong):
    with pytest.raises(ConfigError, match="expected"):
        durations(wrong)


def test_an_agent_without_seconds_is_named():
    with pytest.raises(ConfigError, match="'b'"):
        durations({"a": 1.0})("b", 0, generator(0))
