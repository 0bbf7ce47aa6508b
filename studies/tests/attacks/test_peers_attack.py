"""What the comparators' messages tell: the figures of `docs/papers/peers.md`."""

from __future__ import annotations

from studies.attacks import find


def test_designs_tell_the_points_that_are_evaluated_and_where_the_best_one_is() -> None:
    found = {result.secret: result for result in find("consensus").run(0)}
    points = found["Consensus: the points it evaluates, from the designs that are exchanged"]
    assert points.error < 1e-9
    assert points.count >= 30
    best = found["Consensus: its best point, from the last design"]
    assert best.error < best.guess


def test_ranks_tell_where_the_best_point_is() -> None:
    (found,) = find("fmtbo").run(0)
    assert found.error < 0.5 * found.guess
