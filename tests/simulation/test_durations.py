"""Simulated durations have the distributions that their names and texts say, and tables are as measured."""

import pytest
from scipy import stats

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.durations import constant, durations, heavy_tailed, log_normal, parse_durations


@pytest.mark.parametrize(
    ("duration", "distribution", "parameters"),
    [
        (log_normal(3.0, 0.7), "lognorm", (0.7, 0.0, 3.0)),
        (log_normal(2.0, 0.0, of_agents=0.5), "lognorm", (0.5, 0.0, 2.0)),
        (heavy_tailed(2.0, 1.3), "pareto", (1.3, 0.0, 2.0)),
    ],
)
def test_durations_have_the_distribution_of_their_name(duration, distribution, parameters):
    draws = [duration(str(trial), trial, generator(3, "a", trial)) for trial in range(1000)]
    assert stats.kstest(draws, distribution, parameters).pvalue > 0.01


def test_a_mapping_gives_each_agent_its_seconds_and_a_table_begins_again():
    given = durations({"a": 2.0, "b": [1.0, 5.0]})
    rng = generator(0)
    assert given("a", 7, rng) == 2.0
    assert [given("b", trial, rng) for trial in range(3)] == [1.0, 5.0, 1.0]
    assert durations(4)("a", 0, rng) == 4.0
    with pytest.raises(ConfigError, match="'c'"):
        given("c", 0, rng)


def test_a_text_is_the_function_that_it_names():
    named = {"constant:2.5": constant(2.5), "lognormal:60,1,0.5": log_normal(60.0, 1.0, 0.5),
             "heavy:3,1.2": heavy_tailed(3.0, 1.2)}  # fmt: skip
    for text, same in named.items():
        assert parse_durations(text)("b", 7, generator(1)) == same("b", 7, generator(1))
