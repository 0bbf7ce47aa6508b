"""Attacks must succeed and fail where the documents say so. Whoever changes one, change the text."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch

import numpy as np
import pytest

from fbo_flower.algorithms.registry import BUILT_IN
from fbo_flower.cli import main as cli
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Problem
from studies import commands  # noqa: F401  # adds its commands
from studies.attacks import ATTACKS, AttackResult, equivocation, fed_ei, find
from studies.attacks import fed_ei_server as server
from studies.attacks.fed_ei import Owned
from studies.papers.ei.problems import PROBLEMS
from studies.peers.record import RECORDS

NEVER = float("inf")
LOCAL = "DP-FTS, local noise {}: the message, from a request with frequencies 0".format
SUMS = "DP-FTS, central noise, strategy {}: sums before noise, from the study's files".format
AVERAGED = "a message with local noise, mean of {} answers to 50 requests".format
MEMBER = "whether a row is a curator's, two models per row"
# attack -> secret -> lowest and highest error of the attacker; "x" behind a number: times that of the guesser
CLAIMS: dict[str, dict[str, tuple[float | str, float | str]]] = {
    "fts": {
        "FTS: points of foreign rounds": (0, "0.5x"),
        "FTS: values there, from the next weights": (0, "0.4x"),
        # local noise hides them: no better than somebody who guesses
        "DP-FTS, local noise: values there, from the next weights": ("0.9x", NEVER),
        "DP-FTS, local noise: the same, mean over all later weights": ("0.9x", NEVER),
        LOCAL("from the seed of a simulated agent"): (0, 1e-12),
        LOCAL("from the device"): ("5x", NEVER),
        SUMS("with a seed"): (0, 1e-9),
        SUMS("without a seed"): ("1.1x", NEVER),
    },
    "posterior": {
        "RGPE: points, from the uncertainty alone": (0, 1e-4),
        "RGPE: values at the points that were found": (0, 1e-3),
        "TAF: points, from the uncertainty alone": (0, "0.2x"),
        "TAF: best value, which it sends": (0, 0),
    },
    "pf-pne": {
        f"{name}: values in cells of one pull, at known points": (0, 1e-12) for name in ("PFPNE", "FedPNE")
    },
    "rfms": {
        "rows that a shipped support vector machine does not hold": (0, "0.95x"),
        MEMBER: (0, 0),
        f"{MEMBER}, answers with epsilon 0.1 each": (0.3, 1),
    },
    "consensus": {
        "Consensus: the points it evaluates, from the designs that are exchanged": (0, 1e-9),
        "Consensus: its best point, from the last design": (0, "1x"),
    },
    "fmtbo": {"FMTBO: its best point, from the ranks of public points": (0, "0.5x")},
    "lying-server": {
        f"an agent with a journal: {AVERAGED(1)}": (0.5, NEVER),
        f"an agent that forgets (control): {AVERAGED(50)}": (0, 0.3),
        "an agent with a journal: evaluations beyond max_trials = 5, by 40 studies": (0, 0),
        "an agent that forgets (control): evaluations beyond max_trials = 5, by 40 studies": (35, 35),
    },
    "secure-sums": {  # of one sum a report is guessed from the mean, of many sometimes better
        "FedPNE: means of cells, from the sum over 8 agents": ("0.2x", "1x"),
        "DPFTS: an agent's average message, from * sums with changing members": (0, "0.6x"),
        **{
            f"{what}, {rules} rules": (0, 1e-12) if rules == "earlier" else ("1x", "1x")
            for rules in ("earlier", "present")
            for what, _, _ in equivocation.ATTACKS
        },
    },
    "co-kg": {
        "values at points that the server chose, two reports": (0, 1e-6),
        "the same, all reports of the run": (0, 1e-5),
        "values of the warm-up, once its points are found": (0, 1e-3),
        # noise on the mean defeats one round and averages out over a run; covariances betray points anyway
        "values at points that the server chose, two reports, noise 1 on means": ("0.7x", NEVER),
        "the same, all reports of the run, noise 1 on means": (0, "0.4x"),
        **{f"points of the warm-up{noise}": (0, 0.005) for noise in ("", ", noise 1 on means")},
    },
}
SEEDS = {"secure-sums": 4}  # many sums tell more with some seeds only


def bound(said: float | str, found: AttackResult) -> float:
    return float(said[:-1]) * found.guess if isinstance(said, str) else said


@pytest.mark.parametrize("name", CLAIMS)
def test_an_attack_finds_out_what_the_documents_say(name: str) -> None:
    results = list(find(name).run(SEEDS.get(name, 0)))
    for secret, (low, high) in CLAIMS[name].items():
        (found,) = (one for one in results if fnmatch(one.secret, secret))
        assert found.count > 0
        assert bound(low, found) <= found.error <= bound(high, found), secret
        assert found.guess > 0.01 or "max_trials" in secret, "a guess knows nothing"


def test_every_attack_that_is_named_in_a_report_exists() -> None:
    named = {record.attack for record in (*BUILT_IN.values(), *RECORDS) if record.attack is not None}
    # the others attack an option, and agents of every algorithm
    assert {*named, "secure-sums", "lying-server"} == set(ATTACKS) == {*CLAIMS, "fed-ei"}
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
    assert len(lines) > 2 + len(CLAIMS["pf-pne"])
    assert cli.run(["attack", "nothing"]) == 2


# -- fed-ei ----------------------------------------------------------------------------------------

AGENTS = 5
REPEATING = server.Repeating(secure_sums=server.LEAST)


def problem(seed: int, agents: int = AGENTS) -> Problem:
    return PROBLEMS["Hartmann-3"](agents, seed)


def rows(found: AttackResult) -> float:
    """The share of rows that are recognised."""
    assert found.count > 0
    return found.error / found.count


def filled(what: str) -> float:
    """What a member that fills its table adds; the log names the sum, except where the whole sum fails."""
    found = fed_ei.filled(problem(0, 8), what, 0)
    assert ("the log names the sum" in found.secret) == (what != "huge values")
    return found.error


def summed(seed: int) -> float:
    """The attacker's error, of all points and values in one sum of features."""
    found = list(fed_ei.first_sum(seed, num_agents=6, num_features=40))
    return max(one.error / one.guess for one in found)


