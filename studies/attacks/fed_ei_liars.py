"""What false values of some agents cost the others: `fed-ei` beside copying the best point of all others.

    python -m studies.attacks.fed_ei_liars --seeds 8

Of eight agents none, one or three send false rows that pass every check. In `fed-ei` a liar gives each of its
rows the highest value that a row may have, at its true points or at random ones. In `share-best` it claims a
huge value at a random point. A score is the best value so far without scale and offset, as the mean over the
honest agents. It is compared with the same agents' scores without liars, and with `ei`, which tells nobody
anything. Standard errors are over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, RecordDict

from fbo_flower.algorithms import make_algorithm
from fbo_flower.clients import client_app
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates.trend import LARGEST
from fbo_flower.simulation import Fault, InProcessGrid
from fbo_flower.strategies import TuningStrategy
from studies.benchmarks.bench import options
from studies.papers.ei.problems import PROBLEMS
from studies.report import mean_and_error, table, write_csv
from studies.runs import best_so_far, rounds_of

LABELS = ("Styblinski-5", "Hartmann-6", "draws, .64 in common")
NUM_AGENTS, NUM_INITIAL, BUDGET, AT = 8, 2, 20, (4, 5, 10, 20)
NUM_LIARS, FIRST_SEED, HUGE = (0, 1, 3), 700, 1e9
ALWAYS = range(1, 10**9)  # rounds
RESULTS = Path(__file__).parents[1] / "results" / "fed-ei" / "liars.csv"
Arrays = dict[str, Array]
Lie = Callable[[Arrays, np.random.Generator], Arrays]


def at_true_points(told: Arrays, rng: np.random.Generator) -> Arrays:
    """Return a report of `fed-ei` in which all rows have the highest value."""
    if "rows" not in told:
        return told
    return {**told, "rows": np.column_stack([told["rows"][:, :-1], np.full(len(told["rows"]), LARGEST)])}


def at_random_points(told: Arrays, rng: np.random.Generator) -> Arrays:
    """Return a report of `fed-ei` with rows of the highest value at random points."""
    if "rows" not in told:
        return told
    return at_true_points({**told, "rows": rng.random(told["rows"].shape)}, rng)


def huge_value(told: Arrays, rng: np.random.Generator) -> Arrays:
    """Return a report of `share-best` with a huge value at a random point."""
    if "point" not in told:
        return told
    return {**told, "point": rng.random(told["point"].shape), "value": np.array([HUGE])}


# name -> algorithm, its options, the lie; rows in the clear: the same trials as in secure sums
METHODS: dict[str, tuple[str, dict[str, Any], Lie | None]] = {
    "ei": ("ei", {}, None),
    "fed-ei, true points": ("fed-ei", {"secure_sums": 0}, at_true_points),
    "fed-ei, random points": ("fed-ei", {"secure_sums": 0}, at_random_points),
    "share-best": ("share-best", {}, huge_value),
}


def liars(
    seed: int, num_liars: int, labels: Sequence[str] = LABELS, budget: int = BUDGET
) -> dict[tuple[str, str], Array]:
    """Return the best scores so far `(NUM_AGENTS, budget)` by problem and method; the last agents lie."""
    methods = [name for name, (_, _, lie) in METHODS.items() if lie or not num_liars]
    both = [(label, name) for label in labels for name in methods]
    return {(label, name): _scores(label, name, seed, num_liars, budget) for label, name in both}


def _scores(label: str, method: str, seed: int, num_liars: int, budget: int) -> Array:
    problem = PROBLEMS[label](NUM_AGENTS, seed)
    name, options, lie = METHODS[method]
    faults = {}
    if lie is not None:
        for agent in range(NUM_AGENTS - num_liars, NUM_AGENTS):
            change = partial(_change, lie, generator(seed, "liar", str(agent)))
            faults[agent] = Fault("malformed", ALWAYS, change=change)
    app = client_app(problem, problem.space, seed=seed, disclose="trials")
    algorithm = make_algorithm(name, {"num_initial": NUM_INITIAL, **options})
    strategy = TuningStrategy(algorithm, num_agents=NUM_AGENTS, seed=seed)
    study = strategy.start(
        InProcessGrid(app, NUM_AGENTS, faults=faults), num_rounds=rounds_of(name, NUM_INITIAL, budget)
    ).study
    return best_so_far(study, problem, budget)


def _change(lie: Lie, rng: np.random.Generator, content: RecordDict) -> RecordDict:
    """Return a liar's reply: its report with false rows, and its disclosed trials as they are."""
    record = content.get("arrays")
    if isinstance(record, ArrayRecord):
        told = {name: array.numpy() for name, array in record.items()}
        for name, array in lie(told, rng).items():
            record[name] = FlowerArray(array)
    return content


def rows_of(found: Sequence[dict[int, dict[tuple[str, str], Array]]]) -> list[dict[str, object]]:
    """Return a row for each problem, method, number of liars and number of evaluations.

    Parameters
    ----------
    found : for each seed, number of liars -> what `liars` returns
    """
    rows: list[dict[str, object]] = []
    for label, method in found[0][0]:
        for number in found[0] if method != "ei" else (0,):
            honest = NUM_AGENTS - number
            scores = np.array([of[number][label, method][:honest].mean(axis=0) for of in found])
            without = np.array([of[0][label, method][:honest].mean(axis=0) for of in found])
            alone = np.array([of[0][label, "ei"][:honest].mean(axis=0) for of in found])
            for at in AT:
                made: dict[str, object] = {
                    "problem": label, "method": method, "liars": number, "evaluations": at,
                    "score": f"{scores[:, at - 1].mean():.3f}",
                }  # fmt: skip
                for name, other in (("minus without liars", without), ("minus ei", alone)):
                    mean, error = mean_and_error(scores[:, at - 1] - other[:, at - 1])
                    made |= {name: f"{mean:+.3f}", f"s.e. {name}": f"{error:.3f}"}
                rows.append(made)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all studies, write the CSV and print it as a table."""
    given = options(__doc__, arguments=arguments, seeds=8, out=RESULTS)
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    rows = rows_of([{number: liars(seed, number) for number in NUM_LIARS} for seed in seeds])
    write_csv(given.out, list(rows[0]), [list(made.values()) for made in rows])
    print(table(list(rows[0]), [made.values() for made in rows]), end="")


if __name__ == "__main__":
    main()
