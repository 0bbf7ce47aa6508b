"""Run the scripts of this directory with their own sampler, with `EISampler` and with `FederatedSampler`.

::

    python tests/apps/optuna/measure.py --trials 15 --seeds 3

In each script one line changes: that of the sampler. Three sites have rows of their own. The federation is
`fed-ei` with an app that has the script's parameters.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightgbm  # noqa: F401  # for the scripts, whose processes are forks of this one
import optuna
import sklearn.ensemble
import sklearn.model_selection
import sklearn.neighbors
import sklearn.pipeline
import sklearn.svm
import sklearn.tree  # noqa: F401  # as above

import fbo_flower
from fbo_flower import Asked, Categorical, Float, Int, SearchSpace, client_app
from fbo_flower.clients import asking, ei_sampler, optuna_sampler  # noqa: F401  # before the forks
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space.optuna import from_distributions
from fbo_flower.strategies import FedEI

HERE, NUM_SITES = Path(__file__).parent, 3
sys.path.insert(0, str(HERE))  # for the scripts' rows.py
OWN = "sampler = optuna.samplers.TPESampler(seed=seed"
SAMPLERS = {
    "own": OWN,
    "EISampler": "sampler = fbo_flower.EISampler(seed=seed",
    "FederatedSampler": 'sampler = fbo_flower.FederatedSampler(f"agent-{site}.db"',
}
SCRIPTS = ["classifiers", "pruning", "two_objectives", "constraints", "ask_and_tell", "enqueue"]
SCRIPTS += ["processes", "steps", "callbacks", "retries"]
SVC, FOREST = {"classifier": "SVC"}, {"classifier": "RandomForest"}
BRANCHES = {  # of `classifiers`; the other scripts suggest all their parameters in each trial
    "classifier": Categorical(["SVC", "RandomForest"]),
    "svc_c": Float(1e-4, 1e4, log=True, active_when=SVC),
    "svc_gamma": Float(1e-6, 1.0, log=True, active_when=SVC),
    "rf_max_depth": Int(2, 32, log=True, active_when=FOREST),
}
AIMS = {  # of scripts that do not return a loss alone
    "two_objectives": {"objectives": {"error": "min", "leaves": "min"}},
    "constraints": {"objectives": {"error": "min"}, "limits": {"leaves": 6.0}},
}
NUM_PROCESSES = {"processes": 2}  # of a site


def text_of(script: str, sampler: str) -> str:
    """Return a script with another sampler; one line has changed."""
    text = (HERE / f"{script}.py").read_text()
    assert text.count(OWN) == 1
    return text.replace(OWN, SAMPLERS[sampler])


def run_script(text: str, arguments: Sequence[int], names: dict[str, Any]) -> float:
    """Run a script with these names in this process; return what it prints last."""
    sys.argv = ["script.py", *map(str, arguments)]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names |= {"fbo_flower": fbo_flower, "site": arguments[0], "__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "script.py", "exec"), names)
    return float(printed.getvalue().split()[-1])


def run_site(text: str, arguments: Sequence[int], said: Any) -> None:
    """Run a script in this process and say what it prints last."""
    said.put((arguments[0], run_script(text, arguments, {})))


def space_of(script: str) -> SearchSpace:
    """Return the search space of a script: that of its first trial, which is made here at one more site."""
    if script == "classifiers":
        return SearchSpace(BRANCHES)
    names: dict[str, Any] = {}
    with contextlib.suppress(ValueError):  # the trial may break the limits, so that there is no best one
        run_script(text_of(script, "own"), [NUM_SITES, 0, 1], names)
    return from_distributions(names["study"].trials[0].distributions)


def serve(script: str, seed: int, num_trials: int, directory: Path) -> None:
    """Run the federated study."""
    given: dict[str, Any] = AIMS.get(script, {"minimize": True})
    app = client_app(Asked(), space_of(script), seed=seed, disclose="trials", **given)
    journals = {site: {"journal": str(directory / f"agent-{site}.db")} for site in range(NUM_SITES)}
    grid = InProcessGrid(app, NUM_SITES, node_configs=journals)
    FedEI(num_agents=NUM_SITES, seed=seed).start(grid, num_rounds=num_trials)


def values_of(script: str, sampler: str, seed: int, num_trials: int) -> list[float]:
    """Return the value that each site's script prints."""
    context = multiprocessing.get_context("fork")  # the libraries are imported already
    said, text, before = context.Queue(), text_of(script, sampler), Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        server = context.Process(target=serve, args=(script, seed, num_trials, Path(directory)))
        if sampler == "FederatedSampler":
            server.start()
        processes = []
        for site in range(NUM_SITES):
            if NUM_PROCESSES.get(script, 1) > 1:  # one process makes the tables, as Optuna asks for
                first = context.Process(
                    target=optuna.storages.RDBStorage, args=(f"sqlite:///study-{site}.db",)
                )
                first.start()
                first.join()
            own = [site, NUM_SITES * seed + site, num_trials]
            for _ in range(NUM_PROCESSES.get(script, 1)):
                processes.append(context.Process(target=run_site, args=(text, own, said)))
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if server.pid is not None:  # it would wait for trials beyond those of a script, e.g. after failures
            server.terminate()
            server.join()
        os.chdir(before)
    assert all(process.exitcode == 0 for process in processes), f"{script} with {sampler} has failed"
    found = dict(said.get() for _ in range(NUM_SITES * NUM_PROCESSES.get(script, 1)))
    return [found[site] for site in range(NUM_SITES)]


def main() -> None:
    """Print a row for each script: mean over sites and seeds, and minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("scripts", nargs="*", default=SCRIPTS)
    given = parser.parse_args()
    asking.POLL_SECONDS = 0.02
    print("| script | lines changed | " + " | ".join(SAMPLERS) + " | minutes |")
    for script in given.scripts:
        began, means = time.monotonic(), []
        for sampler in SAMPLERS:
            values = [values_of(script, sampler, seed, given.trials) for seed in range(given.seeds)]
            means.append(sum(map(sum, values)) / (NUM_SITES * given.seeds))
        row = " | ".join(f"{mean:.4f}" for mean in means)
        minutes = (time.monotonic() - began) / 60
        print(f"| `{script}.py` | 1 | {row} | {minutes:.1f} |", flush=True)


if __name__ == "__main__":
    main()
