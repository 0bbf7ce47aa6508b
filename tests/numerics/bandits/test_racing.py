import numpy as np
import pytest

from fbo_flower.numerics.bandits import partition, racing
from fbo_flower.numerics.bandits.pulls import Pulls
from fbo_flower.numerics.bandits.racing import Gathering, RacingOptions, RacingSearch


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


def plain_choice(search):
    """Variance of a pull, and the cell with the best upper bound, from nothing but the statistics."""
    cells, size, own, others = search.cells, search.cells.size, search.own, search.others
    options, seen = cells.options, own.count > 0
    degrees = (own.count[seen] - 1).sum()
    within = own.within[seen].sum()
    noiseless = within <= 1e-13 * degrees * np.var(own.total[seen] / own.count[seen])
    variance = 0.0 if noiseless else within / degrees * (1 + 2 / np.sqrt(degrees))
    if not seen.all():
        return variance, None
    n, prior = len(others.mean), np.zeros(size)
    if variance > 0:
        differ = np.maximum(others.spread - variance / others.pulls, 0) * (
            1 + 1 / np.maximum(1, others.number)
        )
        error = variance / np.maximum(1e-300, others.pulls * others.number)
        prior[:n] = np.where(others.number > 0, variance / (differ + error), 0)
    effective = own.count + prior
    total = own.total.copy()
    total[:n] += prior[:n] * others.mean
    mean = total / effective
    table = search.bonus
    if table is None:
        table = racing.bonuses(cells, mean, variance / effective)
        table = np.where(table * search.budget < 10 * table[0], 0.0, table)
    room = cells.leaves() & (cells.depth[:size] < options.max_depth)
    room &= size + options.arity <= racing.MAX_CELLS
    bonus = np.where(room, table[cells.depth[:size]], 0.0)
    z = np.maximum(1, 3 * np.log(np.maximum(1, search.budget / (effective * max(1, size // 2)))))
    anchored = mean[cells.anchor[:size]] + racing.BORDER_SHARE * bonus
    bounds = mean + np.sqrt(variance * z / effective) + bonus
    return variance, int(np.argmax(np.where(bonus > 0, np.maximum(bounds, anchored), bounds)))


@pytest.mark.parametrize(("noise", "arity"), [(0.0, 2), (0.1, 4)])
def test_the_search_takes_the_plain_bounds_and_ends_at_its_own_peak(noise, arity):
    """Also with what is kept between two questions; and it finds out whether there is noise."""
    server, counts, sums, within = gather(PEAKS, RacingOptions(2, arity), noise)
    search = begin(2500, server, counts[0], sums[0], within[0])
    others = sums[1:].sum(axis=0) / counts[1:].sum(axis=0)
    np.testing.assert_allclose(search.others.mean, others)  # without the client's own pulls
    rng, compared, values, first = np.random.default_rng(5), 0, [], {}
    while search.left > 0:
        kept = RacingSearch.from_arrays(search.cells.options, search.arrays())  # as between two tasks
        waiting, size = len(search.waiting), search.cells.size
        variance, best = plain_choice(search)
        assert search._noise()[0] == pytest.approx(variance, rel=1e-12, abs=0)
        cell, depth, index, pulls = search.ask()
        assert kept.ask() == (cell, depth, index, pulls)
        if not waiting and best is not None and search.cells.size == size:
            assert cell == best
            compared += 1
        elif best is not None and search.cells.size > size:
            assert search.cells.parent[cell] == best  # the best region was split
            compared += 1
        values.append(cone(partition.centre(depth, [index], 2, arity), PEAKS[0])[0])
        first.setdefault(cell, pulls)
        draws = values[-1] + rng.uniform(-noise, noise, pulls)
        search.tell(cell, pulls, draws.sum(), ((draws - draws.mean()) ** 2).sum())
    assert compared > 20
    assert search.left == 0
    depth, index, _ = search.best()
    assert np.abs(partition.centre(depth, index, 2, arity) - PEAKS[0]).max() < 0.04
    assert np.mean(values[-5:]) > 0.95
    assert (set(first.values()) == {1}) == (noise == 0.0)


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
    search, cell = begin(1000, server, counts[0], sums[0], within[0]), 3
    before, left = search._posterior(0.0)[0], search.left
    search.tell(cell, 0, 0.0, np.nan, failed=5)
    np.testing.assert_array_equal(search._posterior(0.0)[0], before)
    assert search.left == left - 5
    for column in (counts[0], sums[0], within[0]):
        column[cell] = 0  # as if it had never been pulled
    search = begin(1000, server, counts[0], sums[0], within[0])
    search.tell(cell, 0, 0.0, np.nan, failed=5)
    worst = (sums[0] / np.maximum(1, counts[0]))[counts[0] > 0].min()
    assert search._posterior(0.0)[0][cell] == pytest.approx(worst)
    search.tell(cell, 1, 0.9, 0.0)
    assert search._posterior(0.0)[0][cell] == 0.9
