"""What an exchange is worth: best values against evaluations and against exchanges, for `k` trials per round.

    python -m studies.benchmarks.exchanges --out runs/exchanges --seeds 12
    python -m studies.benchmarks.exchanges --out runs/exchanges --seeds 12 --only-report

Every agent makes the same three random evaluations first, in one exchange, and 20 of its own after that: in
20, 10, 4 or 2 further exchanges. `fed-ei` has one exchange more, its second, without an evaluation. Runs are
jobs with a result each, so a stopped experiment goes on where it was. Writes `results.md` and
`exchanges.png`. `ts` and `ei` send nothing, so their trials do not depend on `k`
(`tests/algorithms/test_trials_per_round.py`): they run once, and `k` only divides their exchanges.

Means are over the agents of one seed; standard errors over seeds, of the difference from `k = 1` in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import save_figure
from fbo_flower.simulation.problems import Problem, make_problem
from studies.benchmarks.bench import options, resumed
from studies.jobs import Arrays, has, job, stack
from studies.papers.ei.problems import ShiftedFunction
from studies.report import head, mean_and_error, panels, row, write_results
from studies.runs import best_so_far, run, traffic

FIRST_SEED = 500
NUM_INITIAL, LATER = 3, 20
BUDGET = NUM_INITIAL + LATER
TRIALS_PER_ROUND = (1, 2, 5, 10)
PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "landmine-svm": lambda seed: make_problem("landmine-svm", 10, seed),
    "digits-svm": lambda seed: make_problem("digits-svm", 10, seed),
    "hartmann-6": lambda seed: ShiftedFunction(10, seed, "hartmann-6"),
}
ALONE = ("ts", "ei")
FEDERATED = ("fts", "fed-ei")
# fed-ei: the same sums without masks, in a tenth of the time
OPTIONS = {"fed-ei": {"secure_sums": 0, "num_initial": NUM_INITIAL}}
EVALUATIONS = (5, 8, 13, 18, 23)
EXCHANGES = (2, 3, 5, 11, 21)  # with k = 10 there are 3, with k = 5 there are 5, with k = 2 there are 11
WITHOUT_EVALUATION = {"fed-ei": 1}  # exchanges
COLOURS = {1: "#000000", 2: "#0072B2", 5: "#D55E00", 10: "#009E73"}


def curves(label: str, algorithm: str, trials_per_round: int, seed: int) -> Arrays:
    """Run one study; return the best scores so far `(agents, BUDGET)`, and bytes down and up per agent."""
    options = {**OPTIONS.get(algorithm, {}), "trials_per_round": trials_per_round}
    problem = PROBLEMS[label](seed)
    study = run(problem, algorithm, options, num_exchanges(algorithm, trials_per_round), seed)
    return {"best": best_so_far(study, problem, BUDGET), "bytes": traffic(study)}


def num_exchanges(algorithm: str, trials_per_round: int) -> int:
    """Return the number of exchanges for `BUDGET` evaluations."""
    return 1 + WITHOUT_EVALUATION.get(algorithm, 0) + LATER // trials_per_round


def evaluations_after(algorithm: str, exchanges: int, trials_per_round: int) -> int:
    """Return an agent's evaluations after a number of exchanges; the first is the initial design."""
    later = max(exchanges - 1 - WITHOUT_EVALUATION.get(algorithm, 0), 0)
    return min(NUM_INITIAL + later * trials_per_round, BUDGET)


def row_of(label: str, algorithm: str, trials_per_round: int) -> tuple[str, str, int]:
    """Return the row of a job but for its seed."""
    return label, algorithm, 1 if algorithm in ALONE else trials_per_round


def read(directory: Path, label: str, algorithm: str, k: int, seeds: Sequence[int]) -> Array:
    """Return the means over agents of the finished jobs, `(seeds, BUDGET)`."""
    return stack(directory, "best", seeds, curves, *row_of(label, algorithm, k)).mean(axis=1)


def complete(directory: Path, label: str, seeds: Sequence[int]) -> list[int]:
    """Return the seeds with a result for every algorithm and every `k` on a problem."""
    every = [row_of(label, a, k) for a in (*ALONE, *FEDERATED) for k in TRIALS_PER_ROUND]
    return [seed for seed in seeds if all(has(directory, curves, *each, seed) for each in every)]


def difference(values: Array, reference: Array) -> str:
    """Return the mean of paired differences with its standard error; bold if a t-test at 5 % rejects 0."""
    gaps = values - reference
    mean, error = map(float, mean_and_error(gaps))
    text = f"{mean:+.4f} ± {error:.4f}"
    bound = float(stats.t.ppf(0.975, max(len(gaps) - 1, 1))) * error
    return f"**{text}**" if abs(mean) > bound > 0 else text


