"""Attacks must succeed and fail where the documents say so. Whoever changes one, change the text."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

from fbo_flower.algorithms.registry import BUILT_IN
from fbo_flower.cli import main as cli
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.surrogates import rff
from studies import commands  # noqa: F401  # adds its commands
from studies.attacks import ATTACKS, AttackResult, co_kg, equivocation, find
from studies.attacks.noise import central_noise
from studies.attacks.posterior import observed_points, observed_values
from studies.attacks.records import rms
from studies.peers.record import RECORDS


def findings(name: str) -> dict[str, AttackResult]:
    return {found.secret: found for found in find(name).run(0)}


def test_fts_betrays_points_of_foreign_rounds_and_values_nearly() -> None:
    found = findings("fts")
    assert found["FTS: values there, from the next weights"].error < 0.35
    values = found["FTS: values there, from the next weights"]
    assert values.error < 0.4 * values.guess
    points = found["FTS: points of foreign rounds"]
    assert points.error < 0.5 * points.guess
    # local noise hides them: no better than somebody who guesses
    hidden = {f"DP-FTS, local noise: {secret}": 0.9 for secret in (
        "values there, from the next weights", "the same, mean over all later weights",
    )}  # fmt: skip
    local = "DP-FTS, local noise {}: the message, from {}".format
    multipliers, features = "two noise multipliers", "a request with frequencies 0"
    sums = "DP-FTS, central noise, strategy {}: sums before noise, from the study's files".format
    assert found[local("from a seeded generator in floating point (control)", multipliers)].error < 1e-12
    assert found[local("from the seed of a simulated agent", features)].error < 1e-12
    assert found[sums("with a seed")].error < 1e-9
    hidden |= {local("from the device", request): 5 for request in (multipliers, features)}
    for secret, least in (hidden | {sums("without a seed"): 1.1}).items():
        assert found[secret].error > least * found[secret].guess, secret


@pytest.mark.parametrize(("server_seed", "knows"), [(3, True), (None, False)])
def test_noise_is_rebuilt_from_the_files_of_a_study_with_a_seed_only(
    server_seed: int | None, knows: bool
) -> None:
    found = central_noise(server_seed, 3)
    correlation = np.corrcoef(np.ravel(found.rebuilt), np.ravel(found.noise))[0, 1]
    assert correlation > 0.999 if knows else abs(correlation) < 5 / np.sqrt(found.noise.size)
    with_sums = np.corrcoef(np.ravel(found.rebuilt), np.ravel(found.released))[0, 1]
    assert with_sums > 0.5 if knows else abs(with_sums) < 5 / np.sqrt(found.noise.size)


def test_posteriors_of_rgpe_and_taf_are_the_observations_in_another_form() -> None:
    found = findings("posterior")
    assert found["RGPE: points, from the uncertainty alone"].error < 1e-4
    assert found["RGPE: values at the points that were found"].error < 1e-3
    points = found["TAF: points, from the uncertainty alone"]
    assert points.error < 0.2 * points.guess
    assert found["TAF: best value, which it sends"].error == 0.0


def test_any_posterior_tells_its_points_and_values() -> None:
    rng = np.random.default_rng(0)
    features = rff.draw_features(60, 0.5, 2, rng)
    points, y = rng.random((7, 2)), rng.standard_normal(7)
    mean, inverse = rff.weight_posterior(features(points), y, 1e-2)
    found = observed_points(inverse, 1e-2, features, 7)
    distance = np.abs(points[:, None] - found[None]).max(axis=2)
    assert distance.min(axis=1).max() < 1e-4
    recovered = observed_values(mean, inverse, features(found))
    np.testing.assert_allclose(recovered[distance.argmin(axis=1)], y, atol=1e-3)


def test_a_mean_of_one_pull_is_a_value() -> None:
    found = findings("pf-pne")
    for name in ("PFPNE", "FedPNE"):
        single = found[f"{name}: values in cells of one pull, at known points"]
        assert single.error < 1e-12
        assert single.guess > 0.01
        assert single.count > 5


def test_support_vectors_are_rows_and_answers_tell_members() -> None:
    found = findings("rfms")
    rows = found["rows that a shipped support vector machine does not hold"]
    assert rows.error < 0.95 < rows.guess
    plain = found["whether a row is a curator's, two models per row"]
    assert plain.error == 0.0
    noisy = found["whether a row is a curator's, two models per row, answers with epsilon 0.1 each"]
    assert noisy.error > 0.3


def test_every_attack_that_is_named_in_a_report_exists() -> None:
    named = {record.attack for record in (*BUILT_IN.values(), *RECORDS) if record.attack is not None}
    # the others attack an option, and agents of every algorithm
    assert {*named, "secure-sums", "lying-server"} == set(ATTACKS)
    assert find("dp-fts") == ATTACKS["fts"], "an algorithm's name finds what attacks it"
    with pytest.raises(ConfigError, match="nobody has written one on 'hct'"):
        find("hct")
    with pytest.raises(ConfigError, match="co-kg, fts"):
        find("everything")


def test_the_command_lists_attacks_and_prints_both_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["attack"]) == 0
    listing = capsys.readouterr().out
    assert all(name in listing for name in ATTACKS)
    assert cli.run(["attack", "pf-pne", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| secret | attacker's error | guesser's error")
    assert len(lines) == 2 + len(findings("pf-pne"))
    assert cli.run(["attack", "nothing"]) == 2


def test_of_one_secure_sum_a_report_is_guessed_from_the_mean_and_of_many_sometimes_better() -> None:
    single, many = islice(find("secure-sums").run(4), 2)  # the second succeeds with some seeds only
    assert 0.2 * single.guess < single.error < single.guess
    assert many.error < 0.6 * many.guess, "documents say that many sums of changing members may tell more"


def test_a_server_that_repeats_itself_or_makes_decoys_gets_no_more_than_an_honest_one() -> None:
    found = findings("lying-server")
    noise, forgotten = (found[name] for name in found if "local noise" in name)
    assert forgotten.error < 0.3, "the control: fifty answers have little noise left"
    assert noise.error > 0.5
    evaluations, control = (found[name] for name in found if "max_trials" in name)
    assert (evaluations.error, control.error) == (0.0, 35.0)


@pytest.mark.parametrize("attack", [equivocation.equivocate, equivocation.subtract, equivocation.nest])
def test_a_lying_server_had_a_report_exactly_and_has_it_no_more(attack: Any) -> None:
    for seed in range(3):
        error, guess = attack(np.random.default_rng(seed), earlier=True)
        assert error < 1e-12
        assert guess > 0.5
        assert attack(np.random.default_rng(seed), earlier=False) == (None, guess), "agents refuse"


def test_an_honest_server_gets_the_sum_by_the_same_steps() -> None:
    group = equivocation.Group.draw(list("01234"), np.random.default_rng(0))
    total, after = equivocation.add_up(group, 1, "work")
    np.testing.assert_allclose(total, sum(group.reports.values()), rtol=0, atol=1e-14)
    again, _ = equivocation.add_up(after, 2, "other work")
    np.testing.assert_allclose(again, total, rtol=0, atol=1e-14)


def test_the_command_shows_all_attacks_under_both_rules() -> None:
    found = list(equivocation.attack(0))
    assert [result.error < 1e-12 for result in found] == [True, False] * 3
    assert all(result.error == result.guess for result in found[1::2])


# -- what the comparators' messages tell ---------------------------------------------------------


def test_designs_tell_the_points_that_are_evaluated_and_where_the_best_one_is() -> None:
    found = findings("consensus")
    points = found["Consensus: the points it evaluates, from the designs that are exchanged"]
    assert points.error < 1e-9
    assert points.count >= 30
    best = found["Consensus: its best point, from the last design"]
    assert best.error < best.guess


def test_ranks_tell_where_the_best_point_is() -> None:
    (found,) = find("fmtbo").run(0)
    assert found.error < 0.5 * found.guess


# -- a posterior tells its observations ----------------------------------------------------------


watch = cache(co_kg.watch)  # several tests look at one run


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
