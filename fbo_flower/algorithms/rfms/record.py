"""The record of RFMS."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import (
    ROWS,
    THE_COUNT,
    VALUES,
    AlgorithmRecord,
    Meaning,
    PlotStyle,
)

RECORDS = (
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