def tables(directory: Path, label: str, seeds: Sequence[int]) -> list[str]:
    """Return the tables of one problem."""
    lines = ["", f"## {label}, {len(seeds)} seeds", "", "Best value after a number of evaluations:", ""]
    lines.append(head(["", *(f"{n} evaluations" for n in EVALUATIONS)]))
    for algorithm in (*ALONE, *FEDERATED):
        found = read(directory, label, algorithm, 1, seeds)
        lines.append(row([f"`{algorithm}`, k = 1", *(f"{found[:, n - 1].mean():.4f}" for n in EVALUATIONS)]))
        for k in TRIALS_PER_ROUND[1:] if algorithm in FEDERATED else ():
            other = read(directory, label, algorithm, k, seeds)
            cells = [difference(other[:, n - 1], found[:, n - 1]) for n in EVALUATIONS]
            lines.append(row([f"k = {k} minus k = 1", *cells]))
    lines += ["", "Best value after a number of exchanges:", ""]
    lines.append(head(["", *(f"{n} exchanges" for n in EXCHANGES)]))
    for algorithm in (*ALONE, *FEDERATED):
        first = read(directory, label, algorithm, 1, seeds)
        for k in TRIALS_PER_ROUND:
            found = read(directory, label, algorithm, k, seeds)
            cells = []
            for number in EXCHANGES:
                done, at = evaluations_after(algorithm, number, k), evaluations_after(algorithm, number, 1)
                if number > num_exchanges(algorithm, k):
                    cells.append("")
                elif k == 1:
                    cells.append(f"{found[:, done - 1].mean():.4f}")
                else:
                    cells.append(difference(found[:, done - 1], first[:, at - 1]))
            lines.append(row([f"`{algorithm}`, k = {k}" + (" minus k = 1" if k > 1 else ""), *cells]))
    lines += ["", "Kilobytes per agent in all 23 evaluations, down and up:", ""]
    lines.append(head(["", *(f"k = {k}" for k in TRIALS_PER_ROUND)]))
    for algorithm in FEDERATED:
        sent = [
            stack(directory, "bytes", seeds, curves, *row_of(label, algorithm, k)).mean(axis=0)
            for k in TRIALS_PER_ROUND
        ]
        lines.append(row([f"`{algorithm}`", *(f"{down / 1e3:.0f}, {up / 1e3:.0f}" for down, up in sent)]))
    return lines


def draw(directory: Path, found: dict[str, list[int]], file: Path) -> None:
    """Draw the best value minus that of `ei` alone, above against evaluations, below against exchanges."""
    figure, axes = panels(2 * len(found), len(found), 3.6, 2.9)
    for column, (label, seeds) in enumerate(found.items()):
        alone = read(directory, label, "ei", 1, seeds)
        for k in TRIALS_PER_ROUND:
            for algorithm, line in (("fed-ei", "-"), ("fts", "--")):
                gaps = read(directory, label, algorithm, k, seeds) - alone
                mean, error = mean_and_error(gaps)
                x = np.arange(1, BUDGET + 1)
                drawn = slice(NUM_INITIAL - 1, BUDGET)
                style = {"color": COLOURS[k], "linestyle": line, "label": f"{algorithm}, k = {k}"}
                axes[column].plot(x[drawn], mean[drawn], **style)
                if algorithm == "fed-ei":
                    low, high = (mean - error)[drawn], (mean + error)[drawn]
                    axes[column].fill_between(x[drawn], low, high, color=COLOURS[k], alpha=0.12, linewidth=0)
                number = np.arange(1, 1 + num_exchanges(algorithm, k))
                at = np.array([evaluations_after(algorithm, n, k) for n in number.tolist()]) - 1
                values = read(directory, label, algorithm, k, seeds)[:, at].mean(axis=0)
                axes[len(found) + column].plot(number, values, marker=".", markersize=3, **style)
        axes[column].axhline(0.0, color="#888888", linewidth=0.8)
        axes[column].set_title(label, fontsize=10)
        axes[column].set_xlabel("Evaluations per agent")
        axes[len(found) + column].set_xscale("log", base=2)
        axes[len(found) + column].set_xticks([1, 2, 4, 8, 16], [1, 2, 4, 8, 16])
        axes[len(found) + column].set_xlabel("Exchanges")
    axes[0].set_ylabel("Best value minus that of ei")
    axes[len(found)].set_ylabel("Best value")
    axes[len(found)].legend(fontsize=6, frameon=False)
    save_figure(figure, file)


def report(directory: Path, seeds: Sequence[int]) -> None:
    """Write the tables and the picture from the finished jobs."""
    found = {label: complete(directory, label, seeds) for label in PROBLEMS}
    found = {label: done for label, done in found.items() if len(done) > 1}
    if not found:
        return
    lines = [f"Seeds from {FIRST_SEED} on. Differences are paired by seed; bold: a t-test at 5 % rejects 0."]
    for label, done in found.items():
        lines += tables(directory, label, done)
    write_results(directory, [*lines, ""])
    draw(directory, found, directory / "exchanges.png")


def main() -> None:
    given = options(__doc__, out="runs/exchanges", seeds=12, workers=1, only_report=False)
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    work = [
        job(curves, label, algorithm, k, seed)
        for seed in (() if given.only_report else seeds)
        for label in PROBLEMS
        for algorithm in (*ALONE, *FEDERATED)
        for k in ((1,) if algorithm in ALONE else TRIALS_PER_ROUND)
    ]
    settings = {"experiment": "exchanges", "budget": BUDGET}
    report(resumed(Path(given.out), settings, work, given.workers), seeds)


if __name__ == "__main__":
    main()
