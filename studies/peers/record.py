"""The records of the comparators from the field."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import (
    ALL_OBSERVATIONS,
    ALL_POINTS,
    BOTH,
    POINTS,
    VALUES,
    AlgorithmRecord,
    Meaning,
    PlotStyle,
)

_PAGE = "docs/papers/peers.md"

RECORDS = (
    AlgorithmRecord(
        name="consensus",
        home="studies.peers.consensus:Consensus",
        summary="comparator: agents evaluate averages of the designs that each would try next, in the end "
        "their own (Yue et al. 2025)",
        server_sends="an average of the agents' next designs",
        agent_sends='its next design, only with `disclose = "trials"`',
        meanings={"design": Meaning("the point that it would evaluate next", ALL_OBSERVATIONS, POINTS)},
        inference="The server knows every averaged point that it sends, so which points the agent evaluates. "
        "A design is near the agent's best point once its model is sure, and a design that changes little "
        "says that the last value there was good. With two agents each can compute the other's design.",
        attack="consensus",
        style=PlotStyle("#0072B2", ":"),
        page=f"{_PAGE}#consensus",
    ),
    AlgorithmRecord(
        name="fmtbo",
        home="studies.peers.fmtbo:FMTBO",
        summary="comparator: agents share the hyperparameters of their models with those that rank points "
        "alike (Zhu et al. 2024)",
        server_sends="a seed of public points; averaged hyperparameters",
        agent_sends="the hyperparameters of its model, and the ranks of public points under it",
        meanings={
            "theta": Meaning("hyperparameters of a model of its values", ALL_OBSERVATIONS),
            "ranks": Meaning("the order of public points by a model of its values", ALL_OBSERVATIONS),
        },
        inference="The ranks draw a map of where the agent's model is high and low, without units: the "
        "public point of the highest rank is near the agent's best point. Hyperparameters tell how fast and "
        "how much its values vary, and how noisy they are.",
        attack="fmtbo",
        style=PlotStyle("#D55E00", ":"),
        page=f"{_PAGE}#fmtbo",
    ),
    AlgorithmRecord(
        name="flora",
        home="studies.peers.flora:FLoRA",
        summary="comparator: each agent tunes alone, then one exchange of regressions gives one "
        "configuration for all (Zhou et al. 2021)",
        server_sends="once shared random features, once a configuration",
        agent_sends="once its regression, `M (M + 3) / 2` numbers: masked from three agents on, in the clear "
        'only with `disclose = "trials"`',
        meanings={
            "gram": Meaning("sums of products of random features at its points", ALL_POINTS, POINTS),
            "moment": Meaning("sums of its values times random features", ALL_OBSERVATIONS, BOTH),
        },
        inference="Without secure sums the server can compute an agent's points and standardised values from "
        "its regression.",
        summed=frozenset({"gram", "moment"}),
        inference_with_sums="The total hides whose a point is. While all agents together have fewer points "
        "than features, the server can compute the points from it.",
        attack="fed-ei",
        style=PlotStyle("#009E73", ":"),
        page=f"{_PAGE}#flora",
    ),
    AlgorithmRecord(
        name="dp-vote",
        home="studies.peers.dp_vote:DPVote",
        summary="comparator: a vote with differential privacy on one configuration of a list, DP-Hype "
        "(Liebenow et al. 2025)",
        server_sends="a seed of the list of configurations; at the end the winner",
        agent_sends="once its votes with noise, masked from three agents on",
        meanings={
            "votes": Meaning(
                "which configurations of a public list are its best, with the agent's noise", ALL_OBSERVATIONS
            )
        },
        inference="Which points an agent evaluates is public. Its votes carry all of the noise, and epsilon "
        "bounds what they tell. Noise that is drawn from a seed, as in simulations, bounds nothing.",
        summed=frozenset({"votes"}),
        inference_with_sums="The total of the votes carries the noise of all members, and epsilon bounds "
        "what it tells about one of them, if the others do not tell the server their noise.",
        style=PlotStyle("#CC79A7", ":"),
        page=f"{_PAGE}#dp-vote",
        caution="Noise protects only if nobody can draw it again: on devices it comes from the operating "
        "system, in simulations from the seed.",
    ),
    *(
        AlgorithmRecord(
            name=name,
            home=f"studies.peers.sharing:{made}",
            summary=summary,
            server_sends="another agent's best point",
            agent_sends='its best point and its value, only with `disclose = "trials"`',
            meanings={
                "point": Meaning("its best point", ALL_OBSERVATIONS, POINTS),
                "value": Meaning("its best value", ALL_OBSERVATIONS, VALUES),
            },
            inference="The server knows each agent's best point and value, each agent best points of others.",
            style=PlotStyle("#CC79A7", line),
            page=f"{_PAGE}#share-best-and-share-random",
        )
        for name, made, line, summary in (
            ("share-best", "ShareBest", "--",
             "the dullest rival: every fourth evaluation repeats the best of the others' best points"),
            ("share-random", "ShareRandom", ":",
             "every fourth evaluation repeats another agent's best point, drawn at random"),
        )
    ),
)  # fmt: skip
