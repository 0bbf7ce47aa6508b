"""The records of the comparators from the field."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import (
    ALL_OBSERVATIONS,
    POINTS,
    AlgorithmRecord,
    Meaning,
    PlotStyle,
)

_PAGE = "docs/papers/peers.md"

RECORDS = (
    AlgorithmRecord(
        name="consensus",
        home="fbo_flower.algorithms.peers.consensus:Consensus",
        summary="comparator: agents evaluate averages of the designs that each would try next, in the end "
        "their own (Yue et al. 2025)",
        server_sends="an average of the agents' next designs",
        agent_sends='its next design, only with `disclose = "point"` or `"trials"`',
        meanings={
            "design": Meaning("the point that it would evaluate next", ALL_OBSERVATIONS, POINTS),
        },
        inference="The server knows every averaged point that it sends, so which points the agent evaluates. "
        "A design is near the agent's best point once its model is sure, and a design that changes little "
        "says that the last value there was good. With two agents each can compute the other's design.",
        attack="consensus",
        style=PlotStyle("#0072B2", ":"),
        page=f"{_PAGE}#consensus",
    ),
)
