"""What early stopping saves and costs: rules, what is learnt of stopped trials, and two oracles.

Agents tune an objective of `pruning_problems`, which reports its value on held-out rows after every step. The
final value of an agent is the last value of its recommended configuration, trained to the end with another
seed and judged on rows that tuning did not see. It is given twice: after equally many trials, and when the
federation has spent equally many steps, where stopping early pays for more trials.

The oracles know what a stopped trial would have reached. `told` tells it to the algorithm, so all that is
left is the cost of stopping the wrong trials; `ignored` leaves stopped trials out of the model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
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
from studies.benchmarks import pruning_replay
from studies.benchmarks.pruning_problems import NUM_AGENTS, PROBLEMS, TEST, VALIDATE
from studies.experiment import Arrays, Experiment, Part

NUM_TRIALS, MOST_ROUNDS = 12, 24
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
    add, observed = CurveBook.add, Trials.observed

    def told(book: CurveBook, row: Trials) -> Trials:
        made = add(book, row)
        return made if row.stopped is None else replace(made, predicted=np.array([objective.last]))

    def ignored(history: Trials) -> tuple[Array, Array]:
        points, values = observed(history)
        if history.stopped is None or not len(values):
            return points, values
        kept = history.stopped < 0
        return points[kept], values[kept]

    if name == "told":
        with patch.object(CurveBook, "add", told):
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


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the rules on both problems, and the replays; quick: two rules, one seed, boosting."""
    labels = ["boosting"] if quick else list(PROBLEMS)
    rows = ["no pruning", "default"] if quick else list(RULES)
    seeds, replayed = range(1 if quick else 16), {"num_studies": 1 if quick else 5}
    return [
        Part("early stopping", stopped, labels, rows, seeds, {"rules": rows}, rows[0], joint=True),
        Part(
            "replays",
            pruning_replay.replayed,
            labels,
            list(pruning_replay.RULES),
            range(1),
            replayed,
            joint=True,
            fixed=True,
        ),
    ]


EXPERIMENT = Experiment("What early stopping saves and costs", parts)


def stopped(problem: str, seed: int, rules: Sequence[str]) -> Arrays:
    """Run all rules; a rule gets the steps that the first one needs, and makes at least 12 rounds."""
    found, most = Arrays(), np.inf
    for rule in rules:
        own = run(problem, rule, seed, most)
        if rule == rules[0]:
            most = own["steps"]
        own["share of steps saved"] = 1.0 - own["steps"] / most
        found |= {f"{rule}/{name}": np.array(value, dtype=np.float64) for name, value in own.items()}
    return found


def run(problem: str, rule: str, seed: int, most: float) -> dict[str, float]:
    """Return the numbers of one study, which may spend `most` steps and makes at least 12 rounds."""
    pruning, known = RULES[rule]
    objective = Counted(problem, seed, whole=known == "told", most=most)
    before, made = time.process_time(), list[Study]()
    with oracle(known, objective), suppress(SpentError):
        simulate(
            objective,
            PROBLEMS[problem].space,
            Agents(NUM_AGENTS, pruning=pruning),
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
        "best value": tuned,
        "final value": final,
        "trials, equal steps": int((trials["round"] <= within).sum()),
        "best value, equal steps": tuned_within,
        "final value, equal steps": final_within,
        "CPU seconds": time.process_time() - before,
    }
