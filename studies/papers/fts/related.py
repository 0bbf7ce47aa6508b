"""Measure what messages of unrelated agents cost, and whether `P_N` learns to ignore them.

Twelve agents have smooth functions on the square: six are close to one function, six are independent. Either
two agents of each half tune while the others hold 30 observations and send one message, or all agents tune at
once without earlier observations. In a last part the 29 landmine fields tune at once with learned `P_N`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.algorithms.fts.fts import FTS, Adviser
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Task, Trials, floats
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.seeding import generator
from fbo_flower.reports.pictures import new_figure, save_figure
from fbo_flower.simulation import Start, observations, prior_study
from fbo_flower.simulation.problems import Problem, make_problem
from fbo_flower.study import Study
from studies import runs
from studies.jobs import Arrays, Directory, Job, OnJob, job, load, open_directory, run_jobs, stack
from studies.papers import compare
from studies.papers.fts.landmine import curves_of, tune
from studies.report import shown, table, write_results

NUM_AGENTS = 12
NUM_RELATED = 6  # agents 0-5
TARGETS = (0, 1, 10, 11)  # of the part in which the others hold observations
CHECKPOINTS = (3, 5, 10, 20, 50)
PARTS = {"prior": "others hold 30 observations", "nothing": "all from nothing"}

NUM_INITIAL = 3
PRIOR_ROUNDS = 28  # 30 observations
GP = {"dimension": 2, "lengthscale": 0.2, "difference": 0.3, "offset": "smooth", "unrelated_fraction": 6 / 11}
SCHEDULE = {"schedule": "first-5"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ts": ("ts", {}),
    "fts single": ("fts", {}),
    "fts learned": ("fts", {"preferences": "learned"}),
    "fts portfolio": ("fts", {"advice": "portfolio"}),
    "fts mixture": ("fts", {"advice": "mixture"}),
    "control": ("fts", {"advice": "random"}),
    "rgpe": ("rgpe", {}),
    "taf": ("taf", {}),
    "taf seen": ("taf", {"improvement_over": "seen"}),
}
ON_LANDMINE = ("ts", "fts single", "fts learned")


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and two pictures, and return these files.

    The files are rewritten after every set of functions, so a stopped run leaves those of its finished sets.

    Parameters
    ----------
    quick : True: 2 sets of functions, 6 iterations and 2 landmine runs; False: 12, 50 and 5
    """
    num_functions, num_landmine = (2, 2) if quick else (12, 5)
    num_iterations, num_fields = (6, 4) if quick else (50, 29)
    size = {"num_iterations": num_iterations, "num_fields": num_fields}
    path = open_directory(directory, {"experiment": "fts-related", **size})
    files: list[Path] = []
    for function in range(num_functions):
        work = jobs(function, num_iterations, num_fields, function < num_landmine)
        run_jobs(work, path, num_workers, on_job, f"functions {function}")
        files = report(path, function + 1, min(function + 1, num_landmine), num_iterations)
    return files


def jobs(function: int, num_iterations: int, num_fields: int, with_landmine: bool) -> list[Job]:
    """Return the jobs of one set of functions, and of the landmine run with the same number."""
    common = {"num_iterations": num_iterations}
    functions = [job(run_function, part, v, function, **common) for part in PARTS for v in VARIANTS]
    landmine = [job(run_landmine, v, function, num_fields=num_fields, **common) for v in ON_LANDMINE]
    return functions + landmine if with_landmine else functions


# -- jobs --------------------------------------------------------------------------------------


