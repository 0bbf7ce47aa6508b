"""The best trial: of those that have come furthest, the one with the best value, smoothed by the surrogate.

The largest of many noisy values is too large: it belongs to a trial that was good and lucky. The more trials
there are, the more luck decides. The surrogate's posterior mean at a trial takes into account how its
neighbours did, and how noisy each value is, so trials are ranked by it once there is a surrogate. Trials with
more rounds come first, because values of different rounds do not compare.
"""

from __future__ import annotations

from collections.abc import Sequence

from fbo_flower.federated.proposals import Proposals
from fbo_flower.federated.records import Trial


def ranking(
    trials: Sequence[Trial], proposals: Proposals | None = None, rungs: Sequence[int] = ()
) -> list[Trial]:
    """Return the trials that have a value from the best to the worst.

    Finalists that were judged by all clients come first, by that value.

    Parameters
    ----------
    proposals, rungs : whose surrogate smooths the values; None: by the values as they are
    """
    known = [trial for trial in trials if trial.rounds and not trial.failure]
    values = {trial.number: trial.value for trial in known}
    if proposals is not None:
        values |= smoothed(trials, proposals, rungs)

    def key(trial: Trial) -> tuple[bool, float, int, float, int]:
        judged = trial.judged
        return (
            judged is None,
            0.0 if judged is None else -judged,
            -trial.round,
            -values[trial.number],
            trial.number,
        )

    return sorted(known, key=key)


def smoothed(trials: Sequence[Trial], proposals: Proposals, rungs: Sequence[int]) -> dict[int, float]:
    """Return the posterior mean at each trial; nothing if there is no surrogate yet."""
    if proposals.kind != "ei" or len(trials) < proposals.num_initial:
        return {}
    observed = proposals.observations(trials, rungs)
    if observed is None:
        return {}
    means = proposals.process(*observed).means
    return {trial.number: float(mean) for trial, mean in zip(trials, means, strict=True)}
