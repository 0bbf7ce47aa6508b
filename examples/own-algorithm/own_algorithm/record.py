"""What fbo-flower has to know about `gossip`; the entry point in `pyproject.toml` names this record."""

from fbo_flower.algorithms import AlgorithmRecord, Meaning, PlotStyle

RECORD = AlgorithmRecord(
    name="gossip",
    home="own_algorithm.gossip:Gossip",
    summary="epsilon-greedy search near the agent's own best point or a neighbour's",
    server_sends="the best point of another agent, drawn at random",
    agent_sends="its best point, without the value",
    meanings={
        "incumbent": Meaning("the agent's best point so far", "all observations of the agent", "points"),
    },
    inference="The best point of every agent after every round, because it is sent. Values are not sent, but "
    "a point that replaces another one is better.",
    style=PlotStyle("#8C564B", "-"),
)
