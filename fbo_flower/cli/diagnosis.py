"""What is wrong with a federation, judged from what its nodes and its server say of themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SKEW = 5.0  # seconds between two clocks that are taken for right


@dataclass(frozen=True)
class Diagnosis:
    """One line of the diagnosis.

    Parameters
    ----------
    subject : "server", "agent north", "node 17", ...
    is_wrong : whether it has to be mended; otherwise it is good to know
    text : what, and what was expected
    """

    subject: str
    is_wrong: bool
    text: str


def diagnose(report: Mapping[str, Any], known: Sequence[Mapping[str, Any]], here: str) -> list[Diagnosis]:
    """Return what is wrong, or remarkable, in a federation.

    Parameters
    ----------
    report : of `strategies.doctor.examine`
    known : SuperNodes that the SuperLink knows, from `flwr supernode list`
    here : the version of fbo-flower at the command line
    """
    server, nodes = report["server"], report["nodes"]
    found = []
    if server["version"] != here:
        found.append(Diagnosis("server", True, f"fbo-flower {server['version']}, here it is {here}"))
    if not nodes:
        found.append(Diagnosis("nodes", True, "expected at least one that is connected, got none"))
    asked = {node["node"] for node in nodes}
    for row in known:
        if str(row["node-id"]) not in asked and row["status"] in {"offline", "registered"}:
            text = {"offline": "is not connected any more", "registered": "has never connected"}[
                row["status"]
            ]
            found.append(Diagnosis(f"node {row['node-id']}", True, text))
    names = Counter(node.get("agent") for node in nodes)
    digests = Counter(node["digest"] for node in nodes if "digest" in node)
    usual = digests.most_common(1)[0][0] if digests else ""
    for node in nodes:
        subject = f"agent {node['agent']}" if "agent" in node else f"node {node['node']}"
        wrong = list(_wrong(node, server, usual))
        if "agent" in node and names[node["agent"]] > 1:
            wrong.append(f"{names[node['agent']]} nodes call themselves so; set agent in node_config")
        found += [Diagnosis(subject, True, text) for text in wrong]
        if not wrong and node.get("journal") == "none":
            text = "keeps no journal: it forgets when its SuperNode ends; set journal in node_config"
            found.append(Diagnosis(subject, False, text))
    return found


def skew(node: Mapping[str, Any]) -> float:
    """Return by how many seconds a node's clock is ahead of the server's at least; 0 if it may be right.

    The node looked at its clock between the server's two looks.
    """
    time = float(node["time"])
    return max(0.0, time - float(node["heard"])) - max(0.0, float(node["sent"]) - time)


def _wrong(node: Mapping[str, Any], server: Mapping[str, Any], usual: str) -> list[str]:
    if "error" in node:
        return [str(node["error"])]
    wrong = []
    if node.get("schema") != server["schema"]:
        wrong.append(f"message schema {node.get('schema')}, the server has {server['schema']}")
    if node.get("digest") != usual:
        wrong.append(f"search space {str(node.get('digest'))[:12]}, most have {usual[:12]}")
    for name in ("version", "flwr"):
        if name in node and node[name] != server[name]:
            title = {"version": "fbo-flower", "flwr": "flwr"}[name]
            wrong.append(f"{title} {node[name]}, the server has {server[name]}")
    if "time" in node and abs(skew(node)) > MAX_SKEW:
        wrong.append(f"its clock is {skew(node):+.0f} s off the server's")
    return wrong
