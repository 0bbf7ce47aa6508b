"""A ServerApp that tunes nothing: it asks every node who it is and prints the answers as one line of JSON."""

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

from fbo_flower import __version__, wire
from fbo_flower.strategies.send_and_receive import send_and_receive

MARK = "fbo-flower doctor: "
SETTINGS = "fbo-flower-doctor"  # key of the run config
MAX_TEXT = 300
_STEADY_SECONDS = 5.0
_KEYS = (
    "agent", "digest", "schema", "role", "disclose", "version", "flwr", "python", "time", "journal"
)  # fmt: skip

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Print the report of `examine`."""
    settings = json.loads(str(context.run_config[SETTINGS]))
    print(MARK + json.dumps(examine(grid, **settings)), flush=True)


def examine(
    grid: Grid, num_nodes: int = 0, wait_seconds: float = 30.0, action: str | None = None
) -> dict[str, Any]:
    """Ask the nodes who they are.

    Parameters
    ----------
    num_nodes : to wait for; 0: until their number is steady
    wait_seconds : deadline for their connection, and again for their answers
    action : as in `TuningStrategy`

    Returns
    -------
    "server": its versions; "nodes": for each its id, the server's clock before and after, and either what it
    says of itself or an "error"
    """
    stop = threading.Event()
    nodes = _connected(grid, num_nodes, wait_seconds)
    kind = MessageType.QUERY + (f".{action}" if action else "")
    content = [RecordDict({"config": ConfigRecord()}) for _ in nodes]
    messages = [Message(c, node, kind, group_id="0") for c, node in zip(content, nodes, strict=True)]
    sent, heard = time.time(), dict.fromkeys(range(len(nodes)), 0.0)

    def hear(replies: Mapping[int, Message]) -> None:
        heard.update(dict.fromkeys(replies, time.time()))

    replies = send_and_receive(grid, messages, wait_seconds, stop, on_replies=hear)
    rows = []
    for position, node in enumerate(nodes):
        row: dict[str, Any] = {"node": str(node), "sent": sent, "heard": heard[position]}
        reply = replies.get(position)
        if reply is None:
            row["error"] = f"no answer within {wait_seconds:g} s"
        elif reply.has_error():
            row["error"] = str(reply.error.reason)[:MAX_TEXT]
        else:
            row |= _said(reply.content)
        rows.append(row)
    server = {
        "version": __version__,
        "flwr": metadata.version("flwr"),
        "python": platform.python_version(),
        "schema": wire.SCHEMA_VERSION,
        "time": time.time(),
    }
    return {"server": server, "nodes": rows}


def _connected(grid: Grid, num_nodes: int, wait_seconds: float) -> list[int]:
    nodes, now = sorted(grid.get_node_ids()), time.monotonic()
    steady_since, deadline = now, now + wait_seconds
    while time.monotonic() < deadline and not (0 < num_nodes <= len(nodes)):
        if not num_nodes and nodes and time.monotonic() - steady_since >= _STEADY_SECONDS:
            break
        time.sleep(0.1)
        if (seen := sorted(grid.get_node_ids())) != nodes:
            nodes, steady_since = seen, time.monotonic()
    return nodes


def _said(content: RecordDict) -> dict[str, Any]:
    """Return what a node says of itself, as far as it is short text or a number."""
    config = content.get("config")
    if not isinstance(config, ConfigRecord):
        return {"error": "it answers, but not as an agent of fbo-flower"}
    said = {key: config[key] for key in _KEYS if key in config}
    return {
        key: value[:MAX_TEXT] if isinstance(value, str) else value
        for key, value in said.items()
        if isinstance(value, str | int | float)
    }
