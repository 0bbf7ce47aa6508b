"""Find what is wrong with a federation from the facts that its nodes and its server report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fbo_flower.storage.node_differences import node_differences


@dataclass(frozen=True)
class Diagnosis:
    """One line of the diagnosis.

    Parameters
    ----------
    subject : "server", "agent north", "node 17", ...
    is_wrong : True: somebody has to fix it; False: a note
    text : what was found, and what was expected
    """

    subject: str
    is_wrong: bool
    text: str


def diagnose(report: Mapping[str, Any], known: Sequence[Mapping[str, Any]], here: str) -> list[Diagnosis]:
    """Return the errors and notes about a federation.

    Parameters
    ----------
    report : the result of `strategies.doctor.examine`
    known : SuperNodes that the SuperLink knows, from `flwr supernode list`
    here : the version of fbo-flower that runs this command
    """
    server, nodes = report["server"], report["nodes"]
    found = []
    if server["version"] != here:
        found.append(
            Diagnosis(
                "server",
                True,
                f"runs fbo-flower {server['version']}, this computer {here}; install one version",
            )
        )
    if not nodes:
        found.append(
            Diagnosis(
                "nodes",
                True,
                "expected at least one connected SuperNode, got none; start SuperNodes or raise --wait",
            )
        )
    asked = {node["node"] for node in nodes}
    for row in known:
        if str(row["node-id"]) not in asked and row["status"] in {"offline", "registered"}:
            text = {
                "offline": "is not connected any more",
                "registered": "has never connected",
            }[row["status"]]
            found.append(Diagnosis(f"node {row['node-id']}", True, text))
    names = Counter(node.get("agent") for node in nodes)
    digests = Counter(node["digest"] for node in nodes if "digest" in node)
    most = max(digests.values(), default=0)
    usual = [digest for digest, count in digests.items() if count == most]
    for node in nodes:
        subject = f"agent {node['agent']}" if "agent" in node else f"node {node['node']}"
        wrong = list(_wrong(node, server, usual, str(report["differing"])))
        if "agent" in node and names[node["agent"]] > 1:
            wrong.append(
                f"{names[node['agent']]} nodes call themselves so; set a different agent in each node_config"
            )
        found += [Diagnosis(subject, True, text) for text in wrong]
        if not wrong and node.get("journal") == "none":
            text = "keeps no journal: it loses its state when its SuperNode ends; set journal in node_config"
            found.append(Diagnosis(subject, False, text))
    return found


def _wrong(
    node: Mapping[str, Any], server: Mapping[str, Any], usual: Sequence[str], differing: str
) -> list[str]:
    if "error" in node:
        return [str(node["error"])]
    wrong = []
    if node.get("schema") != server["schema"]:
        wrong.append(f"message schema {node.get('schema')}, the server has {server['schema']}")
    others = [digest[:12] for digest in usual if digest != node.get("digest")]
    if others:  # where several spaces are equally frequent, every node differs from some others
        who = "most nodes have" if len(usual) == 1 else "as many nodes have"
        own = str(node.get("digest"))[:12]
        wrong.append(f"search space {own}, {who} {', '.join(others)}; they differ in {differing}")
    return wrong + node_differences(node, server)
