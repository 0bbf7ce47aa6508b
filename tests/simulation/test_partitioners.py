import numpy as np
import pytest
from amounts import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.partitioners import by_group, clustered, dirichlet, stratified_random


@st.composite
def label_arrays(draw):
    counts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    return generator(draw(st.integers(0, 99))).permutation(np.repeat(np.arange(len(counts)), counts))


def is_partition(parts, num_rows):
    ascending = all(np.array_equal(part, np.sort(part)) for part in parts)
    return ascending and np.array_equal(np.sort(np.concatenate(parts)), np.arange(num_rows))


@given(
    labels=label_arrays(),
    num_parts=st.integers(1, 12),
    concentration=st.floats(1e-300, 1e3),
    min_size=st.integers(1, 10),
    min_classes=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=examples(100, 40), deadline=None)
def test_dirichlet_parts_are_disjoint_cover_all_rows_and_meet_every_minimum_that_can_be_met(
    labels, num_parts, concentration, min_size, min_classes, seed
):
    assume(len(labels) >= num_parts * max(min_size, min_classes))
    servings = np.minimum(np.bincount(labels), num_parts).sum()
    assume(servings >= num_parts * min_classes)

    parts = dirichlet(labels, num_parts, concentration, generator(seed), min_size, min_classes)

    assert len(parts) == num_parts
    assert is_partition(parts, len(labels))
    assert min(len(part) for part in parts) >= min_size
    assert min(len(np.unique(labels[part])) for part in parts) >= min_classes


def test_dirichlet_meets_a_class_minimum_that_leaves_no_row_to_spare():
    labels = np.repeat(np.arange(6), [4, 4, 1, 1, 1, 1])
    for seed in range(10):
        parts = dirichlet(labels, 4, 0.01, generator(seed), min_classes=3)
        assert all(len(np.unique(labels[part])) >= 3 for part in parts)


def test_by_group_gives_the_rows_of_each_group_in_the_order_of_the_groups():
    parts = by_group(["b", "a", "b", "c", "a"])
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2], [3]]


FEATURES, LABELS = load_breast_cancer(return_X_y=True)


@given(
    negative=st.integers(5, 60), positive=st.integers(5, 60), num=st.integers(1, 5), seed=st.integers(0, 99)
)
@settings(deadline=None)
def test_random_sites_are_a_partition_into_equal_shares_of_both_classes(negative, positive, num, seed):
    labels = generator(seed, "labels").permutation(np.repeat([0, 1], [negative, positive]))
    parts = stratified_random(labels, num, generator(seed))
    assert is_partition(parts, len(labels))
    counts = np.array([np.bincount(labels[part], minlength=2) for part in parts])
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert (np.diff(counts[:, 0]) >= 0).all()
    assert (np.diff(counts[:, 1]) <= 0).all()


@given(seed=st.integers(0, 999), share=st.floats(0, 0.2), variance=st.sampled_from([0.1, 0.5]))
@settings(max_examples=examples(15, 5), deadline=None)
def test_clustered_sites_are_a_partition_with_a_least_size(seed, share, variance):
    parts = clustered(FEATURES, LABELS, 5, variance, generator(seed), share)
    assert is_partition(parts, len(LABELS))
    assert min(map(len, parts)) >= min(share * len(LABELS), len(LABELS) // 5)


@pytest.mark.parametrize(("variance", "components"), [(0.1, 1), (0.7, 3)])
def test_clusters_are_those_of_scikit_learn_on_its_principal_components(variance, components):
    scores = PCA(variance, svd_solver="full").fit_transform(StandardScaler().fit_transform(FEATURES))
    assert scores.shape[1] == components
    rng, buckets = generator(0), []
    for label in (0, 1):
        rows = np.flatnonzero(label == LABELS)
        mixture = GaussianMixture(5, covariance_type="tied", random_state=int(rng.integers(2**31)))
        found = mixture.fit_predict(scores[rows])
        buckets.append(sorted([rows[found == k] for k in range(5)], key=len))
    expected = [np.sort(np.concatenate(pair)) for pair in zip(buckets[0], buckets[1][::-1], strict=True)]
    constant = np.column_stack([FEATURES, np.full(len(LABELS), 3.0)])  # a column that does not matter
    parts = clustered(constant, LABELS, 5, variance, generator(0), 0.0)
    assert all(np.array_equal(part, pair) for part, pair in zip(parts, expected, strict=True))
