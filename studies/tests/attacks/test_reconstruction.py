"""A posterior tells its observations: the attack of an honest-but-curious server on Co-KG."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fbo_flower.numerics.arrays import Array
from studies.attacks import co_kg

watch = cache(co_kg.watch)  # several tests look at one run


def rms(error: Array) -> float:
    return float(np.sqrt(np.mean(error**2)))


@pytest.mark.parametrize("central", ["barycenter", "product"])
def test_the_server_recovers_every_value_at_a_point_that_it_chose(central):
    seen = watch(central=central, num_rounds=10)
    recovered = seen.each_round()
    assert len(recovered) >= 8
    assert np.abs(recovered - seen.values).max() < 1e-6
    assert np.abs(seen.whole_run() - seen.values).max() < 1e-5


def test_noise_on_the_mean_defeats_one_round_and_averages_out_over_a_run():
    seen = watch(mean_noise_stddev=1.0)
    spread = float(seen.values.std())
    one = rms(seen.each_round() - seen.values)
    run = rms(seen.whole_run() - seen.values)
    assert one > 0.7 * spread  # no better than the mean of the values
    assert run < 0.4 * spread
    assert run < 0.4 * one


def test_less_noise_is_undone_more_exactly():
    errors = [rms((s := watch(mean_noise_stddev=sd)).whole_run() - s.values) for sd in (0.01, 1.0)]
    assert errors[0] < errors[1]
    assert errors[0] < 0.01


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_covariance_betrays_the_points_of_the_warm_up_whatever_noise_is_on_the_mean(noise):
    seen = watch(num_rounds=3, mean_noise_stddev=noise)
    found = seen.warm_up_points()
    distance = np.abs(seen.points[:, np.newaxis] - found[np.newaxis]).max(axis=2).min(axis=1)
    assert distance.max() < 0.005  # the spacing of the grid


def test_one_report_tells_the_values_of_the_warm_up_once_its_points_are_known():
    seen = watch(num_rounds=3)
    assert np.abs(seen.warm_up_values(seen.points) - seen.first_values).max() < 1e-3
