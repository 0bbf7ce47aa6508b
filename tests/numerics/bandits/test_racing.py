import numpy as np
import pytest

from fbo_flower.numerics.bandits import partition, racing
from fbo_flower.numerics.bandits.pulls import Pulls
from fbo_flower.numerics.bandits.racing import Cells, Gathering, RacingOptions, RacingSearch


def cone(points, peak):
    return 1 - np.sqrt(((points - peak) ** 2).sum(axis=1))


def gather(peaks, options, noise, seed=0, rounds=30, pulls=2):
    """Run stage 1 with one cone per client; return the server, counts, sums, squared deviations `(M, n)`."""
    rng = np.random.default_rng(seed)
    server = Gathering(options, 1000)
    sums, within = np.empty((len(peaks), 0)), np.empty((len(peaks), 0))
    for _ in range(rounds):
        depth, index = server.next_cells(1000)
        if len(depth) == 0:
            break
        pairs = zip(depth, index, strict=True)
        points = np.array([partition.centre(h, i, options.dim, options.arity) for h, i in pairs])
        values = np.array([cone(points, peak) for peak in peaks])[:, :, np.newaxis]
        draws = values + rng.uniform(-noise, noise, (len(peaks), len(points), pulls))
        sums = np.concatenate([sums, draws.sum(axis=2)], axis=1)
        deviations = draws - draws.mean(axis=2, keepdims=True)
        within = np.concatenate([within, (deviations**2).sum(axis=2)], axis=1)
        server.hear(draws.mean(axis=2), np.full(draws.shape[:2], pulls))
    return server, np.full(sums.shape, pulls), sums, within


def begin(budget, server, counts, sums, within):
    """Return a client's search after stage 1, with its own pulls there."""
    return RacingSearch.begin(budget, server.result(), Pulls(counts, sums, within, np.zeros_like(counts)))


PEAKS = np.array([[0.31, 0.62], [0.36, 0.57], [0.3, 0.65]])


@pytest.mark.parametrize("options", [RacingOptions(2), RacingOptions(3, 8)])
def test_the_first_cells_are_whole_depths_in_the_order_of_the_tree_for_a_third_of_the_budget(options):
    depth, index = racing.first_cells(options, 1000)
    tree = racing.Cells(options)
    while tree.size < len(depth):
        tree.split(np.argmin(tree.first_child[: tree.size] >= 0), np.zeros(len(depth)))
    np.testing.assert_array_equal(tree.depth[: tree.size], depth)
    np.testing.assert_array_equal(tree.index[: tree.size], index)
    assert len(depth) * options.first_pulls <= 1000 / 3
    found = {budget: len(racing.first_cells(RacingOptions(2), budget)[0]) for budget in (50, 90, 20_000)}
    assert found == {50: 7, 90: racing.FIRST_CELLS, 20_000: 63}  # 63: the first whole depths above 35.4


def test_anchors_are_the_best_ancestors_on_the_border():
    cells = Cells(RacingOptions(1))
    mean = np.zeros(64)
    mean[0] = 1.0  # the root's centre, .5
    left, right = cells.split(0, mean)
    assert cells.anchor[[left, right]].tolist() == [0, 0]
    outer, inner = cells.split(left, mean)  # [0, .25], [.25, .5]
    assert cells.anchor[[outer, inner]].tolist() == [left, 0]
    mean[left] = 2.0
    outer, inner = cells.split(right, mean)
    assert cells.anchor[outer] == 0  # .5 lies on [.5, .75]
    assert cells.anchor[inner] == right


def test_the_bonus_is_at_least_the_known_smoothness_and_0_where_descending_never_brought_anything(
    monkeypatch,
):
    monkeypatch.setattr(racing, "OPTIMISM", 0.0)
    for known, least in (({"nu": 9.0, "rho": 0.5}, 9.0 * 0.5 ** np.arange(20)), ({}, 0.0)):
        cells = Cells(RacingOptions(1, **known))
        cells.split(0, np.zeros(1))
        bonus = racing.bonuses(cells, np.array([0.5, 0.4, 0.4]), np.zeros(3))
        np.testing.assert_allclose(bonus[:20], least)


