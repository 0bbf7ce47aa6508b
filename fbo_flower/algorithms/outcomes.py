"""Merge and count outcomes."""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.records import AgentState, Outcome


def joined(outcomes: list[Outcome]) -> Outcome:
    """Merge the outcomes of one task into one, with a row per point, in the order of first evaluations.

    A bandit may evaluate the same cell several times in one task; these evaluations become one row.
    """
    points = np.concatenate([o.points for o in outcomes])
    seen: dict[bytes, int] = {}  # a point -> its row
    place = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in points + 0.0])  # no -0.0
    first = np.full(len(seen), len(place))
    np.minimum.at(first, place, np.arange(len(place)))
    spans = np.bincount(place, weights=np.concatenate([o.pulls for o in outcomes])).astype(np.int64)
    each = [np.isfinite(o.values).astype(np.int64) if o.counts is None else o.counts for o in outcomes]
    weights = np.concatenate(each)
    counts = np.bincount(place, weights=weights).astype(np.int64)
    values = np.nan_to_num(np.concatenate([o.values for o in outcomes]))
    with np.errstate(invalid="ignore"):
        means = np.bincount(place, weights=values * weights) / np.where(counts > 0, counts, np.nan)
    trials = outcomes[0].trials[0] + np.cumsum(spans) - spans
    failures: dict[int, str] = {}
    if any(o.failures for o in outcomes):
        reasons = {t: text for o in outcomes for t, text in o.failures.items()}
        every = np.concatenate([o.trials for o in outcomes])
        at = {int(t): int(p) for t, p in zip(every, place, strict=True)}
        failures = {int(trials[at[t]]): reasons[t] for t in sorted(reasons, reverse=True)}  # the first stays
    return Outcome(points[first], means, trials, failures, counts, spans)


def num_succeeded(outcome: Outcome) -> int:
    """Return the number of successful evaluations."""
    counts = np.isfinite(outcome.values) if outcome.counts is None else outcome.counts
    return int(np.sum(counts))


def seen_by(agent_state: AgentState) -> str:
    """Return the number of an agent's evaluations so far as text, for its ledger."""
    before = int(np.count_nonzero(agent_state.history.trials < 0))
    earlier = f" and {before} from before the study" if before else ""
    return f"{agent_state.next_trial} evaluations{earlier}"
