"""The records of HCT, Fed1-UCB and FN-UCB, the comparators of PF-PNE."""

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
from fbo_flower.algorithms.local_records import HOW_MANY_TO_DO, HOW_MANY_WERE_DONE, NOTHING_TO_INFER
from fbo_flower.algorithms.pne.record import EVALUATIONS, OWED

_PAGE = "docs/papers/pf_pne.md"

RECORDS = (
    AlgorithmRecord(
        name="hct",
        home="fbo_flower.algorithms.bandits.hct:HCT",
        summary="high-confidence tree by every agent alone (Azar et al. 2014): the bandits' local baseline",
        server_sends=HOW_MANY_TO_DO,
        agent_sends=HOW_MANY_WERE_DONE,
        meanings={"evaluations": EVALUATIONS},
        inference=NOTHING_TO_INFER,
        style=PlotStyle("#56B4E9", "-"),
        page=_PAGE,
    ),
    AlgorithmRecord(
        name="fed1-ucb",
        home="fbo_flower.algorithms.bandits.fed1_ucb:Fed1UCB",
        summary="comparator of the PF-PNE paper on random arms: elimination by the mean",
        server_sends="the arms that are left, as numbers of a seed",
        agent_sends="a mean and a count per arm",
        meanings={
            "means": Meaning(
                "mean value of every arm that the server named; after a single evaluation it is that value "
                "itself",
                "the observations of these arms", VALUES,
            ),
            "counts": Meaning(
                "how often every arm was evaluated", "the observations of these arms", POINTS
            ),
            "owed": OWED,
            "evaluations": EVALUATIONS,
        },
        inference="The mean of every arm that the server named; after a single evaluation it is that value.",
        style=PlotStyle("#D55E00", "-."),
        page=_PAGE,
    ),
    AlgorithmRecord(
        name="fn-ucb",
        home="fbo_flower.algorithms.bandits.fn_ucb:FNUCB",
        summary="comparator of the PF-PNE paper on random arms: neural features, for small budgets",
        server_sends="merged matrices and weights of a small network",
        agent_sends="its own matrices and weights",
        meanings={
            "gram": Meaning("sum of products of gradients at its points", ALL_POINTS),
            "response": Meaning("sum of its values times gradients at their points", ALL_OBSERVATIONS),
            "weights": Meaning("a network fitted to its values", ALL_OBSERVATIONS),
            "evaluations": EVALUATIONS,
        },
        inference="Sums over all observations since the last exchange; where that is one observation, they "
        "give its point and its value.",
        style=PlotStyle("#0072B2", "-."),
        page=_PAGE,
    ),
)  # fmt: skip
