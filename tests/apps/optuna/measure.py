"""Run the scripts of this directory with their own sampler, with `EISampler` and with `FederatedSampler`.

::

    python tests/apps/optuna/measure.py --trials 15 --seeds 3

In each script one line changes: that of the sampler. Three sites have rows of their own. The federation is
`fed-ei` with an app that has the script's parameters.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import optuna
import sklearn.ensemble
import sklearn.model_selection
import sklearn.svm
import sklearn.tree  # noqa: F401  # for the scripts, whose processes are forks of this one

import fbo_flower
from fbo_flower import Asked, Categorical, Float, Int, SearchSpace, client_app
from fbo_flower.clients import asking, ei_sampler, optuna_sampler  # noqa: F401  # before the forks
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space.optuna import from_distributions
from fbo_flower.strategies import FedEI

HERE, SITES = Path(__file__).parent, range(3)
sys.path.insert(0, str(HERE))  # for the scripts' rows.py
OWN = "sampler = optuna.samplers.TPESampler(seed=seed"
SAMPLERS = {
    "own": OWN,
    "EISampler": "sampler = fbo_flower.EISampler(seed=seed",
    "FederatedSampler": 'sampler = fbo_flower.FederatedSampler(f"agent-{site}.db"',
}
SCRIPTS = ["classifiers", "pruning", "two_objectives", "constraints", "ask_and_tell"]
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


def run(script, sampler, arguments, said=None):
    """Run a script with another sampler in this process; say what it prints last, and return its names."""
    text = (HERE / f"{script}.py").read_text()
    assert text.count(OWN) == 1
    sys.argv = ["script.py", *map(str, arguments)]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = {"fbo_flower": fbo_flower, "site": arguments[0], "__name__": "__main__"}
    with (
        contextlib.redirect_stdout(printed := io.StringIO()),
        contextlib.suppress(*[] if said else [ValueError]),
    ):
        exec(compile(text.replace(OWN, SAMPLERS[sampler]), "script.py", "exec"), names)
    if said:
        said.put((arguments[0], float(printed.getvalue().split()[-1])))
    return names


def serve(script, seed, num_trials, directory):
    """Run the federated study, in the search space of a first trial, which is made at one more site."""
    if script == "classifiers":
        space = SearchSpace(BRANCHES)
    else:  # the trial may break the limits, so that there is no best one
        space = from_distributions(run(script, "own", [len(SITES), 0, 1])["study"].trials[0].distributions)
    app = client_app(Asked(), space, seed=seed, disclose="trials", **AIMS.get(script, {"minimize": True}))
    journals = {site: {"journal": f"{directory}/agent-{site}.db"} for site in SITES}
    grid = InProcessGrid(app, len(SITES), node_configs=journals)
    FedEI(num_agents=len(SITES), seed=seed).start(grid, num_rounds=num_trials)


def values_of(script, sampler, seed, num_trials):
    """Return the value that each site's script prints."""
    context = multiprocessing.get_context("fork")  # the libraries are imported already
    said, before, processes = context.Queue(), Path.cwd(), []
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        server = context.Process(target=serve, args=(script, seed, num_trials, directory))
        if sampler == "FederatedSampler":
            server.start()
        for site in SITES:
            given = (script, sampler, [site, len(SITES) * seed + site, num_trials], said)
            processes.append(context.Process(target=run, args=given))
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if server.pid is not None:  # it would wait for trials beyond those of a script, e.g. after failures
            server.terminate()
            server.join()
        os.chdir(before)
    assert all(process.exitcode == 0 for process in processes), f"{script} with {sampler} has failed"
    return list(dict(said.get() for _ in processes).values())


def main():
    """Print a row for each script: mean over sites and seeds, and minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("scripts", nargs="*", default=SCRIPTS)
    given = parser.parse_args()
    asking.POLL_SECONDS = 0.02
    print("| script | lines changed | " + " | ".join(SAMPLERS) + " | minutes |")
    for script in given.scripts:
        began, row = time.monotonic(), []
        for sampler in SAMPLERS:
            found = [
                value for s in range(given.seeds) for value in values_of(script, sampler, s, given.trials)
            ]
            row.append(f"{sum(found) / len(found):.4f}")
        minutes = (time.monotonic() - began) / 60
        print(f"| `{script}.py` | 1 | {' | '.join(row)} | {minutes:.1f} |", flush=True)


if __name__ == "__main__":
    main()
