"""Compare messages of FTS, RGPE and TAF on landmine detection: size, time and gain [Dai2020, Figs. 2-5].

Fields 1 to 6 in turn are the target, as in the published figures, with messages of 50 to 200 features; with
100 features all 29 fields are. The other fields hold 50 observations from Thompson sampling alone and send
one message. In a second part the others continue to tune, so that their observations grow (Fig. 4). A third
part measures time against the number of agents (Fig. 3d). Variants share targets and starting points. Seconds
are CPU seconds of the server, the target and the other agents together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import algorithm_style, save_figure
from fbo_flower.study import incumbents
from studies import runs
from studies.jobs import Arrays, Directory, Job, OnJob, has, job, open_directory, run_jobs, stack
from studies.papers import compare
from studies.papers.fts.landmine import NUM_FIELDS, NUM_INITIAL, Variant, held, observe, tune
from studies.report import clustered, legend, mean_and_error, panels, shown, table, write_results

SCALE = "linear"
_ONCE = {"communication": "once"}
VARIANTS: dict[str, Variant] = {
    "fts": Variant("fts", _ONCE | {"schedule": "1-1/t^2"}),
    "fts 1-1/sqrt(t)": Variant("fts", _ONCE),
    "fts portfolio": Variant("fts", _ONCE | {"advice": "portfolio", "schedule": "first-5"}),
    "rgpe": Variant("rgpe", _ONCE),
    "taf": Variant("taf", _ONCE),
    "taf seen": Variant("taf", _ONCE | {"improvement_over": "seen"}),
}
ONE_SIZE = ("fts 1-1/sqrt(t)", "fts portfolio")  # these run with 100 features only
GENERAL = ("fts 1-1/sqrt(t)",)
COUNTS = (3, 6, 12, 20, 28)  # numbers of other agents


NUM_FEATURES = (50, 100, 150, 200)
ALL_TARGETS = 100  # number of features for which all fields are targets
# mean best AUC after 50 iterations over fields 1-6 and 5 starts, by the published code
PUBLISHED = {
    "fts": (0.8194, 0.8270, 0.8260, 0.8247),
    "rgpe": (0.8190, 0.7987, 0.8032, 0.8096),
    "taf": (0.7141, 0.7284, 0.7369, 0.8057),
}
PUBLISHED_TS = 0.8213
PUBLISHED_SECONDS = {"ts": "60", "fts": "44-52", "rgpe": "3474-9299", "taf": "4034-5424"}
COLOURS = {name: algorithm_style(name).color for name in ("ts", "fts", "rgpe", "taf")} | {
    "fts 1-1/sqrt(t)": "#56B4E9",
    "fts portfolio": "#009E73",
    "taf seen": "#E69F00",
}
TIMED = ("fts 1-1/sqrt(t)", "rgpe", "taf")  # timed against the number of agents


@dataclass(frozen=True)
class Size:
    """The size of the experiment, except the number of starts, which may grow."""

    num_iterations: int
    num_fields: int
    num_targets: int

    def common(self, directory: Path) -> dict[str, Any]:
        """Return arguments of all jobs."""
        return {
            "directory": str(directory), "num_iterations": self.num_iterations, "num_fields": self.num_fields,
        }  # fmt: skip


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and two pictures, and return these files.

    The files are rewritten after every start, so a stopped run leaves those of its finished starts.

    Parameters
    ----------
    quick : True: 2 starts, 2 targets among 4 fields, 8 iterations; False: 10 starts with 6 targets, and 3
        starts with all 29 fields as targets
    """
    size = Size(8, 4, 2) if quick else Size(50, NUM_FIELDS, 6)
    num_starts, num_all_starts = (2, 1) if quick else (10, 3)
    path = open_directory(directory, {"experiment": "fts-messages", **asdict(size)})
    files: list[Path] = []
    for start in range(num_starts):
        for stage, work in jobs(path, size, start).items():
            run_jobs(work, path, num_workers, on_job, f"{stage} {start}")
        files = report(path, size, start + 1, 0)
    for start in range(num_all_starts):
        run_jobs(all_targets(path, size, start), path, num_workers, on_job, f"all fields {start}")
        files = report(path, size, num_starts, start + 1)
    return files


def counts(num_fields: int) -> tuple[int, ...]:
    """Return the numbers of other agents for which time is measured."""
    return tuple(c for c in COUNTS if c < num_fields)


