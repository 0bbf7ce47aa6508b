"""The records of RGPE and TAF."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import (
    ALL_OBSERVATIONS,
    ALL_POINTS,
    VALUES,
    AlgorithmRecord,
    Meaning,
    PlotStyle,
)

_SERVER_SENDS = "shared random features; every other agent's posterior, each version once, under a digest"
_AGENT_SENDS = (
    "its posterior over `M` weights: [as good as its trials](docs/papers/fts.md#the-comparators-rgpe-and-taf)"
)
_POSTERIOR = {
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

RECORDS = (
    AlgorithmRecord(
        name="rgpe",
        home="fbo_flower.algorithms.transfer.rgpe:RGPE",
        summary="comparator of the FTS paper that sends whole posteriors: a ranking-weighted ensemble of all "
        "agents' models (Feurer et al. 2018)",
        server_sends=_SERVER_SENDS,
        agent_sends=_AGENT_SENDS,
        meanings=_POSTERIOR,
        inference=_INFERENCE,
        attack="posterior",
        style=PlotStyle("#D55E00", "-"),
        page="docs/papers/fts.md#the-comparators-rgpe-and-taf",
    ),
    AlgorithmRecord(
        name="taf",
        home="fbo_flower.algorithms.transfer.taf:TAF",
        summary="comparator of the FTS paper that sends whole posteriors: a transfer acquisition function "
        "(Wistuba et al. 2018)",
        server_sends=_SERVER_SENDS,
        agent_sends=f"its best value, and {_AGENT_SENDS}",
        meanings={
            **_POSTERIOR,
            "incumbent": Meaning(
                "its best value, in units of the standard deviation of its values", ALL_OBSERVATIONS, VALUES
            ),
        },
        inference=f"{_INFERENCE} The best value, in units of the agent's own deviation, is sent as it is.",
        attack="posterior",
        style=PlotStyle("#CC79A7", "-"),
        page="docs/papers/fts.md#the-comparators-rgpe-and-taf",
    ),
)
