"""The records of the two baselines that tune alone; each is one file: `random_search.py`, `thompson.py`."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import AlgorithmRecord, PlotStyle

# shared by every algorithm whose agents report counts alone
HOW_MANY_TO_DO = "how many trials to do"
HOW_MANY_WERE_DONE = "how many were done, how many failed"
NOTHING_TO_INFER = "Nothing about points or values: no report depends on them."

RECORDS = (
    AlgorithmRecord(
        name="random",
        home="fbo_flower.algorithms.random_search:RandomSearch",
        summary="uniform random search",
        server_sends=HOW_MANY_TO_DO,
        agent_sends=HOW_MANY_WERE_DONE,
        inference=NOTHING_TO_INFER,
        style=PlotStyle("#8a8a8a", ":"),
    ),
    AlgorithmRecord(
        name="ts",
        home="fbo_flower.algorithms.thompson:ThompsonSampling",
        summary="Thompson sampling on the agent's own Gaussian process, never the same point twice: the "
        "local baseline",
        server_sends=HOW_MANY_TO_DO,
        agent_sends=HOW_MANY_WERE_DONE,
        inference=NOTHING_TO_INFER,
        style=PlotStyle("#000000", "--"),
    ),
)
