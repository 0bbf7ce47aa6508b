"""An agent's account: what it costs, what JSON carries, what is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.privacy import epsilon_of_releases
from fbo_flower.numerics.privacy_account import MOST_ENTRIES, MOST_RELEASES, Account
from fbo_flower.numerics.privacy_loss import compose, epsilon, gaussian_loss, grid_step, self_compose


def test_equal_releases_cost_what_their_losses_cost() -> None:
    for z, q in ((1.0, 0.35), (4.0, 1.0)):
        account = Account()
        for _ in range(20):
            account = account.add(z, q)
        assert account == Account().add(z, q, 20) == Account({(z, q): 20})
        expected = epsilon(self_compose(gaussian_loss(z, q), 20), 1e-3)
        assert account.epsilon(1e-3) == pytest.approx(expected, rel=2e-3)


def test_different_releases_cost_what_their_losses_cost_together() -> None:
    parts = [(1.0, 0.35, 4), (2.0, 0.35, 3), (3.0, 1.0, 1), (5.0, 1.0, 2)]
    account = Account()
    for z, q, count in parts:
        account = account.add(z, q, count)
    step = grid_step(parts) / 8
    loss = compose([gaussian_loss(z, q, step) for z, q, _ in parts], [count for _, _, count in parts])
    expected = epsilon(loss, 1e-4)
    assert expected <= account.epsilon(1e-4) <= 1.005 * expected


def test_an_empty_account_costs_nothing_and_a_release_without_noise_everything() -> None:
    assert Account().epsilon(1e-3) == 0.0
    assert Account().add(1.0, 0.35).add(0.0).epsilon(1e-3) == math.inf


def test_every_release_raises_the_cost() -> None:
    account, before = Account(), 0.0
    for z, q in ((2.0, 0.5), (4.0, 1.0), (1.0, 0.1), (2.0, 0.5), (20.0, 1.0)):
        account = account.add(z, q)
        assert account.epsilon(1e-3) > before
        before = account.epsilon(1e-3)


@pytest.mark.parametrize("delta", [1e-9, 1e-12, 1e-15])
def test_a_tiny_delta_falls_back_on_the_renyi_accountant(delta: float) -> None:
    account = Account().add(1.0, 0.35, 20)
    found = account.epsilon(delta)
    assert math.isfinite(found)
    assert account.epsilon(1e-7) < found <= epsilon_of_releases(20, 0.35, 1.0, delta)


def test_extreme_entries_are_bounded_and_not_errors() -> None:
    assert Account().add(1e9, 1e-6).epsilon(1e-3) == 0.0
    assert Account().add(1e-6).epsilon(1e-3) > 1e11
    assert Account().add(1e-6).add(1e9, 1e-6).add(1e-6, 0.5).add(100.0, 0.3, 1000).epsilon(1e-3) > 1e11
    assert 0 < Account().add(50.0, 0.01, MOST_RELEASES).epsilon(1e-3) < 10


multipliers = st.one_of(st.just(0.0), st.floats(1e-6, 1e9))
entries = st.dictionaries(
    st.tuples(multipliers, st.floats(1e-6, 1.0)), st.integers(1, 1000), max_size=MOST_ENTRIES
)


@given(entries)
def test_json_returns_the_account(releases: dict[tuple[float, float], int]) -> None:
    account = Account(releases)
    assert Account.from_json(json.loads(json.dumps(account.to_json()))) == account


def test_the_form_in_json_stays() -> None:
    account = Account().add(2, 0.5, 3).add(1.0)
    assert json.dumps(account.to_json()) == '{"releases": [[1.0, 1.0, 1], [2.0, 0.5, 3]]}'


BAD_ROWS: list[object] = [
    None,
    {},
    "[1, 1, 1]",
    [1.0, 1.0],
    [1.0, 1.0, 1, 1],
    ["1", 1.0, 1],
    [1.0, None, 1],
    [1.0, 1.0, 1.0],
    [1.0, 1.0, True],
    [True, 1.0, 1],
    [1.0, 1.0, 0],
    [1.0, 1.0, -5],
    [1.0, 1.0, MOST_RELEASES + 1],
    [1.0, 0.0, 1],
    [1.0, 1.5, 1],
    [-1.0, 1.0, 1],
    [1e-7, 1.0, 1],
    [math.nan, 1.0, 1],
    [math.inf, 1.0, 1],
    [1.0, math.nan, 1],
    [10**400, 1.0, 1],
    [[1.0], 1.0, 1],
]


@pytest.mark.parametrize("row", BAD_ROWS, ids=lambda row: f"{row!r:.30}")
def test_damaged_rows_are_refused(row: object) -> None:
    with pytest.raises(ConfigError, match="account"):
        Account.from_json({"releases": [row]})


@pytest.mark.parametrize(
    "value",
    [None, [], "x", 3, {}, {"releases": {}}, {"releases": [], "more": 1}, {"releases": None}],
)
def test_damaged_values_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="account"):
        Account.from_json(value)


def test_entries_are_bounded_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="twice"):
        Account.from_json({"releases": [[1.0, 1.0, 1], [1, 1, 2]]})
    rows = [[1.0 + i, 1.0, 1] for i in range(MOST_ENTRIES + 1)]
    with pytest.raises(ConfigError, match="at most 64"):
        Account.from_json({"releases": rows})
    account = Account.from_json({"releases": rows[:-1]})
    assert math.isfinite(account.epsilon(1e-3))
    account.add(1.0)  # an entry that is there
    with pytest.raises(ConfigError, match="different pairs"):
        account.add(0.5)
    with pytest.raises(ConfigError, match="releases"):
        Account().add(1.0, 1.0, MOST_RELEASES).add(1.0)


def test_what_is_added_is_checked() -> None:
    for z, q, count in ((-1.0, 1.0, 1), (math.nan, 1.0, 1), (1.0, 0.0, 1), (1.0, 2.0, 1), (1.0, 1.0, 0)):
        with pytest.raises(ConfigError, match="account"):
            Account().add(z, q, count)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            Account().epsilon(delta)
