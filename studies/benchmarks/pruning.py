"""What early stopping saves and costs: rules, what is learnt of stopped trials, and two oracles.

Agents tune an objective of `pruning_problems`, which reports its value on held-out rows after every step. The
final value of an agent is the last value of its recommended configuration, trained to the end with another
seed and judged on rows that tuning did not see. It is given twice: after equally many trials, and when the
federation has spent equally many steps, where stopping early pays for more trials.

`python -m studies.benchmarks.pruning` writes the tables of early stopping in
docs/results/federation.md. The oracles
know what a stopped trial would have reached. `told` tells it to the algorithm, so all that is left is the
cost of stopping the wrong trials; `ignored` leaves stopped trials out of the model. The first of `--rules` is
what the others are compared with; with `--late` two agents take part in half of the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from fbo_flower.algorithms import FedEI
from fbo_flower.algorithms.records import Array, Trials
from fbo_flower.clients import Pruning
from fbo_flower.clients.pruning import CurveBook
from fbo_flower.simulation import Agents, simulate
from fbo_flower.study import Study, Table
from fbo_flower.trackers import Callback, StudyInfo
from studies.benchmarks.bench import options, say
from studies.benchmarks.pruning_problems import NUM_AGENTS, PROBLEMS, TEST, VALIDATE
from studies.report import head, shown

NUM_LATE, NUM_TRIALS, MOST_ROUNDS = 2, 12, 24
AS_BEFORE: dict[str, Any] = {"learns": "last", "margin": None}  # Optuna's rule, and what was learnt before
RULES: dict[str, tuple[Pruning, str]] = {
    "no pruning": (Pruning("off"), ""),
    "median, last value": (Pruning(**AS_BEFORE), ""),
    "median, last value, warm-up 5": (Pruning(warmup_steps=5, **AS_BEFORE), ""),
    "median, predicted": (Pruning(margin=None), ""),
    "median, oracle ignored": (Pruning(margin=None), "ignored"),
    "median, oracle told": (Pruning(margin=None), "told"),
    "default, last value": (Pruning(learns="last"), ""),
    "default": (Pruning(), ""),
    "default, oracle told": (Pruning(), "told"),
    "pooled, last value": (Pruning("federated", **AS_BEFORE), ""),
    "pooled, last value, warm-up 5": (Pruning("federated", warmup_steps=5, **AS_BEFORE), ""),
    "pooled, predicted": (Pruning("federated", margin=None), ""),
    "pooled, oracle told": (Pruning("federated", margin=None), "told"),
    "pooled": (Pruning("federated"), ""),
}


class SpentError(Exception):
    """The federation has spent its steps."""


@dataclass
class Counted:
    """An objective that counts its steps.

    Parameters
    ----------
    whole : whether it goes on after it should stop, for an oracle; such steps are not counted
    num_steps : counted steps of all agents
    spent : counted steps at the end of each round
    ends : what each stopped trial would have reached, by agent and point; only with `whole`
    """

    problem: str
    seed: int
    whole: bool = False
    num_steps: int = 0
    spent: list[int] = field(default_factory=list)
    last: float = float("nan")

    def __call__(self, config: dict[str, Any], agent: int, context: Any) -> float:
        problem, start = PROBLEMS[self.problem], int(context.rng.integers(2**31))
        stopped = False
        value = 0.0
        rows = problem.rows(self.seed)[agent]
        for step, value in enumerate(problem.values(config, rows, VALIDATE, start)):
            if stopped:
                continue
            self.num_steps += 1
            context.report(step, value)
            stopped = context.should_stop()
            if stopped and not self.whole:
                break
        self.last = value
        return value

    def end_round(self, _: object) -> None:
        """Note what has been spent; end the study when all is spent that 12 whole trials need."""
        self.spent.append(self.num_steps)
        if len(self.spent) >= NUM_TRIALS and self.num_steps > self.most:
            raise SpentError

    most: float = np.inf


@contextmanager
def oracle(name: str, objective: Counted) -> Iterator[None]:
    """Tell algorithms of stopped trials what nobody can know."""

    def told(book: CurveBook, evaluation: Any, step: int) -> None:
        book.predicted[evaluation.trial] = objective.last

    observed = Trials.observed

    def ignored(history: Trials) -> tuple[Array, Array]:
        points, values = observed(history)
        if history.stopped is None or not len(values):
            return points, values
        kept = history.stopped < 0
        return points[kept], values[kept]

    if name == "told":
        with patch.object(CurveBook, "_predict", told):
            yield
    elif name == "ignored":
        with patch.object(Trials, "observed", ignored):
            yield
    else:
        yield


@cache
def final_value(problem: str, seed: int, agent: int, config: tuple[tuple[str, Any], ...]) -> float:
    """Return the value on unseen rows of a configuration that is trained to the end with another seed."""
    made = PROBLEMS[problem]
    *_, value = made.values(dict(config), made.rows(seed)[agent], TEST, 10**6 + seed)
    return value


def final_values(problem: str, seed: int, trials: Table, num_rounds: int) -> tuple[float, float]:
    """Return means over agents after some rounds: of the best value, and of the final value."""
    found = []
    stopped = trials["stopped_at"] if "stopped_at" in trials.columns else np.full(len(trials), np.nan)
    for agent in range(NUM_AGENTS):
        rows = (trials["agent"] == str(agent)) & (trials["round"] <= num_rounds)
        completed = rows & ~np.isfinite(stopped)
        rows = np.flatnonzero(completed if completed.any() else rows)
        best = rows[int(np.argmax(trials["value"][rows]))]
        config = tuple(sorted(trials["config"][best].items()))
        found.append((trials["value"][best], final_value(problem, seed, agent, config)))
    tuned, final = np.mean(found, axis=0)
    return float(tuned), float(final)


class _Ended(Callback):
    """Keeps the study, also of a run that was stopped."""

    def __init__(self, made: list[Study]) -> None:
        self.made = made

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        self.made.append(result)


def run(problem: str, rule: str, seed: int, late: bool, most: float) -> dict[str, float]:
    """Return the numbers of one study.

    Parameters
    ----------
    late : whether two agents take part in half of the rounds only, so that others are ahead of them
    most : steps that the federation may spend; at least 12 rounds are made
    """
    pruning, known = RULES[rule]
    objective = Counted(problem, seed, whole=known == "told", most=most)
    shares = [1.0] * (NUM_AGENTS - NUM_LATE) + [0.5] * NUM_LATE
    before, made = time.process_time(), list[Study]()
    with oracle(known, objective), suppress(SpentError):
        simulate(
            objective,
            PROBLEMS[problem].space,
            Agents(NUM_AGENTS, pruning=pruning, participation=shares if late else None),
            FedEI(num_candidates=128),
            NUM_TRIALS if np.isinf(most) else MOST_ROUNDS,
            seed=seed,
            engine="inline",
            callbacks=[_Ended(made), objective.end_round],
        )
    trials = made[0].trials
    within = sum(spent <= most for spent in objective.spent) if np.isfinite(most) else NUM_TRIALS
    within = min(within, len(objective.spent))
    first = trials["round"] <= NUM_TRIALS
    stopped = trials["stopped_at"] if "stopped_at" in trials.columns else np.full(len(trials), np.nan)
    tuned, final = final_values(problem, seed, trials, NUM_TRIALS)
    tuned_within, final_within = final_values(problem, seed, trials, within)
    return {
        "trials": int(first.sum()),
        "stopped": int(np.isfinite(stopped[first]).sum()),
        "steps": objective.spent[NUM_TRIALS - 1],
        "tuned": tuned,
        "final": final,
        "trials within": int((trials["round"] <= within).sum()),
        "tuned within": tuned_within,
        "final within": final_within,
        "seconds": time.process_time() - before,
    }


def table(problem: str, seeds: range, rules: list[str], late: bool) -> None:
    """Print the means over seeds, with differences from no pruning and their standard errors."""
    rows: dict[str, list[dict[str, float]]] = {rule: [] for rule in rules}
    for seed in seeds:
        for rule in rules:
            most = rows[rules[0]][-1]["steps"] if rule != rules[0] else np.inf
            rows[rule].append(run(problem, rule, seed, late, most))
            print(f"# {problem} late={late} seed {seed} {rule}: {rows[rule][-1]}", flush=True)
    print(f"\n{PROBLEMS[problem].title}; late={late}\n")
    columns = ["best value", "final value", "trials", "best value", "final value"]
    print(head(["rule", "stopped", "steps saved", *columns]))
    for rule, found in rows.items():
        mean = {name: float(np.mean([row[name] for row in found])) for name in found[0]}
        base = {name: np.array([row[name] for row in rows[rules[0]]]) for name in found[0]}

        def gap(name: str, within: str = "", rule: str = rule, base: Any = base, found: Any = found) -> str:
            if rule == rules[0]:
                return f"{base[name].mean():.4f}"
            return shown(np.array([row[name + within] for row in found]) - base[name], 4, "+")

        stopped, saved = (
            f"{mean['stopped']:.0f} of {mean['trials']:.0f}",
            1 - mean["steps"] / base["steps"].mean(),
        )
        same = [gap("tuned"), gap("final")]
        longer = [f"{mean['trials within']:.0f}", gap("tuned", " within"), gap("final", " within")]
        say(rule, stopped, f"{saved:.0%}", *same, *longer)


def main() -> None:
    """Print the tables."""
    chosen: dict[str, Any] = {"problems": list(PROBLEMS), "rules": list(RULES)}
    given = options(__doc__, seeds=8, first_seed=0, late=False, **chosen)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    for name in given.problems:
        table(name, seeds, given.rules, given.late)


if __name__ == "__main__":
    main()
