"""The records of PF-PNE and of each of its two halves alone."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import (
    ALL_OBSERVATIONS,
    ALL_POINTS,
    POINTS,
    THE_COUNT,
    VALUES,
    AlgorithmRecord,
    Meaning,
    PlotStyle,
)
from fbo_flower.algorithms.local_records import HOW_MANY_TO_DO, HOW_MANY_WERE_DONE, NOTHING_TO_INFER

EVALUATIONS = Meaning("how many evaluations were really made", THE_COUNT)
OWED = Meaning("how many evaluations are still to be made", THE_COUNT)
_MEANINGS = {
    "means": Meaning(
        "mean value in every cell that the server named; after a single evaluation it is that value itself",
        "the observations in these cells", VALUES,
    ),
    "counts": Meaning("how often every cell was evaluated", "the observations in these cells", POINTS),
    "owed": OWED,
    "evaluations": EVALUATIONS,
}  # fmt: skip
_OF_GP = {  # of `variant = "gp"`
    "exchange": Meaning("which exchange the report belongs to", THE_COUNT),
    "moments": Meaning("number, mean and standard deviation of its values", ALL_OBSERVATIONS, VALUES),
    "likelihoods": Meaning("how well each of 20 settings of a model explains its values", ALL_OBSERVATIONS),
    "precision": Meaning("sums of products of features of its points", ALL_POINTS),
    "response": Meaning("sum of its values times features of their points", ALL_OBSERVATIONS),
    "misfit": Meaning("how well each of 4 models explains its values", ALL_OBSERVATIONS),
}  # fmt: skip
_SERVER_SENDS = "cells of one depth; once, the cells that survived, with their statistics"
_AGENT_SENDS = "a mean and a count per cell (after a single evaluation the mean is that score itself)"
_PAGE = "docs/papers/pf_pne.md"

RECORDS = (
    AlgorithmRecord(
        name="pf-pne",
        home="fbo_flower.algorithms.pne.pf_pne:PFPNE",
        summary="personalised federated X-armed bandit with double elimination (Li et al. 2024); "
        '`variant = "racing"` chooses by upper bound, without parameters; "gp" is for small budgets',
        server_sends=_SERVER_SENDS,
        agent_sends=f"{_AGENT_SENDS}; in stage 2 only how many trials were done",
        meanings=_MEANINGS | _OF_GP,
        inference="In stage 1 the mean of every cell that the server named: the centre of the cell is the "
        "point, and the mean of a single evaluation is the value there. In stage 2 nothing. "
        'With `variant = "gp"` sums over all observations, which determine them while they are few.',
        summed=frozenset({"means", "counts"}),
        inference_with_sums="",
        attack="pf-pne",
        style=PlotStyle("#009E73", "-"),
        page=_PAGE,
    ),
    AlgorithmRecord(
        name="fed-pne",
        home="fbo_flower.algorithms.pne.pf_pne:FedPNE",
        summary="stage 1 of `pf-pne` alone: all agents eliminate cells together, to the end",
        server_sends=_SERVER_SENDS,
        agent_sends=_AGENT_SENDS,
        meanings=_MEANINGS,
        inference="The mean of every cell that the server named: the centre of the cell is the point, and "
        "the mean of a single evaluation is the value there.",
        summed=frozenset({"means", "counts"}),
        inference_with_sums="",
        attack="pf-pne",
        style=PlotStyle("#E69F00", "-"),
        page=_PAGE,
    ),
    AlgorithmRecord(
        name="local-pne",
        home="fbo_flower.algorithms.pne.pf_pne:LocalPNE",
        summary="stage 2 of `pf-pne` alone: every agent eliminates cells for itself",
        server_sends=HOW_MANY_TO_DO,
        agent_sends=HOW_MANY_WERE_DONE,
        meanings=_MEANINGS,
        inference=NOTHING_TO_INFER,
        style=PlotStyle("#000000", (0, (5, 1.5, 1, 1.5))),
        page=_PAGE,
    ),
)
