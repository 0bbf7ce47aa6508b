"""Differences of a node from the server that do not keep it out of a study: versions and the clock.

`fbo-flower doctor` and the registration of a run report them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fbo_flower.errors import printable

MAX_SKEW = 5.0  # seconds; a larger difference between two clocks is reported


def skew(node: Mapping[str, Any]) -> float:
    """Return by how many seconds, at least, a node's clock is ahead of the server's; negative: behind.

    The node read its clock after the server had sent the question and before the server got the answer. A
    time between those two counts as right, 0. What is no time counts as right too: other checks refuse it.
    """
    time = node.get("time")
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        return 0.0
    return max(0.0, time - float(node["heard"])) - max(0.0, float(node["sent"]) - time)


def node_differences(node: Mapping[str, Any], server: Mapping[str, Any]) -> list[str]:
    """Return in which versions a node differs from the server, and by how much its clock is off.

    Parameters
    ----------
    node : the properties that the node reports, and `sent` and `heard`, see `skew`
    server : `version` and `flwr` of the server
    """
    found = [
        f"{title} {printable(str(node[name]))[:40]}, the server has {server[name]}"
        for name, title in (("version", "fbo-flower"), ("flwr", "flwr"))
        if name in node and node[name] != server[name]
    ]
    if abs(seconds := skew(node)) > MAX_SKEW:
        found.append(f"its clock is {seconds:+.0f} s off the server's")
    return found
