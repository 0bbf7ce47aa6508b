"""The records of the algorithms of this package, family by family, after the two local baselines."""

from __future__ import annotations

from typing import Any

from fbo_flower.algorithms.algorithm_record import (
    ALL_OBSERVATIONS,
    ALL_POINTS,
    BOTH,
    POINTS,
    ROWS,
    THE_COUNT,
    VALUES,
    AlgorithmRecord,
    Meaning,
    PlotStyle,
)

_SENDS_POSTERIORS = "shared random features; every other agent's posterior, each version once, under a digest"
_SENDS_ITS_POSTERIOR = (
    "its posterior over `M` weights: [as good as its trials](docs/papers/fts.md#the-comparators-rgpe-and-taf)"
)
_OF_POSTERIOR = {
    "mean": Meaning(
        "mean of the weights of a model of its values, in random features that all agents share",
        ALL_OBSERVATIONS,
    ),
    "inverse": Meaning("uncertainty of these weights; it depends on the points alone", ALL_POINTS),
    "missing": Meaning("whether it has lost what it was sent", "its memory"),
}
_INFERENCE = (
    "The uncertainty is a function of the points alone, so guesses of points can be checked against it. "
    "Given the points, one linear system turns the mean into the standardised values."
)
EVALUATIONS = Meaning("how many evaluations were really made", THE_COUNT)
OWED = Meaning("how many evaluations are still to be made", THE_COUNT)
_OF_CELLS = {
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
_SENDS_CELLS = "cells of one depth; once, the cells that survived, with their statistics"
_SENDS_MEANS = "a mean and a count per cell (after a single evaluation the mean is that score itself)"
_PNE_PAGE = "docs/papers/pf_pne.md"


def _alone(**texts: Any) -> AlgorithmRecord:
    """Return the record of an algorithm whose agents tune alone and report only counts."""
    return AlgorithmRecord(
        server_sends="how many trials to do",
        agent_sends="how many were done, how many failed",
        inference="Nothing about points or values: no report depends on them.",
        **texts,
    )


RECORDS = (
    _alone(
        name="random",
        home="fbo_flower.algorithms.random_search:RandomSearch",
        summary="uniform random search",
        style=PlotStyle("#8a8a8a", ":"),
    ),
    _alone(
        name="ts",
        home="fbo_flower.algorithms.thompson:ThompsonSampling",
        summary="Thompson sampling on the agent's own Gaussian process, never the same point twice: the "
        "local baseline",
        style=PlotStyle("#000000", "--"),
    ),
    AlgorithmRecord(
        name="fts",
        home="fbo_flower.algorithms.fts.fts:FTS",
        summary="federated Thompson sampling with random Fourier features (Dai et al. 2020), with advice "
        "`single` (the paper), `portfolio`, `mixture`, `random` (control)",
        server_sends="shared random features; in some rounds another agent's message "
        '(`advice = "portfolio"`: a point)',
        agent_sends="a message: `M` random numbers that summarise its model of its scores",
        meanings={
            "weights": Meaning(
                "one random draw of the weights of a model of its values, in random features that all agents "
                "share",
                ALL_OBSERVATIONS,
            ),
            "log_likelihoods": Meaning("how well six lengthscales suit its values", ALL_OBSERVATIONS),
        },
        inference="In a round in which the agent follows another agent's weights, the server knows those "
        "weights and can maximise them as the agent does, so it knows roughly which point the agent "
        "evaluated. The weights that come back then give the standardised value there, nearly.",
        summed=frozenset({"log_likelihoods"}),
        attack="fts",
        style=PlotStyle("#0072B2", "-"),
        page="docs/papers/fts.md",
    ),
    AlgorithmRecord(
        name="dp-fts",
        home="fbo_flower.algorithms.fts.dp_fts:DPFTS",
        summary="differentially private federated Thompson sampling with distributed exploration (Dai et al. "
        "2021), central or local noise",
        server_sends="shared random features; in some rounds sums of messages with noise",
        agent_sends='weights of its model, clipped; with `noise = "local"` the agent adds noise before they '
        "leave: [what is bounded](docs/privacy.md)",
        meanings={
            "weights": Meaning(
                "weights of a model of its values, in random features that all agents share, clipped to a "
                "largest norm; with local noise the agent's noise is added",
                ALL_OBSERVATIONS,
            ),
        },
        inference="With central noise the server sees the messages without noise; epsilon bounds what "
        "everybody else learns. With local noise the bound on epsilon holds against the server too. Noise "
        "that is drawn from a seed, as in simulations, bounds nothing.",
        summed=frozenset({"weights"}),
        inference_with_sums="From many sums with changing members the server can estimate the average of "
        "each agent's messages.",
        attack="fts",
        style=PlotStyle("#56B4E9", "-."),
        page="docs/papers/dp_fts.md",
        caution="Outside simulation leave the strategy's `seed` at None: noise then comes from the operating "
        "system. With a seed it is drawn from the seed, and anybody who knows the seed can subtract it.",
    ),
    _alone(
        name="ei",
        home="fbo_flower.algorithms.ei.local:ExpectedImprovement",
        summary="expected improvement on the agent's own Gaussian process: the strong local baseline",
        style=PlotStyle("#4D4D4D", "--"),
    ),
    AlgorithmRecord(
        name="fed-ei",
        home="fbo_flower.algorithms.ei.fed_ei:FedEI",
        summary="expected improvement with an anonymous pool of all agents' observations, from secure sums",
        server_sends="the pool: at most 128 rows, each a configuration and a standardised value without a "
        "name; lengthscales fitted to them; sums of noisy moments of the agents' first values",
        agent_sends="the better one of its first observations, and each later one that repeats no row, once, "
        "as a row of a table that is summed over at least three agents; once noisy moments of its first "
        "values, summed too",
        meanings={
            "table": Meaning("its new observations in slots that it has drawn", ALL_OBSERVATIONS, BOTH),
            "rows": Meaning("its new observations", ALL_OBSERVATIONS, BOTH),
            "slots": Meaning("numbers that it has drawn, one for each row", "random numbers"),
            "level": Meaning("mean, logarithm of the variance, and squares of both", "its first values"),
        },
        inference="Without secure sums the server sees whose each configuration and value is.",
        summed=frozenset({"table", "level"}),
        inference_with_sums="Everybody reads the configurations in the pool and their values in common "
        "units. A row has no name: if the server follows the protocol, each member of its sum may have "
        "written it. Rows of two rounds that look alike may be of one agent. A server that makes up the pool "
        "guesses owners better.",
        attack="fed-ei",
        style=PlotStyle("#0072B2", (0, (4, 1))),
        page="docs/papers/fed_ei.md",
    ),
    AlgorithmRecord(
        name="rgpe",
        home="fbo_flower.algorithms.transfer.rgpe_taf:RGPE",
        summary="comparator of the FTS paper that sends whole posteriors: a ranking-weighted ensemble of all "
        "agents' models (Feurer et al. 2018)",
        server_sends=_SENDS_POSTERIORS,
        agent_sends=_SENDS_ITS_POSTERIOR,
        meanings=_OF_POSTERIOR,
        inference=_INFERENCE,
        attack="posterior",
        style=PlotStyle("#D55E00", "-"),
        page="docs/papers/fts.md#the-comparators-rgpe-and-taf",
    ),
    AlgorithmRecord(
        name="taf",
        home="fbo_flower.algorithms.transfer.rgpe_taf:TAF",
        summary="comparator of the FTS paper that sends whole posteriors: a transfer acquisition function "
        "(Wistuba et al. 2018)",
        server_sends=_SENDS_POSTERIORS,
        agent_sends=f"its best value, and {_SENDS_ITS_POSTERIOR}",
        meanings={
            **_OF_POSTERIOR,
            "incumbent": Meaning(
                "its best value, in units of the standard deviation of its values", ALL_OBSERVATIONS, VALUES
            ),
        },
        inference=f"{_INFERENCE} The best value, in units of the agent's own deviation, is sent as it is.",
        attack="posterior",
        style=PlotStyle("#CC79A7", "-"),
        page="docs/papers/fts.md#the-comparators-rgpe-and-taf",
    ),
    AlgorithmRecord(
        name="pf-pne",
        home="fbo_flower.algorithms.pne.pf_pne:PFPNE",
        summary="personalised federated X-armed bandit with double elimination (Li et al. 2024); "
        '`variant = "racing"` chooses by upper bound, without parameters; "gp" is for small budgets',
        server_sends=_SENDS_CELLS,
        agent_sends=f"{_SENDS_MEANS}; in stage 2 only how many trials were done",
        meanings=_OF_CELLS | _OF_GP,
        inference="In stage 1 the mean of every cell that the server named: the centre of the cell is the "
        "point, and the mean of a single evaluation is the value there. In stage 2 nothing. "
        'With `variant = "gp"` sums over all observations, which determine them while they are few.',
        summed=frozenset({"means", "counts"}),
        inference_with_sums="",
        attack="pf-pne",
        style=PlotStyle("#009E73", "-"),
        page=_PNE_PAGE,
    ),
    AlgorithmRecord(
        name="fed-pne",
        home="fbo_flower.algorithms.pne.pf_pne:FedPNE",
        summary="stage 1 of `pf-pne` alone: all agents eliminate cells together, to the end",
        server_sends=_SENDS_CELLS,
        agent_sends=_SENDS_MEANS,
        meanings=_OF_CELLS,
        inference="The mean of every cell that the server named: the centre of the cell is the point, and "
        "the mean of a single evaluation is the value there.",
        summed=frozenset({"means", "counts"}),
        inference_with_sums="",
        attack="pf-pne",
        style=PlotStyle("#E69F00", "-"),
        page=_PNE_PAGE,
    ),
    _alone(
        name="local-pne",
        home="fbo_flower.algorithms.pne.pf_pne:LocalPNE",
        summary="stage 2 of `pf-pne` alone: every agent eliminates cells for itself",
        meanings=_OF_CELLS,
        style=PlotStyle("#000000", (0, (5, 1.5, 1, 1.5))),
        page=_PNE_PAGE,
    ),
    _alone(
        name="hct",
        home="fbo_flower.algorithms.bandits.hct:HCT",
        summary="high-confidence tree by every agent alone (Azar et al. 2014): the bandits' local baseline",
        meanings={"evaluations": EVALUATIONS},
        style=PlotStyle("#56B4E9", "-"),
        page=_PNE_PAGE,
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
        page=_PNE_PAGE,
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
        page=_PNE_PAGE,
    ),
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
    AlgorithmRecord(
        name="rfms",
        home="fbo_flower.algorithms.rfms.rfms:RFMS",
        summary="restrictive federated model selection (Sun et al. 2019): one site trains, others judge, "
        "none shows a row; methods `lso`, `fso`, `fmo`, `ehvi`, `rand_mo`",
        server_sends="a configuration to the site that trains; its model to the sites that judge",
        agent_sends="the site that trains: its cross-validated loss and its model; a judge: one loss and a "
        "number of rows: [who decides what](docs/papers/rfms.md#what-each-site-decides)",
        meanings={
            "model": Meaning(
                "a trained model; some kinds hold rows of the data", "the rows it was trained on", ROWS
            ),
            "loss": Meaning("loss of a model on its rows", "its rows", VALUES),
            "num_rows": Meaning("how many rows that were", THE_COUNT),
            "failure": Meaning("why a model was not trained or judged, in words", "the attempt"),
            "late": Meaning("losses that the server had missed", "its rows", VALUES),
            "epsilon": Meaning("how much epsilon its noisy answers have spent", "its account"),
        },
        inference="What a model holds of the rows it was trained on. A server that sends a model made for "
        "the purpose learns from the curator's answer about single rows, unless its operator adds noise.",
        attack="rfms",
        style=PlotStyle("#CC79A7", "-."),
        page="docs/papers/rfms.md",
    ),
)  # fmt: skip
