"""What early stopping saves and costs, with the default rule and with Optuna's.

Agents tune an objective of `pruning_problems`, which reports its value on held-out rows after every step. The
final value of an agent is the last value of its recommended configuration, trained to the end with another
seed and judged on rows that tuning did not see. It is given twice: after equally many trials, and when the
federation has spent equally many steps, where stopping early pays for more trials.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms import FedEI
from fbo_flower.clients import Pruning
from fbo_flower.simulation import Agents, simulate
from fbo_flower.study import Study, Table
from fbo_flower.trackers import Callback, StudyInfo
from studies.benchmarks.pruning_problems import LIMITS, NUM_AGENTS, PROBLEMS, VALIDATE, final_value, replayed
from studies.experiment import Arrays, Experiment, Part

NUM_TRIALS, MOST_ROUNDS = 12, 24
RULES = {
    "no pruning": Pruning("off"),
    "median, last value": Pruning(learns="last", margin=None),  # Optuna's rule; models learn the last value
    "default": Pruning(),
}


class SpentError(Exception):
    """The federation has spent its steps."""


@dataclass
class Counted(Callback):
    """An objective that counts its steps.

    Parameters
    ----------
    most : steps of all agents after which the study ends, once it has 12 rounds
    spent : steps at the end of each round
    trials : those of the study when it has ended, whole or not
    """

    problem: str
    seed: int
    most: float
    num_steps: int = 0
    spent: list[int] = field(default_factory=list)
    trials: Any = None

    def __call__(self, config: dict[str, Any], agent: int, context: Any) -> float:
        problem, start, value = PROBLEMS[self.problem], int(context.rng.integers(2**31)), 0.0
        rows = problem.rows(self.seed)[agent]
        for step, value in enumerate(problem.values(config, rows, VALIDATE, start)):
            self.num_steps += 1
            context.report(step, value)
            if context.should_stop():
                break
        return value

    def end_round(self, _: object) -> None:
        """Note what has been spent; end the study when all is spent that 12 whole trials need."""
        self.spent.append(self.num_steps)
        if len(self.spent) >= NUM_TRIALS and self.num_steps > self.most:
            raise SpentError

    def on_finish(self, study: StudyInfo, result: Study) -> None:
        self.trials = result.trials


def stopped_at(trials: Table) -> np.ndarray:
    """Return the step at which each trial stopped; NaN: it did not."""
    return trials["stopped_at"] if "stopped_at" in trials.columns else np.full(len(trials), np.nan)


def final_values(problem: str, seed: int, trials: Table, num_rounds: int) -> tuple[float, float]:
    """Return means over agents after some rounds: of the best value, and of the final value."""
    found = []
    for agent in range(NUM_AGENTS):
        rows = (trials["agent"] == str(agent)) & (trials["round"] <= num_rounds)
        completed = rows & ~np.isfinite(stopped_at(trials))
        rows = np.flatnonzero(completed if completed.any() else rows)
        best = rows[int(np.argmax(trials["value"][rows]))]
        config = tuple(sorted(trials["config"][best].items()))
        found.append((trials["value"][best], final_value(problem, seed, agent, config)))
    tuned, final = np.mean(found, axis=0)
    return float(tuned), float(final)


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the rules on both problems, and the replays; quick: two rules, one seed, boosting."""
    labels = ["boosting"] if quick else list(PROBLEMS)
    rows = ["no pruning", "default"] if quick else list(RULES)
    seeds, size = range(1 if quick else 16), {"num_studies": 1 if quick else 5}
    return [
        Part("early stopping", stopped, labels, rows, seeds, {"rules": rows}, rows[0], joint=True),
        Part("replays", replayed, labels, list(LIMITS), range(1), size, joint=True, fixed=True),
    ]


EXPERIMENT = Experiment("What early stopping saves and costs", parts)


def stopped(problem: str, seed: int, rules: Sequence[str]) -> Arrays:
    """Run all rules; a rule gets the steps that the first one needs, and makes at least 12 rounds."""
    found, most = Arrays(), np.inf
    for rule in rules:
        own = run(problem, rule, seed, most)
        most = own["steps"] if rule == rules[0] else most
        own["share of steps saved"] = 1.0 - own["steps"] / most
        found |= {f"{rule}/{name}": np.array(value, dtype=np.float64) for name, value in own.items()}
    return found


def run(problem: str, rule: str, seed: int, most: float) -> dict[str, float]:
    """Return the numbers of one study, which may spend `most` steps and makes at least 12 rounds."""
    objective, before = Counted(problem, seed, most), time.process_time()
    with suppress(SpentError):
        simulate(
            objective, PROBLEMS[problem].space, Agents(NUM_AGENTS, pruning=RULES[rule]),
            FedEI(num_candidates=128), NUM_TRIALS if np.isinf(most) else MOST_ROUNDS, seed=seed,
            engine="inline", callbacks=[objective, objective.end_round],
        )  # fmt: skip
    trials = objective.trials
    within = sum(spent <= most for spent in objective.spent) if np.isfinite(most) else NUM_TRIALS
    within = min(within, len(objective.spent))
    first = trials["round"] <= NUM_TRIALS
    numbers: dict[str, float] = {
        "trials": int(first.sum()),
        "stopped": int(np.isfinite(stopped_at(trials)[first]).sum()),
        "steps": objective.spent[NUM_TRIALS - 1],
        "trials, equal steps": int((trials["round"] <= within).sum()),
    }
    for name, num_rounds in (("", NUM_TRIALS), (", equal steps", within)):
        tuned, final = final_values(problem, seed, trials, num_rounds)
        numbers |= {f"best value{name}": tuned, f"final value{name}": final}
    return {**numbers, "CPU seconds": time.process_time() - before}
