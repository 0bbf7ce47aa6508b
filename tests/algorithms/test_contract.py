"""Every algorithm passes the contract; `rfms` has a form of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from contract import AlgorithmContract, check_variant, leaks

from fbo_flower.algorithms import (
    DPFTS,
    FNUCB,
    FTS,
    HCT,
    PFPNE,
    RGPE,
    TAF,
    Algorithm,
    CoKG,
    Content,
    ExpectedImprovement,
    Fed1UCB,
    FedEI,
    FedPNE,
    LocalPNE,
    RandomSearch,
    ThompsonSampling,
    real,
)
from fbo_flower.algorithms.pne.gp import GPPNE
from fbo_flower.algorithms.pne.racing import RacingPNE
from fbo_flower.algorithms.records import Report, Trials
from fbo_flower.algorithms.registry import FTS_OPTIONS

FEW = {"num_candidates": 64}
PATHS = {**FEW, "num_path_features": 32}
FTS_SMALL = {**PATHS, "num_features": 24}
SMALL = {**PATHS, "num_features": 12}
CO_KG = {"num_points": 49, "num_draws": 16, "num_starts": 1}
BY_AGENTS: dict[str, Any] = {"noise": "local", "sampling_rate": 1.0, "schedule": 0.5}
VALUES = {"reports_values": True}  # the paper lets them travel, or a mean of one pull is a value
MEANS = {**VALUES, "largest": 1e5}  # and sums of squares

WHOLE: dict[str, tuple[Algorithm[Any], dict[str, Any]]] = {
    "random": (RandomSearch(), {}),
    "ts": (ThompsonSampling(**PATHS), {}),
    "ei": (ExpectedImprovement(**FEW), {}),
    "fts": (FTS(**FTS_SMALL), {}),
    "dp-fts": (DPFTS(max_epsilon=4.0, when_spent="keep", schedule=0.5, **SMALL), {}),
    "fed-ei": (FedEI(secure_sums=0, **FEW), VALUES),
    "rgpe": (RGPE(num_draws=20, refresh_every=3, **SMALL), {}),
    "taf": (TAF(refresh_every=2, **SMALL), VALUES),
    "pf-pne": (PFPNE(budget=60, max_evaluations_per_round=9), MEANS),
    "hct": (HCT(budget=60, max_evaluations_per_round=7), {}),
    "racing": (RacingPNE(budget=60, max_evaluations_per_round=9), MEANS),
    "gp": (GPPNE(budget=12), MEANS),
    "fed1-ucb": (Fed1UCB(budget=60, max_evaluations_per_round=9), MEANS),
    "fn-ucb": (FNUCB(budget=60), MEANS),
    "co-kg": (CoKG(**CO_KG), {}),
    "fed-ei with secure sums": (FedEI(secure_sums=2, **FEW), {**VALUES, "smallest": 2}),
}
FTS_VARIANTS: dict[str, dict[str, Any]] = {
    "once in twos": {"trials_per_round": 2, "communication": "once", "schedule": 0.3},
    "in twos": {"trials_per_round": 2, "schedule": 0.5},
    "portfolio in twos": {"trials_per_round": 2, "advice": "portfolio", "schedule": 0.3},
    "portfolio of ranks": {"advice": "portfolio", "schedule": "first-3", "y_transform": "rank"},
    "mixture": {"advice": "mixture", "trials_per_round": 2},
    "mixture once": {
        "advice": "mixture", "communication": "once", "mixture_messages": 1, "initial_design": "advised"
    },
    "targets": {"targets": ("0", "2"), "communication": "once", "schedule": 0.0},
    "federated lengthscale": {"lengthscale": "federated", "refresh_every": 3, "schedule": "1-1/t^2"},
    "learned": {"preferences": "learned", "schedule": 0.25, "y_transform": "clip"},
    "advised in twos": {
        "trials_per_round": 2, "initial_design": "advised", "lengthscale": "dimension", "schedule": 0.5
    },
    "recommended": FTS_OPTIONS,
}  # fmt: skip
VARIANTS: dict[str, tuple[Algorithm[Any], dict[str, Any]]] = {
    "ts in twos": (ThompsonSampling(trials_per_round=2, y_transform="clip", **PATHS), {}),
    "ts repeats": (ThompsonSampling(
        kernel="matern52", y_transform="rank", min_distance=0.0, deviation_scale=0.5, **PATHS
    ), {}),
    "ei in twos": (ExpectedImprovement(trials_per_round=2, y_transform="rank", min_distance=0.0, **FEW), {}),
    **{f"fts {name}": (FTS(**FTS_SMALL, **options), {}) for name, options in FTS_VARIANTS.items()},
    "dp-fts draws of regions": (
        DPFTS(num_regions=3, message="draw", release_every=2, schedule="first-4", **SMALL), {}
    ),
    "dp-fts local in twos": (DPFTS(trials_per_round=2, **SMALL, **BY_AGENTS), {}),
    "fed-ei in twos": (FedEI(secure_sums=0, trials_per_round=2, **FEW), VALUES),
    "rgpe in twos": (RGPE(trials_per_round=2, refresh_every=2, num_draws=10, **SMALL), {}),
    "fed-pne": (FedPNE(budget=60), VALUES),
    "local-pne": (LocalPNE(budget=60, max_evaluations_per_round=7), {}),
    "racing in whole batches": (RacingPNE(budget=500, max_evaluations_per_round=50), VALUES),
    "gp in many tasks": (GPPNE(budget=30, max_evaluations_per_round=3), {**VALUES, "num_rounds": 9}),
    "dp-fts with secure sums": (DPFTS(secure_sums=2, schedule=0.5, **SMALL), {}),
    "fts with secure sums": (FTS(lengthscale="federated", secure_sums=2, schedule=0.5, **FTS_SMALL), {}),
    "co-kg auto": (CoKG(**CO_KG, central="auto", refit="doubling", refine_every=2), {}),
    "co-kg product": (
        CoKG(**CO_KG, central="product", num_refined=25, refine_every=1, acquisition="ei"), {}
    ),
    "co-kg by reliability": (
        CoKG(**CO_KG, weights="reliability", stale="drop", refit=1, mean_noise_stddev=0.1), {}
    ),
    "co-kg alone": (CoKG(**CO_KG, framework="no-collaboration", transform="asinh"), {}),
    "co-kg of all data": (CoKG(
        **CO_KG, framework="data-communication", isotropic=False, acquisition="es", kernel="matern52"
    ), VALUES),
    "fn-ucb with rare exchanges": (FNUCB(budget=60, threshold=20.0), {**VALUES, "num_rounds": 5}),
}  # fmt: skip


class TestContract(AlgorithmContract):
    # one process of pytest-xdist has all tests of a form, so that it plays the common run once
    @pytest.fixture(autouse=True, params=[pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in WHOLE])
    def form(self, request):
        self.algorithm, attributes = WHOLE[request.param]
        vars(self).update(attributes)

    def make(self):
        return replace(self.algorithm)


@pytest.mark.parametrize("name", VARIANTS)
def test_options_break_nothing_that_every_algorithm_keeps(name):
    algorithm, attributes = VARIANTS[name]
    check_variant(algorithm, **attributes)


@dataclass(frozen=True, kw_only=True)
class Secret(Content):
    secret: Annotated[np.ndarray | None, real("D")] = None


class Leaky(RandomSearch):
    """Sends what it must not."""

    name: ClassVar[str] = "leaky"
    report_content: ClassVar[type[Content]] = Secret

    def summarise(self, task, agent_state, rng):
        return Secret(secret=agent_state.history.points[-1] + 0.0)


class InPlace(RandomSearch):
    """Writes into the server's state."""

    name: ClassVar[str] = "in-place"

    def tell(self, state, phase, reports):
        new = state.advance(reports)
        state.next_trial.update(new.next_trial)
        return new


@pytest.mark.parametrize(
    ("kind", "test", "match"),
    [
        (Leaky, "test_no_report_repeats_the_history", r"agent 0, round 1.*reports_values"),
        (InPlace, "test_nothing_that_is_handed_in_is_changed", r"\.next_trial: keys .* Do not write into"),
    ],
)
def test_the_contract_catches_an_algorithm_that_breaks_it(kind, test, match):
    case = type("Case", (AlgorithmContract,), {"make": lambda self: kind()})()
    with pytest.raises(AssertionError, match=match):
        getattr(case, test)()


def test_leaks_sees_standardised_values_too():
    history = Trials(np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([1.0, 3.0]), np.array([0, 1]))
    assert leaks(Report(0, 2, arrays={"a": np.array([9.0, 0.3])}), history)
    assert leaks(Report(0, 2, arrays={"a": np.array([3.0])}), history)
    assert not leaks(Report(0, 2, arrays={"a": np.array([0.25])}), history)