def jobs(directory: Path, size: Size, start: int) -> dict[str, list[Job]]:
    """Return the jobs of one start, by stage."""
    common, targets = size.common(directory), {"num_targets": size.num_targets}
    return {
        "prior": [job(observe, SCALE, start, num_fields=size.num_fields)],
        "runs": [
            job(run_alone, start, **common),
            *(
                job(run_targets, v, m, start, **targets, **common)
                for m in NUM_FEATURES
                for v in VARIANTS
                if m == ALL_TARGETS or v not in ONE_SIZE
            ),
            *(job(run_growing, v, start, **targets, **common) for v in GENERAL),
            *(job(run_few, v, c, start, **common) for c in counts(size.num_fields) for v in TIMED),
        ],
    }


def all_targets(directory: Path, size: Size, start: int) -> list[Job]:
    """Return the jobs of one start with every field as a target."""
    return [job(run_all, v, start, **size.common(directory)) for v in VARIANTS]


# -- jobs --------------------------------------------------------------------------------------


def run_alone(start: int, directory: str, num_iterations: int, num_fields: int) -> Arrays:
    """Run Thompson sampling for every field alone."""
    curves, seconds, _ = _study(Variant("ts"), {}, start, num_iterations, num_fields, {}, None)
    return {"curves": curves, "seconds": seconds / num_fields}


def run_targets(
    variant: str,
    num_features: int,
    start: int,
    num_targets: int,
    directory: str,
    num_iterations: int,
    num_fields: int,
) -> Arrays:
    """Run one variant with the first fields as targets, one after the other."""
    known = held(directory, SCALE, start, num_fields)
    each = [{"num_features": num_features, "targets": (str(t),)} for t in range(num_targets)]
    return _stacked(variant, each, start, num_iterations, num_fields, known)


def run_all(variant: str, start: int, directory: str, num_iterations: int, num_fields: int) -> Arrays:
    """Run one variant with all fields as targets, one after the other."""
    return run_targets(variant, ALL_TARGETS, start, num_fields, directory, num_iterations, num_fields)


def run_growing(
    variant: str, start: int, num_targets: int, directory: str, num_iterations: int, num_fields: int
) -> Arrays:
    """Run a target without observations among others that hold 50 observations and continue to tune."""
    known = held(directory, SCALE, start, num_fields)
    options = {"communication": "every-round", "num_features": ALL_TARGETS}
    return _stacked(variant, [options] * num_targets, start, num_iterations, num_fields, known)


def run_few(
    variant: str, count: int, start: int, directory: str, num_iterations: int, num_fields: int
) -> Arrays:
    """Run field 1 as the target among `count` other fields."""
    known = held(directory, SCALE, start, num_fields)
    options = {"num_features": ALL_TARGETS, "targets": ("0",)}
    return _stacked(variant, [options], start, num_iterations, count + 1, known)


def _stacked(
    variant: str,
    each: Sequence[Mapping[str, Any]],
    start: int,
    num_iterations: int,
    num_fields: int,
    known: Mapping[str, tuple[Array, Array]],
) -> Arrays:
    """Return the results of studies with the fields 0, 1, ... as targets, with options for each."""
    found = [
        _study(VARIANTS[variant], options, start, num_iterations, num_fields, known, target)
        for target, options in enumerate(each)
    ]
    curves, seconds, floats = (np.array(part) for part in zip(*found, strict=True))
    return {"curves": curves, "seconds": seconds, "floats": floats}


def _study(
    variant: Variant,
    options: Mapping[str, Any],
    start: int,
    num_iterations: int,
    num_fields: int,
    known: Mapping[str, tuple[Array, Array]],
    target: int | None,
) -> tuple[Array, Array, Array]:
    """Return a target's best values and CPU seconds so far, each `(T + 1,)`, and floats down and up `(2,)`.

    If `target` is None, the best values are those of all fields.
    """
    taken: list[float] = []
    agents = {str(agent) for agent in range(num_fields)} - {str(target)}
    own = {agent: seen for agent, seen in known.items() if agent in agents}
    begin = time.process_time()
    study = tune(
        variant.algorithm, {**variant.options, **options}, SCALE, start, num_iterations, num_fields, own,
        callbacks=[lambda progress: taken.append(time.process_time() - begin)],
    )  # fmt: skip
    names, best = incumbents(study.trials)
    curves = np.asarray(best[:, NUM_INITIAL - 1 :], dtype=np.float64)
    floats = np.array([float(np.sum(study.rounds[name])) for name in runs.FLOATS])
    return curves if target is None else curves[list(names).index(str(target))], np.array(taken), floats


