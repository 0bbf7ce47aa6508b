from __future__ import annotations

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.partitioners import Rows
from fbo_flower.simulation.partitioners_paired import (
    _pair,
    _principal_components,
    clustered,
    stratified_random,
)

FEATURES, LABELS = load_breast_cancer(return_X_y=True)


def is_partition(parts: list[Rows], num_rows: int) -> bool:
    ascending = all(np.array_equal(part, np.sort(part)) for part in parts)
    return ascending and np.array_equal(np.sort(np.concatenate(parts)), np.arange(num_rows))


def prevalence(parts: list[Rows], labels: np.ndarray = LABELS) -> np.ndarray:
    return np.array([labels[part].mean() for part in parts])


@given(
    negative=st.integers(5, 60), positive=st.integers(5, 60), num=st.integers(1, 5), seed=st.integers(0, 99)
)
@settings(deadline=None)
def test_random_sites_are_a_partition_into_equal_shares_of_both_classes(
    negative: int, positive: int, num: int, seed: int
) -> None:
    labels = generator(seed, "labels").permutation(np.repeat([0, 1], [negative, positive]))
    parts = stratified_random(labels, num, generator(seed))
    assert is_partition(parts, len(labels))
    counts = np.array([np.bincount(labels[part], minlength=2) for part in parts])
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1  # the small buckets of one class meet the large ones of the other
    assert (np.diff(counts[:, 0]) >= 0).all()
    assert (np.diff(counts[:, 1]) <= 0).all()


@given(seed=st.integers(0, 999), share=st.floats(0, 0.2), variance=st.sampled_from([0.1, 0.5]))
@settings(max_examples=examples(15, 5), deadline=None)
def test_clustered_sites_are_a_partition_with_a_least_size(seed: int, share: float, variance: float) -> None:
    parts = clustered(FEATURES, LABELS, 5, variance, generator(seed), share)
    assert is_partition(parts, len(LABELS))
    assert min(map(len, parts)) >= share * len(LABELS)


def test_a_least_size_of_an_equal_share_leaves_equal_sites() -> None:
    sizes = [len(part) for part in clustered(FEATURES, LABELS, 5, 0.1, generator(0), 0.2)]
    assert max(sizes) - min(sizes) <= 4


@pytest.mark.parametrize(
    "make",
    [
        lambda s: stratified_random(LABELS, 5, generator(s)),
        lambda s: clustered(FEATURES, LABELS, 5, 0.1, generator(s)),
    ],
)
def test_sites_repeat_for_equal_generators_and_differ_for_others(make) -> None:  # type: ignore[no-untyped-def]
    first, again, other = make(1), make(1), make(3)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_reversed_pairing_makes_prevalence_the_shift_between_clustered_sites() -> None:
    spread = np.array([prevalence(clustered(FEATURES, LABELS, 5, 0.1, generator(seed))) for seed in range(5)])
    assert (spread[:, 0] > 0.95).all()
    assert (spread[:, -1] < 0.05).all()
    assert (np.diff(spread, axis=1) < 0).all()
    at_random = prevalence(stratified_random(LABELS, 5, generator(0)))
    assert np.abs(at_random - LABELS.mean()).max() < 0.01


def test_pairing_the_clusters_of_scikit_learn_gives_the_known_prevalences() -> None:
    scores = PCA(0.1, svd_solver="full").fit_transform(StandardScaler().fit_transform(FEATURES))
    buckets = []
    for label in (0, 1):
        rows = np.flatnonzero(label == LABELS)
        cluster = GaussianMixture(5, covariance_type="tied", random_state=0).fit_predict(scores[rows])
        buckets.append([rows[cluster == k] for k in range(5)])
    assert prevalence(_pair(*buckets)).round(2).tolist() == [0.96, 0.84, 0.62, 0.06, 0.0]


@pytest.mark.parametrize(("variance", "components"), [(0.1, 1), (0.5, 2), (0.7, 3)])
def test_scores_are_scikit_learns_principal_components(variance: float, components: int) -> None:
    expected = PCA(variance, svd_solver="full").fit_transform(StandardScaler().fit_transform(FEATURES))
    scores = _principal_components(FEATURES, variance)
    assert scores.shape == expected.shape == (len(LABELS), components)
    assert np.abs(scores) == pytest.approx(np.abs(expected), abs=1e-8)


def test_constant_features_do_not_matter() -> None:
    wide = np.column_stack([FEATURES, np.full(len(LABELS), 3.0)])
    assert np.abs(_principal_components(wide, 0.5)) == pytest.approx(
        np.abs(_principal_components(FEATURES, 0.5)), abs=1e-8
    )


@pytest.mark.parametrize("labels", [[0] * 20, [0] * 16 + [1] * 4, [0, 1, 2] * 10])
def test_other_than_two_classes_with_rows_for_each_site_are_refused(labels: list[int]) -> None:
    with pytest.raises(ConfigError, match="labels: expected two classes of at least 5 rows, got"):
        stratified_random(labels, 5, generator(0))
    with pytest.raises(ConfigError, match="labels: expected two classes of at least 5 rows, got"):
        clustered(np.zeros((len(labels), 2)), labels, 5, 0.1, generator(0))


@pytest.mark.parametrize(
    ("variance", "share", "name"),
    [(0.0, 0.1, "variance"), (1.0, 0.1, "variance"), (0.1, 0.21, "min_share"), (0.1, -0.1, "min_share")],
)
def test_options_out_of_range_are_refused(variance: float, share: float, name: str) -> None:
    with pytest.raises(ConfigError, match=f"clustered: {name}: expected"):
        clustered(FEATURES, LABELS, 5, variance, generator(0), share)
