"""The records of the two local baselines, `random_search.py` and `thompson.py`."""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import AlgorithmRecord, PlotStyle

# texts shared by every algorithm whose agents report only counts
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