# name -> seeds, what is measured, its lowest and highest mean over seeds; "control": without the protection
FED_EI: dict[str, tuple[range, Callable[[int], float], float, float]] = {
    "nested": (range(1, 2), lambda s: rows(server.nested(problem(s), s, num_sums=5)), 0, 0),
    "nested, control":
        (range(1, 2), lambda s: rows(server.nested(problem(s), s, server.Again(), 10)), 0.8, 1),
    "mark": (range(1, 2), lambda s: rows(server.marked(problem(s), s)), 0, 0),
    "mark, control":  # where its row is not lost
        (range(2), lambda s: rows(server.marked(problem(s), s, server.Credulous())), 1e-3, 1),
    "asked alone": (range(1, 2), lambda s: server.asked_alone(problem(s, 8), s).error, 0, 0.25),
    "asked alone, control":
        (range(1, 2), lambda s: server.asked_alone(problem(s, 8), s, REPEATING).error, 0.9, 1),
    "same lie": (range(5), lambda s: server.same_lie(problem(s, 8), s).error, 0, 0.7),
    "same lie, control": (range(5), lambda s: server.same_lie(problem(s, 8), s, REPEATING).error, 0.9, 1),
    "late": (range(1, 2), lambda s: rows(server.late(problem(s, 8), s)), 0, 0),
    "late, control": (range(1, 2), lambda s: rows(server.late(problem(s, 8), s, REPEATING)), 1e-3, 1),
    "pairs": (range(8), lambda s: server.pairs(problem(s, 4), s).error, 0, 0.5),
    "pairs, control": (range(8), lambda s: server.pairs(problem(s, 4), s, exact=True).error, 0.8, 1),
    # chance is a third; over 40 seeds it is .5
    "invented": (range(4), lambda s: server.invented(problem(s, 8), s).error, 0, 0.9),
    **{f"fills with {what}": (range(1), lambda s, w=what: filled(w), 0, 0) for what in fed_ei.FILLS},
    "one sum of features": (range(1, 2), summed, 0, 1e-7),
}  # fmt: skip


@pytest.mark.parametrize("name", FED_EI)
def test_an_attack_on_fed_ei_succeeds_only_without_the_protection(name: str) -> None:
    seeds, measure, low, high = FED_EI[name]
    assert low <= np.mean([measure(seed) for seed in seeds]) <= high


@pytest.mark.parametrize(("spread", "low", "high"), [(0.01, 1.0, 1.0), (100.0, 0.0, 0.4)])
def test_rows_are_linked_if_agents_stay_where_they_are_and_by_chance_if_not(
    spread: float, low: float, high: float
) -> None:
    rng = np.random.default_rng(0)
    places, sums = rng.random((8, 4)), []
    for number in range(10):
        order = rng.permutation(8)[: 7 if number else 8]  # a row is lost in each later sum
        made = (places + spread * rng.standard_normal(places.shape))[order]
        sums.append(Owned(made, [str(agent) for agent in order]))
    links = fed_ei.follow(sums, weight=1.0)
    assert len(links) == 9 * 7
    assert low <= np.mean(links) <= high


def test_a_server_that_reads_all_totals_knows_each_row_and_guesses_its_owner() -> None:
    found = fed_ei.watched(problem(0), 0, num_rounds=7)
    assert sorted(found) == [1, 2, 4, 5, 6, 7]
    assert not len(found[1].rows)
    assert max(found[2].owners.count(agent) for agent in "01234") == 1, "one of the initial design"
    for number in (4, 5, 6, 7):  # before, a trial repeats a point of somebody else, and enters no sum
        owners = found[number].owners
        assert len(set(owners)) == len(owners) == len(found[number].rows) >= AGENTS - 3
