"""The ServerApp of `fbo-flower doctor`: ask every node for its properties, print the replies as JSON.

It runs no tuning. The output is one line, which begins with `MARK`.
"""

from __future__ import annotations

import json
import platform
import threading
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from fbo_flower import wire
from fbo_flower.errors import FBOError
from fbo_flower.space.space import SearchSpace
from fbo_flower.strategies.exchange import send_and_receive
from fbo_flower.strategies.node_report import differing_parameters
from fbo_flower.strategies.registration import wait_for_nodes
from fbo_flower.version import __version__

MARK = "fbo-flower doctor: "
SETTINGS = "fbo-flower-doctor"  # key of the run config
MAX_TEXT = 300
_STEADY_SECONDS = 5.0
_KEYS = (
    "agent", "digest", "schema", "role", "disclose", "disclose_by", "version", "flwr", "python",
    "time", "journal",
)  # fmt: skip

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Print the result of `examine` as one line of JSON."""
    settings = json.loads(str(context.run_config[SETTINGS]))
    print(MARK + json.dumps(examine(grid, **settings)), flush=True)


def examine(
    grid: Grid, num_nodes: int = 0, wait_seconds: float = 90.0, action: str | None = None
) -> dict[str, Any]:
    """Ask all nodes for their properties and return their replies.

    Parameters
    ----------
    num_nodes : nodes to wait for; 0: wait until the number of connected nodes stops changing
    wait_seconds : how long to wait for the nodes to connect, and then again for their replies
    action : see `TuningStrategy`

    Returns
    -------
    "server": versions and clock of the server; "nodes": for each node its id, the server's clock when the
    request was sent and when the reply arrived, and either the node's properties or an "error";
    "differing": the parameters in which the nodes' search spaces differ, "" if there is one space
    """
    stop = threading.Event()
    nodes = wait_for_nodes(grid, num_nodes or None, time.monotonic() + wait_seconds, stop, _STEADY_SECONDS)
    kind = MessageType.QUERY + (f".{action}" if action else "")
    content = [RecordDict({"config": ConfigRecord()}) for _ in nodes]
    messages = [Message(c, node, kind, group_id="0") for c, node in zip(content, nodes, strict=True)]
    sent, received = time.time(), dict.fromkeys(range(len(nodes)), 0.0)

    def note_times(replies: Mapping[int, Message]) -> None:
        received.update(dict.fromkeys(replies, time.time()))

    replies = send_and_receive(grid, messages, wait_seconds, stop, on_replies=note_times)
    rows = []
    for position, node in enumerate(nodes):
        row: dict[str, Any] = {"node": str(node), "sent": sent, "heard": received[position]}
        reply = replies.get(position)
        if reply is None:
            row["error"] = f"no reply within {wait_seconds:g} s"
        elif reply.has_error():
            row["error"] = str(reply.error.reason)[:MAX_TEXT]
        else:
            row |= _properties(reply.content)
        rows.append(row)
    server = {
        "version": __version__,
        "flwr": metadata.version("flwr"),
        "python": platform.python_version(),
        "schema": wire.SCHEMA_VERSION,
        "time": time.time(),
    }
    spaces = {s.digest: s for reply in replies.values() if (s := _space(reply)) is not None}
    differing = differing_parameters(list(spaces.values())) if len(spaces) > 1 else ""
    return {"server": server, "nodes": rows, "differing": differing}


def _space(reply: Message) -> SearchSpace | None:
    """Return the search space of a node, None if it says none that is well-formed."""
    config = None if reply.has_error() else reply.content.get("config")
    text = config.get("space") if isinstance(config, ConfigRecord) else None
    try:
        return SearchSpace.from_json(text) if isinstance(text, str) and len(text) <= wire.MAX_TEXT else None
    except FBOError:
        return None


def _properties(content: RecordDict) -> dict[str, Any]:
    """Return the properties that a node reports; other types than text and numbers are left out."""
    config = content.get("config")
    if not isinstance(config, ConfigRecord):
        return {"error": "expected the properties of an fbo-flower agent, got a reply without them"}
    properties = {key: config[key] for key in _KEYS if key in config}
    return {
        key: value[:MAX_TEXT] if isinstance(value, str) else value
        for key, value in properties.items()
        if isinstance(value, str | int | float)
    }
