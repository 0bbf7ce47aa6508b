"""What every array and number in a report means, in plain words: for ledgers, reports and documents.

`meaning` explains one name; `inference` says what an honest-but-curious server can make of all reports of a
run. A promise is made here only where a test shows it; `docs/privacy.md` has the figures.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTHING, POINTS, VALUES, BOTH, ROWS, UNKNOWN = (
    "nothing", "points", "values", "points and values", "rows of data", "unknown",
)  # fmt: skip
ENVELOPE = "header"  # of a message: who answers what


@dataclass(frozen=True)
class Meaning:
    """One name in a report.

    Parameters
    ----------
    text : what it is
    source : what it is computed from
    discloses : what it says by design, without any inference: "points", "values", "points and values", "rows
        of data" or "nothing"
    """

    text: str
    source: str
    discloses: str = NOTHING


_OBSERVATIONS = "all observations of the agent"
_FEATURES = "in random features that all agents share"
_COUNT = Meaning("how many evaluations were really made", "the count alone")
_OWED = Meaning("how many evaluations are still to be made", "the count alone")
_CELL_MEANS = Meaning(
    "mean value in every cell that the server named; of one pull it is that value",
    "the observations in these cells", VALUES,
)  # fmt: skip
_CELL_COUNTS = Meaning("how often every cell was evaluated", "the observations in these cells", POINTS)
_PNE = {"means": _CELL_MEANS, "counts": _CELL_COUNTS, "owed": _OWED, "evaluations": _COUNT}
_POSTERIOR = {
    "mean": Meaning(f"mean of the weights of a model of its values, {_FEATURES}", _OBSERVATIONS),
    "inverse": Meaning("uncertainty of these weights; it depends on the points alone", "all its points"),
    "missing": Meaning("whether it has lost what it was sent", "its memory"),
}

COMMON: dict[str, Meaning] = {
    ENVELOPE: Meaning("who answers which task: names, round, number of trials", "the task"),
    "num-failed": Meaning("how many evaluations of the task failed", "the evaluations of this task"),
    "secure.words": Meaning(
        "its numbers under masks, which cancel in the sum over agents and nowhere else", _OBSERVATIONS
    ),
    "secure.boxes": Meaning("shares of its mask, sealed for other agents", "the mask"),
    "secure.commitment": Meaning("what binds it to its mask", "the mask"),
    "secure.revealed": Meaning(
        "shares of others' masks; of an agent that left, the mask they have in common", "the masks"
    ),
    "disclosed.points": Meaning("the points of this task, as its operator allowed", "this task", POINTS),
    "disclosed.values": Meaning("the values of this task, as its operator allowed", "this task", VALUES),
    "disclosed.pulls": Meaning("how often each of them was evaluated", "this task"),
    "disclosed.failures": Meaning("why evaluations failed, in words", "this task"),
    "disclosed.incumbent": Meaning(
        "the best value so far, as its operator allowed", _OBSERVATIONS, VALUES
    ),
    "disclosed.recommendation": Meaning(
        "the point it would use, as its operator allowed", _OBSERVATIONS, POINTS
    ),
}  # fmt: skip

MEANINGS: dict[str, dict[str, Meaning]] = {
    "random": {},
    "ts": {},
    "fts": {
        "weights": Meaning(
            f"one random draw of the weights of a model of its values, {_FEATURES}", _OBSERVATIONS
        ),
        "log_likelihoods": Meaning("how well six lengthscales suit its values", _OBSERVATIONS),
    },
    "dp-fts": {
        "weights": Meaning(
            f"weights of a model of its values, {_FEATURES}, shortened; with local noise also blurred",
            _OBSERVATIONS,
        ),
    },
    "rgpe": _POSTERIOR,
    "taf": {
        **_POSTERIOR,
        "incumbent": Meaning("its best value, in its own units of deviation", _OBSERVATIONS, VALUES),
    },
    "pf-pne": _PNE,
    "fed-pne": _PNE,
    "local-pne": _PNE,
    "hct": {"evaluations": _COUNT},
    "fed1-ucb": {
        **_PNE,
        "means": Meaning(
            "mean value of every arm that the server named; of one pull it is that value",
            "the observations of these arms", VALUES,
        ),
        "counts": Meaning("how often every arm was evaluated", "the observations of these arms", POINTS),
    },
    "fn-ucb": {
        "gram": Meaning("sum of products of gradients at its points", "all its points"),
        "response": Meaning("sum of its values times gradients at their points", _OBSERVATIONS),
        "weights": Meaning("a network fitted to its values", _OBSERVATIONS),
        "evaluations": _COUNT,
    },
    "co-kg": {
        "moments": Meaning("number, mean and deviation of its values", _OBSERVATIONS, VALUES),
        "theta": Meaning("lengthscales, scale and noise of its model", _OBSERVATIONS),
        "mean": Meaning("mean of its model at common points", _OBSERVATIONS),
        "covariance": Meaning("covariance of its model at common points", "all its points"),
        "shift": Meaning("what its observations add to the common prior, mean", _OBSERVATIONS),
        "precision": Meaning("what its observations add to the common prior, precision", "all its points"),
        "best": Meaning("index of the point that its model thinks best", _OBSERVATIONS, POINTS),
        "best_mean": Meaning("value that its model expects there", _OBSERVATIONS, VALUES),
        "points": Meaning("points of this task", "this task", POINTS),
        "values": Meaning("values of this task", "this task", VALUES),
    },
    "rfms": {
        "model": Meaning(
            "a trained model; some kinds hold rows of the data", "the rows it was trained on", ROWS
        ),
        "loss": Meaning("loss of a model on its rows", "its rows", VALUES),
        "num_rows": Meaning("how many rows that were", "the count alone"),
        "failure": Meaning("why a model was not trained or judged, in words", "the attempt"),
        "late": Meaning("losses that the server had missed", "its rows", VALUES),
        "epsilon": Meaning("what its noisy answers have spent of privacy", "its account"),
    },
}  # fmt: skip

INFERENCE: dict[str, str] = {
    "random": "Nothing of points and values: no report depends on them.",
    "ts": "Nothing of points and values: no report depends on them.",
    "local-pne": "Nothing of points and values: no report depends on them.",
    "hct": "Nothing of points and values: no report depends on them.",
    "fts": "The point of a round in which it sent another agent's weights, by maximising them as the "
    "agent does; the standardised value there, nearly, from the weights that come back.",
    "dp-fts": "With central noise the server sees the messages without noise; epsilon bounds what all others "
    "learn. With local noise the bound on epsilon holds against the server too.",
    "rgpe": "The uncertainty is a function of the points alone, so guesses of points can be checked against "
    "it; given the points, the mean gives the standardised values by one linear system.",
    "taf": "As rgpe; the best value, in units of the agent's own deviation, is sent as it is.",
    "pf-pne": "In stage 1 the mean of every cell that the server named. The point is the centre of the "
    "cell; a mean of one pull is the value there. In stage 2 nothing.",
    "fed-pne": "The mean of every cell that the server named: its centre is the point, and a mean of one "
    "pull is the value there.",
    "fed1-ucb": "The mean of every arm that the server named; of one pull it is a value.",
    "fn-ucb": "Sums over all observations since the last exchange; of one observation they give point and "
    "value.",
    "co-kg": "Every value at a point that it chose, exactly, from the reports before and after; the points "
    "and values of the warm-up from one covariance. Noise on the means averages out over a run.",
    "rfms": "What a model holds of its rows; how a curator's answer to a model made for the purpose depends "
    "on single rows, unless its operator adds noise.",
}
# what a server with secure sums sees the sum of, and not itself
SUMMED: dict[str, frozenset[str]] = {
    "fts": frozenset({"log_likelihoods"}),
    "dp-fts": frozenset({"weights"}),
    "pf-pne": frozenset({"means", "counts"}),
    "fed-pne": frozenset({"means", "counts"}),
    "co-kg": frozenset({"moments", "theta"}),
}
ATTACKS: dict[str, str] = {  # algorithm -> attack that measures it
    "fts": "fts", "dp-fts": "fts", "rgpe": "posterior", "taf": "posterior", "pf-pne": "pf-pne",
    "fed-pne": "pf-pne", "co-kg": "co-kg", "rfms": "rfms",
}  # fmt: skip


def meaning(algorithm: str, name: str) -> Meaning:
    """Return what a name in a report of an algorithm means; one that is not listed says so."""
    known = {**COMMON, **MEANINGS.get(algorithm, {})}
    return known.get(name, Meaning("not described by this version", "unknown", UNKNOWN))


def meanings(algorithm: str, least: int = 0) -> dict[str, Meaning] | None:
    """Return what may leave an agent; None for an algorithm that is not described.

    Parameters
    ----------
    least : agents of a secure sum; 0: there are none
    """
    known = MEANINGS.get(algorithm)
    if known is None or not least:
        return known
    masked = {name: said for name, said in COMMON.items() if name.startswith("secure.")}
    return {n: said for n, said in known.items() if n not in SUMMED.get(algorithm, ())} | masked


def inference(algorithm: str, least: int = 0) -> str:
    """Return what a curious server can make of the reports of a run, with secure sums of so many agents."""
    if not least or algorithm not in SUMMED:
        return INFERENCE.get(algorithm, "Not examined.")
    names = " and ".join(sorted(SUMMED[algorithm]))
    sums = f"Of {names} the sum over at least {least} agents, and of one sum nothing else."
    if algorithm == "dp-fts":
        return f"{sums} Of many sums with changing members, which an average of each agent's messages fits."
    if SUMMED[algorithm] >= set(MEANINGS[algorithm]) - {"owed", "evaluations"}:
        return sums
    return f"{sums} Of all else: {INFERENCE[algorithm]}"
