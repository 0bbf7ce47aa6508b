"""Run the apps of this directory with their own settings and with tuned ones.

::

    python tests/apps/flower/measure.py --seeds 5

A line that ends in `# tuned` stands only in the tuned version of an app, one that ends in `# own` only in the
original; both count as changed. A seed draws the rows of each client and those of the test, which no client
has. The app is tuned; then the original runs with its own settings and with the tuned ones, from the
beginning and with other random numbers.
"""

import argparse
import contextlib
import importlib.util
import io
import logging
import math
import random
import re
import sys
from pathlib import Path
from unittest import mock

import numpy as np
from flwr.app import Context, RecordDict

import fbo_flower
from fbo_flower.simulation.grids import InProcessGrid

HERE, NUM_CLIENTS = Path(__file__).parent, 6
sys.path.insert(0, str(HERE))
import task  # noqa: E402  # an app's, like Flower's examples have one

# app -> what it shows, and the data and the value on the test rows
APPS = {
    "numpy_fedavg": ("NumPy, `FedAvg`", "digits, accuracy"),
    "sklearn_sgd": ("scikit-learn, run config", "digits, accuracy"),
    "torch_net": ("PyTorch, message and run config", "digits, accuracy"),
    "xgboost_bagging": ("XGBoost, `FedXgbBagging`", "breast cancer, log loss"),
    "xgboost_cyclic": ("XGBoost, `FedXgbCyclic`", "breast cancer, log loss"),
    "legacy_client_fn": ("`client_fn`, `server_fn`", "digits, accuracy"),
    "secagg": ("`SecAggPlusWorkflow`", "digits, accuracy"),
    "central_dp": ("central DP, fixed clipping", "digits, accuracy"),
    "local_dp": ("`LocalDpMod`", "digits, accuracy"),
    "fedprox": ("`FedProx`, a part of the clients", "digits, accuracy"),
    "own_strategy": ("a strategy with state", "digits, accuracy"),
    "own_messages": ("queries, own message types", "breast cancer, accuracy"),
    "run_config": ("run config of client and server", "diabetes, squared error"),
}
NEEDS = {"torch_net": "torch", "xgboost_bagging": "xgboost", "xgboost_cyclic": "xgboost"}


def version_of(app, other):
    """Return an app without the lines that end in `# own` or `# tuned`."""
    lines = (HERE / f"{app}.py").read_text().splitlines()
    return "\n".join(line for line in lines if not line.endswith(f"# {other}"))


def run(text, seed, changed):
    """Run a version of an app with entries of its run config changed, and return what it prints."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # Flower's and scikit-learn's
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    found = {"__name__": "app"}
    with contextlib.redirect_stdout(printed := io.StringIO()):
        exec(compile(text, "app.py", "exec"), found)
        config = {**found["CONFIG"], **changed}
        grid = InProcessGrid(found["client"], NUM_CLIENTS, run_config=config)
        found["server"](grid, Context(1, 0, {}, RecordDict(), config))
    return printed.getvalue().split()


def tune(app, seed, budget):
    """Run the tuned version of an app; return what it found."""
    original, results = fbo_flower.tune_federation, []

    def recording(*args, **given):
        results.append(original(*args, **{**given, "seed": seed, "budget": budget or given["budget"]}))
        return results[-1]

    with mock.patch("fbo_flower.tune_federation", recording):
        run(version_of(app, "own"), seed, {})
    return results[0]


def shown(values):
    """Return a mean and its standard error."""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{np.mean(values):.3f} ± {error:.3f}"


def main():
    """Print a row for each app."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, help="client-rounds; as in the apps if it is left out")
    parser.add_argument("apps", nargs="*", default=list(APPS))
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print("| app | shows | data, value | lines changed | own settings | tuned | difference | client-rounds |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for app in given.apps:
        if app in NEEDS and importlib.util.find_spec(NEEDS[app]) is None:
            print(f"{app}.py: skipped, it needs {NEEDS[app]}", file=sys.stderr)
            continue
        own, tuned, spent = [], [], []
        for task.SEED in range(given.seeds):
            result = tune(app, task.SEED, given.budget)
            assert not result.without_effect, f"{app}: {result.without_effect} had no effect"
            spent.append(result.client_rounds)
            for values, config in ((own, {}), (tuned, result.best_config)):
                values.append(float(run(version_of(app, "tuned"), 1000 + task.SEED, config)[-1]))
        changed = len(re.findall("# (?:own|tuned)$", (HERE / f"{app}.py").read_text(), re.MULTILINE))
        difference = [two - one for one, two in zip(own, tuned, strict=True)]
        means = map(shown, (own, tuned, difference))
        cells = [f"`{app}.py`", *APPS[app], changed, *means, round(np.mean(spent))]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