# -- the report --------------------------------------------------------------------------------


def floats_sent(variant: str, num_features: int) -> int:
    """Return how many numbers an agent sends: `omega`, or a posterior and its best value."""
    if variant.startswith("fts"):
        return num_features
    return num_features * (num_features + 3) // 2 + (variant == "taf")


def report(directory: Path, size: Size, starts: int, all_starts: int) -> list[Path]:
    """Write `results.md`, `messages.png` and `targets.png` from the finished jobs.

    Parameters
    ----------
    starts, all_starts : number of finished starts with the first fields, and with all fields, as targets
    """
    targets, last, all_repeats = size.num_targets, size.num_iterations, range(all_starts)

    def of(variant: str, num_features: int, key: str = "curves") -> Array:
        return stack(directory, key, range(starts), run_targets, variant, num_features)

    everybody = stack(directory, "curves", range(starts), run_alone)
    alone = everybody[:, :targets]
    seconds = stack(directory, "seconds", range(starts), run_alone)
    known = {m: [v for v in VARIANTS if has(directory, run_targets, v, m, 0)] for m in NUM_FEATURES}
    text = [
        f"Fields 1-{targets} in turn the target, {starts} starts, {last} iterations, others hold 50 "
        "observations. AUC; s.e. over the targets; differences are paired by target and start. Published: 5 "
        "other starts.\n",
        "| M | variant | best | minus ts | published | numbers from each agent | numbers to the target "
        "| CPU seconds per run | published |",
        "|" + "---|" * 9,
        f"| - | ts | {_level(alone, last)} | - | {PUBLISHED_TS} | 0 | 0 | {np.median(seconds[:, -1]):.2f} "
        f"| {PUBLISHED_SECONDS['ts']} |",
    ]
    for i, m in enumerate(NUM_FEATURES):
        for variant in known[m]:
            mine = of(variant, m)
            published = f"{PUBLISHED[variant][i]:.4f}" if variant in PUBLISHED else "-"
            taken = np.median(of(variant, m, "seconds")[:, :, -1])
            down = of(variant, m, "floats")[:, :, 0].mean()
            text.append(
                f"| {m} | {variant} | {_level(mine, last)} | {compare.gain(mine, alone, last)} | {published} "
                f"| {floats_sent(variant, m)} | {down:.0f} | {taken:.2f} "
                f"| {PUBLISHED_SECONDS.get(variant, '-')} |"
            )
    checkpoints = [t for t in compare.CHECKPOINTS if t <= last]
    panel = {"ts": alone} | {v: of(v, ALL_TARGETS) for v in VARIANTS}
    text.append(f"\n## Fields 1-{targets} over the iterations, M = {ALL_TARGETS}\n")
    text.append(compare.markdown_table(panel, {}, checkpoints=checkpoints))
    text.append(_each_target(panel, last))
    for variant in GENERAL:
        grown = stack(directory, "curves", range(starts), run_growing, variant)
        both = {"ts": alone, f"{variant}, once": panel[variant], f"{variant}, growing": grown}
        text.append(f"\n## The others continue to tune (Fig. 4), fields 1-{targets}\n")
        text.append(
            "once: messages before the first iteration; growing: new ones before every iteration, from "
            "agents that have one observation more each time\n"
        )
        text.append(compare.markdown_table(both, {}, checkpoints=checkpoints))
    seconds_of, grows = _agents(directory, starts, counts(size.num_fields))
    text.append(seconds_of)
    if all_starts:
        fields = {v: stack(directory, "curves", all_repeats, run_all, v) for v in VARIANTS}
        text.append(f"\n## All {size.num_fields} fields as targets, M = {ALL_TARGETS}, {all_starts} starts\n")
        text.append(
            compare.markdown_table({"ts": everybody[:all_starts], **fields}, {}, checkpoints=checkpoints)
        )
    results = write_results(directory, text)
    pictures = [directory / "messages.png", directory / "targets.png"]
    by_size = {v: {m: of(v, m)[:, :, last] for m in NUM_FEATURES if v in known[m]} for v in VARIANTS}
    against = {v: (of(v, ALL_TARGETS, "seconds"), panel[v]) for v in VARIANTS}
    against["ts"] = (np.repeat(seconds[:, None, :], targets, axis=1), alone)
    draw_messages(by_size, alone[:, :, last], against, grows, pictures[0])
    draw_targets(panel, pictures[1])
    return [results, *pictures]