@pytest.mark.parametrize(("noise", "arity"), [(0.0, 2), (0.1, 4)])
def test_the_search_ends_at_its_own_peak_also_with_what_is_kept_between_two_questions(noise, arity):
    server, counts, sums, within = gather(PEAKS, RacingOptions(2, arity), noise)
    search = begin(2500, server, counts[0], sums[0], within[0])
    others = sums[1:].sum(axis=0) / counts[1:].sum(axis=0)
    np.testing.assert_allclose(search.others.mean, others)  # without the client's own pulls
    rng, values, first = np.random.default_rng(5), [], {}
    while search.left > 0:
        kept = RacingSearch.from_arrays(search.cells.options, search.arrays())
        cell, depth, index, pulls = search.ask()
        assert kept.ask() == (cell, depth, index, pulls)
        values.append(cone(partition.centre(depth, [index], 2, arity), PEAKS[0])[0])
        first.setdefault(cell, pulls)
        draws = values[-1] + rng.uniform(-noise, noise, pulls)
        search.tell(cell, pulls, draws.sum(), ((draws - draws.mean()) ** 2).sum())
    depth, index, _ = search.best()
    assert np.abs(partition.centre(depth, index, 2, arity) - PEAKS[0]).max() < 0.04
    assert np.mean(values[-5:]) > 0.95
    assert (set(first.values()) == {1}) == (noise == 0.0), "it finds out whether there is noise"


def test_clients_share_deeper_and_count_for_each_other_where_they_agree():
    rng = np.random.default_rng(0)
    sizes, worth = [], []
    for stddev in (0.0, 0.3):
        peaks = 0.4 + stddev * rng.standard_normal((10, 2))
        server, counts, sums, within = gather(peaks, RacingOptions(2), 0.1)
        search = begin(1000, server, counts[0], sums[0], within[0])
        _, effective = search._posterior(search._noise()[0])
        sizes.append(search.cells.size)
        worth.append((effective - counts[0]).mean())
    assert sizes[0] > sizes[1]
    assert worth[0] > 5  # of at most 18 pulls
    assert worth[1] < 0.5


def test_sharing_ends_with_its_budget_or_when_clients_drop_out_and_the_search_goes_on():
    server = gather(np.full((5, 2), 0.4), RacingOptions(2), 0.0, rounds=1)[0]
    assert len(server.next_cells(3)[0]) == 0
    assert len(server.next_cells(9)[0]) <= 4
    server = Gathering(RacingOptions(2), 1000)
    depth, _ = server.next_cells(1000)
    counts = np.zeros((3, len(depth)), dtype=np.int64)
    counts[0] = 2
    server.hear(np.full((3, len(depth)), 0.5), counts)
    assert len(server.next_cells(1000)[0]) == 0
    late = begin(100, server, counts[1], np.zeros(len(depth)), np.zeros(len(depth)))
    assert late.ask()[3] == 2  # it starts with cells of its own


def test_a_failed_pull_is_missing_in_a_cell_with_a_success_and_the_worst_mean_in_another():
    server, counts, sums, within = gather(PEAKS, RacingOptions(2), 0.1)
    search = begin(1000, server, counts[0], sums[0], within[0])
    cell, before, left = 3, search._posterior(0.0)[0], search.left
    search.tell(cell, 0, 0.0, np.nan, failed=5)
    np.testing.assert_array_equal(search._posterior(0.0)[0], before)
    assert search.left == left - 5
    for column in (counts[0], sums[0], within[0]):
        column[cell] = 0  # as if it had never been pulled
    search = begin(1000, server, counts[0], sums[0], within[0])
    noise, left = search._noise(), search.left
    search.tell(cell, 0, 0.0, np.nan, failed=5)
    assert search._posterior(0.0)[0][cell] == pytest.approx(
        (sums[0] / np.maximum(1, counts[0]))[counts[0] > 0].min()
    )
    assert search._noise() == noise, "failures say nothing about the noise"
    search.tell(cell, 1, 0.9, 0.0)
    assert search._posterior(0.0)[0][cell] == 0.9
    assert search.left == left - 6
