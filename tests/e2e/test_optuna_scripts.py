"""Optuna scripts of three sites tune together, one line changed in each; and Flower apps of all shapes."""

import importlib.util
import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from flower_runtime import Deployment, nodes
from processes import ROOT, python
from waiting import LIMIT

from fbo_flower import Float, Int, SearchSpace, client_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FedEI
from fbo_flower.study import Study

optuna = pytest.importorskip("optuna")
pytestmark = [pytest.mark.e2e, pytest.mark.deployment]
APP = Path(__file__).parent / "asked_app"
NUM_ROUNDS = 4
BEFORE = "sampler = optuna.samplers.TPESampler(seed=1)"
AFTER = "sampler = fbo_flower.FederatedSampler(f'agent-{site}.db')"
SCRIPT = f"""
import math, signal, sys
import fbo_flower, optuna

site, num_trials, hangs_in = map(int, sys.argv[1:])

def objective(trial):
    rate, depth = trial.suggest_float("rate", 1e-4, 1.0, log=True), trial.suggest_int("depth", 1, 8)
    with open(f"traces-{{site}}", "a") as traces:
        print(trial.number, rate, depth, file=traces)
    if trial.number == hangs_in:
        signal.pause()
    return (math.log10(rate) + 2 - 0.2 * site) ** 2 + 0.1 * abs(depth - 4)

{BEFORE}
study = optuna.create_study(
    storage=f"sqlite:///optuna-{{site}}.db", study_name="mine", load_if_exists=True,
    direction="minimize", sampler=sampler, pruner=optuna.pruners.MedianPruner(),
)
done = len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))
study.optimize(objective, n_trials=num_trials - done)
"""


@pytest.fixture
def deployment(tmp_path):
    with Deployment(tmp_path / "flower") as deployment:
        deployment.start_superlink()
        for number, own in enumerate(nodes(3)):
            journal = {"journal": str(deployment.home / f"agent-{number}.db")}
            deployment.start_supernode(number, own | journal)
        yield deployment


def start_script(deployment, site, num_trials, hangs_in=-1):
    command = [sys.executable, "site.py", str(site), str(num_trials), str(hangs_in)]
    log = (deployment.home / f"script-{site}.log").open("ab")
    return subprocess.Popen(command, cwd=deployment.home, env=deployment.environment, stdout=log, stderr=log)


def in_process():
    """The same study with functions, undisturbed."""

    def objective(config, context):
        distance = math.log10(config["rate"]) + 2 - 0.2 * context.partition
        return distance**2 + 0.1 * abs(config["depth"] - 4)

    space = SearchSpace({"rate": Float(1e-4, 1.0, log=True), "depth": Int(1, 8)})
    app = client_app(objective, space, seed=5, minimize=True, disclose="trials")
    return FedEI(num_agents=3, seed=5).start(InProcessGrid(app, 3), num_rounds=NUM_ROUNDS).study


def test_three_scripts_of_which_one_is_killed_have_the_trials_of_one_study(deployment, tmp_path):
    expected = in_process().trials
    number = len(expected) // 3
    assert [len(expected.where(agent=str(site))) for site in range(3)] == [number] * 3
    assert SCRIPT.count(BEFORE) == 1
    (deployment.home / "site.py").write_text(SCRIPT.replace(BEFORE, AFTER))
    out = tmp_path / "out"
    config = f"out={json.dumps(str(out))} num-rounds={NUM_ROUNDS}"
    run_id = json.loads(deployment.flwr("run", str(APP), "tests", "-c", config, "--format", "json"))["run-id"]
    scripts = [start_script(deployment, site, number, 1 if site == 1 else -1) for site in range(3)]
    traces = deployment.home / "traces-1"
    begun = lambda: traces.exists() and len(traces.read_text().splitlines()) == 2  # noqa: E731
    deployment.wait_until(begun, "the second evaluation", 2 * LIMIT)
    scripts[1].send_signal(signal.SIGKILL)
    scripts[1].wait(LIMIT)
    scripts[1] = start_script(deployment, 1, number)
    for site, script in enumerate(scripts):
        log = deployment.home / f"script-{site}.log"
        assert script.wait(2 * LIMIT) == 0, log.read_text() + deployment.log(f"node-{site}")

    def ended():
        listed = deployment.flwr("list", "tests", "--run-id", str(run_id), "--format", "json")
        return json.loads(listed)["runs"][0]["status"].startswith("finished")

    deployment.wait_until(ended, "the run to end", 2 * LIMIT)
    study = Study.load(out)
    assert study.trials == expected
    for site in range(3):
        own = study.trials.where(agent=str(site))
        found = optuna.load_study(study_name="mine", storage=f"sqlite:///{deployment.home}/optuna-{site}.db")
        complete = [trial for trial in found.trials if trial.state.name == "COMPLETE"]
        assert [trial.params for trial in complete] == list(own["config"])
        assert [trial.value for trial in complete] == own["value"].tolist()
        assert len((deployment.home / f"traces-{site}").read_text().splitlines()) == number + (site == 1)


APPS = ROOT / "tests" / "apps"


def rows_of(measure, *given, **environment):
    """Run a measurement of apps and return the cells of its table."""
    done = python("-W", "ignore", measure, "--seeds", "1", *given, seconds=20 * LIMIT, **environment)
    return [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| `")]


def test_scripts_of_all_kinds_run_with_one_changed_line():
    """Branches, pruning, constraints, ask and tell: `tests/apps/optuna`."""
    found = rows_of(APPS / "optuna" / "measure.py", "--trials", "6")
    assert len(found) == len({path.stem for path in (APPS / "optuna").glob("*.py")} - {"measure", "rows"})


def test_flower_apps_of_all_shapes_are_tuned_with_ten_changed_lines():
    """The runner raises if a parameter has no effect, or if an app fails before, in or after its tuning."""
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = rows_of(APPS / "flower" / "measure.py", "--budget", "96", **single)
    missing = [not importlib.util.find_spec(name) for name in ("torch", "xgboost", "xgboost")]
    assert len(found) == 13 - sum(missing)
    for name, _, _, changed, own, tuned, _, client_rounds in found:
        assert int(changed) <= 10, name
        assert own != tuned, name
        assert 96 <= int(client_rounds) < 96 + 6, name