def run_function(part: str, variant: str, function: int, num_iterations: int) -> Arrays:
    """Run one variant on one set of functions; return simple regret `(agents, iterations + 1)`."""
    problem = make_problem("gp-samples", NUM_AGENTS, function, {**GP, "function_seed": function})
    algorithm, extra = VARIANTS[variant]
    options: dict[str, Any] = {"num_initial": NUM_INITIAL, **extra}
    held, who = None, tuple(range(NUM_AGENTS))
    if part == "prior":
        names = tuple(str(agent) for agent in TARGETS)
        before = prior_study(problem, "ts", PRIOR_ROUNDS, 70_000 + function, "inline")
        held, who = observations(before, problem, without=names), TARGETS
        if algorithm != "ts":
            options |= {"targets": names}
            options |= {} if extra.get("advice") == "random" else {"communication": "once"}
        if extra.get("advice") in {"portfolio", "random"}:
            options |= SCHEDULE
    study = runs.run(
        problem, algorithm, options, num_iterations + 1, function, start=Start(observations=held)
    )
    regret = np.array([study.regret.where(agent=str(a))["simple"] for a in who], dtype=np.float64)
    found: Arrays = {"regret": regret[:, NUM_INITIAL - 1 :]}
    if variant == "fts learned" and part == "nothing":
        found |= preferences(problem, study, options, function, num_iterations)
    return found


def run_landmine(variant: str, seed: int, num_iterations: int, num_fields: int) -> Arrays:
    """Let all fields tune at once; return their best values `(fields, iterations + 1)`."""
    algorithm, extra = VARIANTS[variant]
    study = tune(algorithm, extra, "linear", 30_000 + seed, num_iterations, num_fields)
    found: Arrays = {"curves": curves_of(study)}
    if variant == "fts learned":
        problem, options = (
            make_problem("landmine-svm", num_fields, 0, {}),
            {"num_initial": NUM_INITIAL, **extra},
        )
        found |= preferences(problem, study, options, seed, num_iterations)
    return found


def preferences(
    problem: Problem, study: Study, options: Mapping[str, Any], seed: int, iteration: int
) -> Arrays:
    """Return every agent's `P_N`, `(N, N)`, after the last iteration.

    The server does not keep it, so the agents' messages are drawn again from their observations with the same
    options.
    """
    algorithm = FTS.from_options(options)
    count, space = problem.num_agents, problem.space
    names = tuple(str(agent) for agent in range(count))
    state = algorithm.init(Federation(space, names), generator(seed, "features"))
    assert isinstance(state, FTSState)
    assert state.features is not None
    arrays = {"frequencies": state.features.frequencies, "phases": state.features.phases}
    task = Task(Phase.TRAIN, 1, 0, 0, arrays, {"message": True})
    messages = {}
    for name, (points, values) in observations(study, problem).items():
        agent_state = AgentState(space, Trials.prior(points, np.asarray(values)))
        sent = algorithm.summarise(task, agent_state, partial(generator, seed, "message", name))
        messages[name] = floats(sent.arrays["weights"])
    known = FTSState(space, features=state.features, messages=messages)
    selector = Adviser(algorithm, known, generator(seed, "desk"))
    matrix = np.zeros((count, count))
    for agent in selector.senders:
        rows = np.delete(np.arange(len(selector.senders)), selector.rows[agent])
        weights: Array = selector.preferences(agent, rows, iteration)
        matrix[int(agent), [int(selector.senders[r]) for r in rows]] = weights / weights.sum()
    return {"preferences": matrix}


# -- the report --------------------------------------------------------------------------------


