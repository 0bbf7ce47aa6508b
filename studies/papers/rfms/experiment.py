"""Replay RFMS in the paper's setting on tables: all pairs of openbox and lockbox, 20 + 40 configurations.

The tables are computed first (`rfms.tables`), then every method is replayed on them (`rfms.replay`), then the
runs are measured (`rfms.outcomes`). The report covers all finished outcomes.

[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019, sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from studies.jobs import Directory, OnJob, has, job, load, open_directory, run_jobs
from studies.papers.rfms import outcomes as rfms_outcomes
from studies.papers.rfms import replay as rfms_replay
from studies.papers.rfms import report as rfms_report
from studies.papers.rfms import tables as rfms_tables
from studies.papers.rfms.outcomes import CHOICES, Outcomes
from studies.papers.rfms.replay import ReplaySetting, Size
from studies.papers.rfms.tables import Key

SMALL: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("heart-4sites", {}),
    *((name, {"split": s}) for name in ("breast-cancer-5sites", "fri-5sites") for s in ("drc", "srs")),
)
LARGE: tuple[tuple[str, Mapping[str, Any]], ...] = tuple(
    (name, {"split": s}) for name in ("semeion-5sites", "madelon-5sites") for s in ("drc", "srs")
)
FORESTED = SMALL[:1]  # the table of a forest takes a quarter of an hour
WIDE = tuple(
    ("gravier-5sites", {"split": s}) for s in ("drc", "srs")
)  # an elastic net on these data takes long
SEEDS = {"elastic-net": range(3), "svm": range(2)}  # of the small data sets; the large ones have seed 0
WEIGHTED_SEEDS = {"elastic-net": range(5), "svm": range(1)}  # for random search only
NUM_DRAWS = 10  # random searches on a table with class weights, and on the one without


@dataclass(frozen=True)
class ExperimentPlan:
    """The tables and replays that the experiment computes.

    Parameters
    ----------
    keys : the tables on which all methods are replayed
    weighted : tables whose parameters include a weight of the positive class
    num_replications : smallest number of replications on each table; every lockbox gets equally many
    """

    keys: tuple[Key, ...]
    weighted: tuple[Key, ...]
    num_replications: int
    size: Size

    def repeats(self, key: Key) -> range:
        """Return the number of repeats on a table; in each repeat every other site is the lockbox once."""
        num_lockboxes = rfms_tables.problem_of(key).num_agents - 1
        return range(math.ceil(self.num_replications / num_lockboxes))


def full_plan() -> ExperimentPlan:
    """Return two or three hours of work: up to three seeds of the small data sets, one of the large ones."""
    jobs = [(job, seed, name) for name, seeds in SEEDS.items() for job in SMALL for seed in seeds]
    jobs += [(job, 0, name) for name in SEEDS for job in LARGE] + [(job, 0, "svm") for job in WIDE]
    jobs += [(job, 0, "forest") for job in FORESTED]
    shifted = [job for job in SMALL if job[1] != {"split": "srs"}]
    weighted = [
        (job, seed, name) for name, seeds in WEIGHTED_SEEDS.items() for job in shifted for seed in seeds
    ]
    weight = {"class_weight": True}
    return ExperimentPlan(
        tuple(k for job, seed, name in jobs for k in _keys(*job, seed, {"learner": name})),
        tuple(k for job, seed, name in weighted for k in _keys(*job, seed, {"learner": name} | weight)),
        20,
        Size(),
    )


def quick_plan() -> ExperimentPlan:
    """Return a minute of work: two openboxes of breast cancer."""
    options = {"split": "drc", "learner": "elastic-net"}
    boxes = (1, 2)
    return ExperimentPlan(
        tuple(rfms_tables.keys("breast-cancer-5sites", [0], options, boxes)),
        tuple(rfms_tables.keys("breast-cancer-5sites", [0], options | {"class_weight": True}, boxes)),
        1,
        Size(6, 14, 40),
    )


def _keys(problem: str, options: Mapping[str, Any], seed: int, more: Mapping[str, Any]) -> list[Key]:
    return rfms_tables.keys(problem, [seed], {**options, **more})


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and pictures, and return these files."""
    path = open_directory(directory, {"experiment": "rfms", "quick": quick})
    plan = quick_plan() if quick else full_plan()
    tables, replays, outcomes = directories(path, plan.size)
    keys = [*plan.keys, *(k for k in paired(plan.weighted) if k not in plan.keys)]
    rfms_tables.run(tables, keys, num_workers, on_job, plan.size.num_configs)
    pairs = sorted(((k, r) for k in plan.keys for r in plan.repeats(k)), key=lambda pair: pair[1])
    work = {
        "replays": [c for k, r in pairs for c in rfms_replay.jobs(tables, k, [r], plan.size)],
        "outcomes": [c for k, r in pairs for c in rfms_outcomes.jobs(tables, replays, k, [r], plan.size)],
        "random search": [
            job(rfms_outcomes.draw, k, tables=str(tables), num_draws=NUM_DRAWS, size=plan.size)
            for k in paired(plan.weighted)
        ],
    }
    for stage, jobs in work.items():
        place = replays if stage == "replays" else outcomes
        run_jobs(jobs, place, num_workers, on_job, stage)
    return report(path, plan)


