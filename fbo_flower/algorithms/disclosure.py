"""Descriptions of every array and number in a report, for ledgers, reports and documents.

Each algorithm describes its own names in its record (`algorithm_record.AlgorithmRecord`). This module
describes the names that all algorithms share and looks names up. `docs/privacy.md` has the measurements.
"""

from __future__ import annotations

from fbo_flower.algorithms.algorithm_record import ALL_OBSERVATIONS, POINTS, UNKNOWN, VALUES, Meaning
from fbo_flower.algorithms.registry import lookup

DISCLOSURES = ("none", "incumbent", "trials")  # what an operator allows an agent to send
DEFAULT, APP, OPERATOR, SIMULATION = "default", "app author", "operator", "simulation"
CHOOSERS = (DEFAULT, APP, OPERATOR, SIMULATION)  # who set `disclose`; the default is "none"
ENVELOPE = "header"  # name under which ledgers list the header of a message

COMMON: dict[str, Meaning] = {
    ENVELOPE: Meaning("who answers which task: names, round, number of trials", "the task"),
    "num-failed": Meaning("how many evaluations of the task failed", "the evaluations of this task"),
    "secure.words": Meaning(
        "its numbers under masks, which cancel in the sum over agents and nowhere else", ALL_OBSERVATIONS
    ),
    "secure.signature": Meaning("that it was told which agents have sent numbers", "the task"),
    "secure.boxes": Meaning("shares of its mask, sealed for other agents", "the mask"),
    "secure.commitment": Meaning("what binds it to its mask", "the mask"),
    "secure.revealed": Meaning(
        "shares of others' masks; of an agent that left, the mask they have in common", "the masks"
    ),
    "disclosed.points": Meaning("the points of this task", "this task", POINTS),
    "disclosed.values": Meaning("the values of this task", "this task", VALUES),
    "disclosed.pulls": Meaning("how often each of them was evaluated", "this task"),
    "disclosed.times": Meaning("when each of them was evaluated", "this task"),
    "disclosed.stopped": Meaning("the last step of trials that were stopped early", "this task"),
    "disclosed.curves": Meaning(
        "per step of its learning curves their number and their median, from 3 curves on",
        "the completed trials of the agent", VALUES,
    ),
    "disclosed.failures": Meaning("why evaluations failed, in words", "this task"),
    "disclosed.incumbent": Meaning(
        "the best value so far", ALL_OBSERVATIONS, VALUES
    ),
    "disclosed.expected": Meaning(
        "the value that its model expects at the point it would use", ALL_OBSERVATIONS, VALUES
    ),
    "disclosed.recommendation": Meaning(
        "the point it would use", ALL_OBSERVATIONS, POINTS
    ),
}  # fmt: skip


def meaning(algorithm: str, name: str) -> Meaning:
    """Return the meaning of a name in an algorithm's report, or a meaning that says it is not described."""
    record = lookup(algorithm)
    own = {} if record is None else record.meanings
    known = own.get(name) or COMMON.get(name)
    return known or Meaning("not described by what is installed here", "unknown", UNKNOWN)


def meanings(algorithm: str, least: int = 0) -> dict[str, Meaning] | None:
    """Return the meaning of everything that may leave an agent; None if the algorithm is not installed here.

    Parameters
    ----------
    least : smallest number of agents in a secure sum; 0: no secure sums
    """
    record = lookup(algorithm)
    if record is None:
        return None
    if not least:
        return dict(record.meanings)
    masked = {name: said for name, said in COMMON.items() if name.startswith("secure.")}
    return {n: said for n, said in record.meanings.items() if n not in record.summed} | masked


def inference(algorithm: str, least: int = 0) -> str:
    """Return what an honest-but-curious server can infer from all reports of a run.

    Parameters
    ----------
    least : smallest number of agents in a secure sum; 0: no secure sums
    """
    record = lookup(algorithm)
    if record is None:
        return "Not examined."
    if not least or not record.summed:
        return record.inference
    *others, last = sorted(record.summed)
    names = f"{', '.join(others)} and {last}" if others else last
    sums = f"It sees {names} only as sums over at least {least} agents. One such sum tells nothing else."
    beyond = record.inference_with_sums
    return f"{sums} {f'Of all else: {record.inference}' if beyond is None else beyond}".rstrip()
