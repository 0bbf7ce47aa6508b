"""Durations as texts are the functions that they name, and tables are read as they were measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import Async, Clock, simulate
from fbo_flower.simulation.duration_texts import parse_durations
from fbo_flower.simulation.durations import constant, heavy_tailed, log_normal


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("constant:2.5", constant(2.5)),
        ("lognormal:60,1", log_normal(60.0, 1.0)),
        ("lognormal:60,1,0.5", log_normal(60.0, 1.0, 0.5)),
        ("heavy:3,1.2", heavy_tailed(3.0, 1.2)),
    ],
)
def test_a_text_is_the_function_that_it_names(text, same):
    for agent, trial in (("a", 0), ("b", 7)):
        draws = [d(agent, trial, generator(1, agent, trial)) for d in (parse_durations(text), same)]
        assert draws[0] == draws[1]


def test_a_table_has_the_seconds_of_each_agent_in_order(tmp_path: Path):
    path = tmp_path / "seconds.csv"
    path.write_text("seconds,agent\n1.5,north\n7,south\n2.5,north\n")
    found = parse_durations(f"table:{path}")
    rng = generator(0)
    assert [found("north", trial, rng) for trial in range(3)] == [1.5, 2.5, 1.5]
    assert found("south", 4, rng) == 7.0


def test_the_times_of_a_study_are_a_table(tmp_path: Path):
    def study(durations):
        return simulate(
            "double-sine",
            agents=3,
            algorithm="random",
            num_rounds=4,
            seed=2,
            engine="inline",
            rounds=Async(clock=Clock(durations)),
        )

    first = study("lognormal:5,1")
    first.save(tmp_path)
    again = study(f"table:{tmp_path / 'times.csv'}")
    assert again.times["ended"] == pytest.approx(first.times["ended"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("agent,second\na,1\n", "expected the columns agent and seconds"),
        ("", "got none"),
        ("agent,seconds\na,fast\n", "expected a CSV file with numbers"),
        ("agent,seconds\na\n", "expected a CSV file with numbers"),
        ("agent,seconds\na,-1\n", "expected seconds for 'a', not negative"),
        ("agent,seconds\na,nan\n", "expected seconds for 'a', not negative"),
        ("agent,started,ended\na,5,3\n", "expected seconds for 'a', not negative"),
    ],
)
def test_a_wrong_table_is_refused(content, message, tmp_path: Path):
    path = tmp_path / "seconds.csv"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        parse_durations(f"table:{path}")


@pytest.mark.parametrize("text", ["", "fast", "constant", "constant:", "constant:1,2", "heavy:1", "table:"])
def test_a_wrong_text_is_refused(text):
    with pytest.raises(ConfigError, match="expected constant:SECONDS"):
        parse_durations(text)


@pytest.mark.parametrize("text", ["constant:nan", "lognormal:1,inf", "heavy:1,0", "lognormal:-1,1"])
def test_numbers_out_of_bounds_are_refused(text):
    with pytest.raises(ConfigError, match="expected"):
        parse_durations(text)
