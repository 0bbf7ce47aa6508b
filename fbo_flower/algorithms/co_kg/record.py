"""The record of Co-KG."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import (
    ALL_OBSERVATIONS,
    ALL_POINTS,
    POINTS,
    VALUES,
    AlgorithmRecord,
    Meaning,
    PlotStyle,
)

RECORDS = (
    AlgorithmRecord(
        name="co-kg",
        home="fbo_flower.algorithms.co_kg.co_kg:CoKG",
        summary="collaborative knowledge gradient on a Wasserstein barycenter (Zhan et al. 2025); "
        'recommended: `central = "auto"` with `refit = "doubling"`, which pools while agents share one '
        "objective; its comparators as `framework`",
        server_sends="shared hyperparameters and pivot points; a point to evaluate",
        agent_sends="mean and covariance of its posterior at the pivots: "
        "[as good as its trials](docs/papers/co_kg.md#privacy)",
        meanings={
            "moments": Meaning("number, mean and deviation of its values", ALL_OBSERVATIONS, VALUES),
            "theta": Meaning("lengthscales, scale and noise of its model", ALL_OBSERVATIONS),
            "log_likelihoods": Meaning(
                "how well 540 lengthscales, scales and noises suit its values", ALL_OBSERVATIONS
            ),
            "mean": Meaning("mean of its model at common points", ALL_OBSERVATIONS),
            "covariance": Meaning("covariance of its model at common points", ALL_POINTS),
            "shift": Meaning("what its observations add to the mean of the common prior", ALL_OBSERVATIONS),
            "precision": Meaning(
                "what its observations add to the precision of the common prior", ALL_POINTS
            ),
            "best": Meaning("index of the point that its model thinks best", ALL_OBSERVATIONS, POINTS),
            "best_mean": Meaning("value that its model expects there", ALL_OBSERVATIONS, VALUES),
            "points": Meaning("points of this task", "this task", POINTS),
            "outcomes": Meaning("values of this task", "this task", VALUES),
        },
        inference="Every value at a point that the server chose, exactly, from the reports before and "
        "after; the points and values of the warm-up from one covariance. Noise on the means averages out "
        "over a run.",
        summed=frozenset({"moments", "theta", "log_likelihoods"}),
        attack="co-kg",
        style=PlotStyle("#009E73", "-."),
        page="docs/papers/co_kg.md",
    ),
)  # fmt: skip
