"""The records of FTS and DP-FTS."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import ALL_OBSERVATIONS, AlgorithmRecord, Meaning, PlotStyle

RECORDS = (
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
)