def report(directory: Path, count: int, num_landmine: int, last: int) -> list[Path]:
    """Write `results.md`, `related.png` and `preferences.png` from the finished jobs.

    Parameters
    ----------
    count, num_landmine : number of finished sets of functions and landmine runs
    last : number of iterations
    """
    checkpoints = [t for t in CHECKPOINTS if t <= last]
    text = [
        f"{count} sets of functions. Values are minus simple regret without noise: 0 is the optimum; s.e. "
        'over the sets. "clearly worse": agents whose paired mean over the sets is below 0 by 2 s.e.\n'
    ]
    panels: dict[str, dict[str, Array]] = {}
    for part, title in PARTS.items():
        who = TARGETS if part == "prior" else tuple(range(NUM_AGENTS))
        for related in (True, False):
            rows = [i for i, agent in enumerate(who) if (agent < NUM_RELATED) == related]
            panel = {
                v: -stack(directory, "regret", range(count), run_function, part, v)[:, rows] for v in VARIANTS
            }
            kind = "related" if related else "unrelated"
            text.append(f"## {title[0].upper()}{title[1:]}: the {kind} agents\n")
            text.append(regrets(panel, checkpoints))
            panels[f"{kind}, {title}"] = {v: np.swapaxes(c, 0, 1) for v, c in panel.items()}
    landmine = {v: stack(directory, "curves", range(num_landmine), run_landmine, v) for v in ON_LANDMINE}
    text.append(f"## Landmine, all {landmine['ts'].shape[1]} fields from nothing, {num_landmine} runs\n")
    at = [t for t in compare.CHECKPOINTS if t <= last]
    text.append(compare.markdown_table(landmine, {}, checkpoints=at))
    matrices = stack(directory, "preferences", range(count), run_function, "nothing", "fts learned")
    text.append(shares(matrices))
    results = write_results(directory, text)
    pictures = [directory / "related.png", directory / "preferences.png"]
    compare.draw(panels, {}, pictures[0], ylabel="gain in simple regret over ts")
    fields = load(directory, run_landmine, "fts learned", 0)["preferences"]
    draw_preferences(matrices.mean(axis=0), fields, pictures[1])
    return [results, *pictures]


def regrets(panel: Mapping[str, Array], checkpoints: Sequence[int]) -> str:
    """Return means, paired differences to `ts` and the share of agents clearly worse, as Markdown.

    Parameters
    ----------
    panel : variant -> `(sets, agents, T + 1)`
    """
    last = checkpoints[-1]
    head = ["variant", *(f"at {t}" for t in checkpoints), *(f"minus ts at {t}" for t in checkpoints)]
    head.append(f"clearly worse at {checkpoints[1]}, {last}")
    rows = []
    for name, curves in panel.items():
        mine, alone = (np.swapaxes(c, 0, 1) for c in (curves, panel["ts"]))  # the sets are the clusters
        row = [name, *(f"{mine[:, :, t].mean():.4f}" for t in checkpoints)]
        if name == "ts":
            row += ["-"] * (len(checkpoints) + 1)
        else:
            row += [str(compare.gain(mine, alone, t)) for t in checkpoints]
            worse = [compare.clearly_worse(curves, panel["ts"], t) for t in (checkpoints[1], last)]
            row.append(", ".join(f"{100 * w:.0f} %" for w in worse))
        rows.append(row)
    return table(head, rows)


def shares(matrices: Array) -> str:
    """Return a line with the share of the related agents' `P_N` that goes to related agents."""
    to_related = matrices[:, :NUM_RELATED, :NUM_RELATED].sum(axis=2).mean(axis=1)
    uniform = (NUM_RELATED - 1) / (NUM_AGENTS - 1)
    return (
        f"Learned `P_N` of a related agent after the last iteration gives {shown(to_related, 3)} to the "
        f"other related agents; uniform would be {uniform:.3f}.\n"
    )


def draw_preferences(functions: Array, fields: Array, path: Path) -> None:
    """Draw `P_N`, a row per target, on the functions (mean over the sets) and on landmine (one run)."""
    figure: Any = new_figure(11, 5.0)
    axes: Any = figure.subplots(1, 2)
    titles = ("functions: 0-5 are related, 6-11 not", "landmine: fields 0-14 and 15-28 lie on two terrains")
    for axis, matrix, title in zip(axes, (functions, fields), titles, strict=True):
        image = axis.imshow(matrix, cmap="viridis", vmin=0)
        axis.set_title(f"Learned preferences P_N\n{title}", loc="left", fontsize=10)
        axis.set_xlabel("whose message")
        axis.set_ylabel("target")
        figure.colorbar(image, ax=axis, shrink=0.8, label="probability that the target uses the message")
    axes[0].axhline(NUM_RELATED - 0.5, color="white", linewidth=1)
    axes[0].axvline(NUM_RELATED - 0.5, color="white", linewidth=1)
    if len(fields) > 15:
        axes[1].axhline(14.5, color="white", linewidth=1)
        axes[1].axvline(14.5, color="white", linewidth=1)
    save_figure(figure, path, 120)
