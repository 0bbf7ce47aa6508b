"""What fed-ei gives away. Its record and docs/papers/fed_ei.md say the same: change them together."""

from __future__ import annotations

from studies.attacks import find


def test_a_part_in_the_clear_gives_points_and_values_away_and_totals_hide_only_whose_they_are() -> None:
    found = {result.secret: result for result in find("fed-ei").run(0)}
    points, values = (
        found[f"FedEI: {what}"]
        for what in ("points, from an agent's part in the clear", "values at the points that were found")
    )
    # points of one agent that lie close together are found less exactly
    assert points.error < 0.05 * points.guess
    assert values.error < 0.15 * values.guess
    for what in (
        "all points of all agents, from a total",
        "the points of one round, from the difference of two totals",
    ):
        known = found[f"FedEI, secure sums: {what}"]
        assert known.error < 0.2 * known.guess
    weak, strong = (
        found[f"FedEI, noise {noise} of its own: an agent's newest point, from its part"]
        for noise in ("0.001", "1")
    )
    assert weak.error < 0.1 * weak.guess
    assert strong.error > 0.5 * strong.guess, "noise of an agent's own hides where its newest point is"