def _level(curves: Array, iteration: int) -> str:
    return shown(curves[:, :, iteration].mean(axis=0))


def _each_target(panel: Mapping[str, Array], last: int) -> str:
    """Return a table of the best values after the last iteration by target, s.e. over starts (Fig. 5)."""
    targets = panel["ts"].shape[1]
    title = f"\n## Target by target, M = {ALL_TARGETS}, best after {last} (Figs. 3a and 5)\n\n"
    rows = []
    for name, curves in panel.items():
        both = zip(*mean_and_error(curves[:, :, last]), strict=True)
        cells = [f"{m:.4f} ± {s:.4f}" for m, s in both]
        rows.append([name, *cells])
    return title + table(["variant", *(f"field {k + 1}" for k in range(targets))], rows)


def _agents(directory: Path, starts: int, others: Sequence[int]) -> tuple[str, dict[str, Array]]:
    """Return CPU seconds against the number of other agents (Fig. 3d), as text and as arrays `(counts,)`."""
    title = "\n## CPU seconds per run against the number of other agents (Fig. 3d), M = 100\n\n"
    found = {}
    for variant in TIMED:
        taken = [
            np.median(stack(directory, "seconds", range(starts), run_few, variant, c)[:, 0, -1])
            for c in others
        ]
        found[variant] = np.array([others, taken], dtype=np.float64)
    rows = [[variant, *(f"{t:.2f}" for t in seconds[1])] for variant, seconds in found.items()]
    return title + table(["variant", *others], rows), found


def draw_messages(
    by_variant: Mapping[str, Mapping[int, Array]],
    alone: Array,
    against: Mapping[str, tuple[Array, Array]],
    grows: Mapping[str, Array],
    path: Path,
) -> None:
    """Draw best value against message size, best value against time, time against agents."""
    figure, (left, middle, right) = panels(3, 3, 5.0, 4.2)
    level = clustered(alone)
    left.axhline(level.mean, color="black", linestyle="--", linewidth=1, label="ts")
    for variant, by_size in by_variant.items():
        sizes = [floats_sent(variant, m) for m in by_size]
        estimates = [clustered(values) for values in by_size.values()]
        means = [e.mean for e in estimates]
        errors = [clustered(v - alone).stderr for v in by_size.values()]
        left.errorbar(sizes, means, errors, marker="o", color=COLOURS[variant], label=variant, capsize=2)
        if variant in PUBLISHED:
            left.plot(
                sizes, PUBLISHED[variant][: len(sizes)], "o:", color=COLOURS[variant], mfc="none", alpha=0.6
            )
    left.set_xscale("log")
    left.set_xlabel("numbers from each agent")
    left.set_ylabel("best AUC after the last iteration")
    left.set_title("Fig. 2: size of messages; hollow: published", loc="left", fontsize=11)
    for variant, (seconds, curves) in against.items():
        style = "--" if variant == "ts" else "-"
        x, y = np.median(seconds, axis=(0, 1)), curves.mean(axis=(0, 1))
        middle.plot(x[-len(y) :], y, style, color=COLOURS[variant], linewidth=1.8)
    middle.set_xscale("log")
    middle.set_xlabel("CPU seconds, including the others' messages")
    middle.set_ylabel("best AUC so far")
    middle.set_title("Fig. 3a: time, with M = 100 random features", loc="left", fontsize=11)
    for variant, (count, taken) in grows.items():
        right.plot(count, taken, "o-", color=COLOURS[variant])
    right.set_xlabel("other agents")
    right.set_ylabel("CPU seconds of a run")
    right.set_ylim(bottom=0)
    right.set_title("Fig. 3d: agents, with M = 100 random features", loc="left", fontsize=11)
    legend(figure, [left], 8)
    save_figure(figure, path, 120)


def draw_targets(panel: Mapping[str, Array], path: Path) -> None:
    """Draw best value against iterations, one axis per target (Fig. 5)."""
    count = next(iter(panel.values())).shape[1]
    figure, axes = panels(count, 3, 4.6, 3.4)
    for k, axis in enumerate(axes):
        for name, curves in panel.items():
            style = "--" if name == "ts" else "-"
            axis.plot(curves[:, k].mean(axis=0), style, color=COLOURS[name], label=name, linewidth=1.5)
        axis.set_title(f"field {k + 1}", loc="left", fontsize=11)
        axis.set_xlabel("iterations")
    axes[0].set_ylabel("best AUC so far")
    legend(figure, axes[:1], 8)
    save_figure(figure, path, 120)
