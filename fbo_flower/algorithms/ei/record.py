"""The records of expected improvement, alone and federated."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import (
    ALL_OBSERVATIONS,
    ALL_POINTS,
    BOTH,
    POINTS,
    AlgorithmRecord,
    Meaning,
    PlotStyle,
)
from fbo_flower.algorithms.local_records import HOW_MANY_TO_DO, HOW_MANY_WERE_DONE, NOTHING_TO_INFER

RECORDS = (
    AlgorithmRecord(
        name="ei",
        home="fbo_flower.algorithms.ei.expected_improvement:ExpectedImprovement",
        summary="expected improvement on the agent's own Gaussian process: the strong local baseline",
        server_sends=HOW_MANY_TO_DO,
        agent_sends=HOW_MANY_WERE_DONE,
        inference=NOTHING_TO_INFER,
        style=PlotStyle("#4D4D4D", "--"),
    ),
    AlgorithmRecord(
        name="fed-ei",
        home="fbo_flower.algorithms.ei.fed_ei:FedEI",
        summary="expected improvement, guided by a trend from secure sums over the other agents and, with "
        "consent, by their best points",
        server_sends="shared random features; sums over agents; the best points of agents that allow it",
        agent_sends="its part of sums, `M (M + 3) / 2 + 5` numbers, masked from three agents on; its best "
        'point without the value, only with `disclose = "point"` or `"trials"`',
        meanings={
            "gram": Meaning("sums of products of random features at its points", ALL_POINTS, POINTS),
            "moment": Meaning("sums of its values times random features", ALL_OBSERVATIONS, BOTH),
            "energy": Meaning("square sum of its values times random features", ALL_OBSERVATIONS),
            "agreement": Meaning("how well the others' trend fits its values: two sums", ALL_OBSERVATIONS),
            "closeness": Meaning(
                "whether values close to others' best points are better than predicted: two sums",
                ALL_OBSERVATIONS,
            ),
            "point": Meaning("its best point, without the value", ALL_OBSERVATIONS, POINTS),
        },
        inference="Without secure sums the server can compute an agent's points and standardised values from "
        "its part of the sums. An agent's best point shows where it is looking, and each change of it that a "
        "better value was found there.",
        summed=frozenset({"gram", "moment", "energy", "agreement", "closeness"}),
        inference_with_sums="Sums hide whose a point is, not the point. The server, and every agent that "
        "receives the totals, can compute the points of all agents nearly, and the newest ones from the "
        "difference of two rounds' totals. An agent's best point, if its operator allows it, shows where it "
        "looks.",
        attack="fed-ei",
        style=PlotStyle("#0072B2", (0, (4, 1))),
        page="docs/papers/fed_ei.md",
    ),
)