def paired(weighted: Iterable[Key]) -> list[Key]:
    """Return the tables with a class weight, each paired with the table of the same rows without."""
    return [k for key in weighted for k in (key, rfms_report.unweighted(key))]


def directories(path: Path, size: Size) -> tuple[Path, Path, Path]:
    """Return the directories of tables, replays and outcomes."""
    # "corner" keeps replays from before the reference point of "ehvi" changed apart
    played = {"fitter": rfms_replay.together.__name__, "corner": "posterior means", **asdict(size)}
    replays = open_directory(path / "replays", {"experiment": "rfms-replays", **played})
    measured = {"experiment": "rfms-outcomes", "choices": CHOICES, **played}
    return path / "tables", replays, open_directory(path / "outcomes", measured)


def report(path: Path, plan: ExperimentPlan) -> list[Path]:
    """Write tables and pictures of all finished outcomes."""
    tables, replays, outcomes = directories(path, plan.size)
    plain = available(outcomes, plan)
    drawn = [k for k in paired(plan.weighted) if has(outcomes, rfms_outcomes.draw, k)]
    draws = {str(k): load(outcomes, rfms_outcomes.draw, k) for k in drawn}
    results = rfms_report.write(path, plain, draws, plan.weighted)
    shown = [o for o in plain if not rfms_report.is_forest(o.key)]
    wins = rfms_report.draw_wins(path / "wins.png", shown)
    examples = [(o.key, _example(tables, o.key, plan.size)) for o in shown]
    key, setting = max(examples, key=lambda example: len(rfms_report.table_front(example[1])))
    chosen = rfms_replay.replayed(replays, key, 0)[0]  # with the first lockbox
    return [results, wins, rfms_report.draw_front(path / "front.png", setting, key, chosen)]


def _example(tables: Path, key: Key, size: Size) -> ReplaySetting:
    table = rfms_tables.load_table(tables, key, size.num_configs)
    space, lockbox = rfms_tables.problem_of(key).space, rfms_replay.lockboxes(table, key.openbox)[0]
    return ReplaySetting(table, space, key.openbox, lockbox)


def available(directory: Path, plan: ExperimentPlan) -> list[Outcomes]:
    """Return the finished outcomes of every table that has at least one replication."""
    found = []
    for key in plan.keys:
        there = [r for r in plan.repeats(key) if has(directory, rfms_outcomes.measure, key, r)]
        if there:
            found.append(rfms_outcomes.load(directory, key, there))
    return found
