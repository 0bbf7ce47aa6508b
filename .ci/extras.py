"""Install each extra of pyproject.toml alone, in a new environment, and use what it promises.

    python .ci/extras.py [EXTRA ...] [--python python3.11]

"core" is the package without any extra. Without names, all are tried, one after the other. The
environments are made in a temporary directory and removed again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# modules that only extras bring
OPTIONAL = {
    "ray", "dp_accounting", "matplotlib", "ConfigSpace", "pandas", "optuna", "tensorboard", "mlflow", "wandb",
    "onnx", "onnxruntime", "xgboost", "lightgbm", "plotly",
}  # fmt: skip
# every public name, with every extra or without any
NAMES = """\
import importlib, os, pkgutil, pydoc
import fbo_flower
assert "FTS" in dir(fbo_flower.strategies)
for name in ["fbo_flower", *(m.name for m in pkgutil.walk_packages(fbo_flower.__path__, "fbo_flower."))]:
    if not name.endswith("__main__"):
        module = importlib.import_module(name)
        exec(f"from {name} import *", {})
        assert {*getattr(module, "__all__", ())} <= {*dir(module)}, name
        assert name in pydoc.plaintext.document(module)
"""
STUDY = """\
import logging
from fbo_flower import *
logging.getLogger("flwr").setLevel("ERROR")
from fbo_flower.trackers import *
space = SearchSpace({"x": Float(0, 1), "kind": Categorical(["a", "b"])})
def objective(config, data):
    return config["x"]
def run(engine="inline", **more):
    return simulate(objective, space, 2, "fed-ei", 3, engine=engine, **more)
"""
# what needs an extra, and the extra that its error names where it is missing
NEEDS = {
    "run('ray')": "simulation",
    "run('flower')": "simulation",
    "run().plot().savefig('study.png')": "simulation",
    "import fbo_flower.numerics.privacy as p; p.sampled_epsilon(1.0, 0.35, 20, 1e-3)": "dp",
    "import fbo_flower.space.configspace as c; assert c.from_configspace(c.to_configspace(space)).names":
        "configspace",
    "import fbo_flower.space.configspace as c; c.from_configspace(None)": "configspace",
    "assert len(run().to_dataframe()) > 0": "pandas",
    "from fbo_flower.reports.figures import hover_figure; assert hover_figure(run()).to_json()": "notebook",
    "run().to_optuna('sqlite:///study.db')": "optuna",
    "Study.from_optuna('sqlite:///study.db')": "optuna",
    "run(callbacks=[OptunaTracker('sqlite:///live.db')])": "optuna",
    "FederatedSampler('north.db')": "optuna",
    "run(callbacks=[TensorBoardTracker('board')])": "tensorboard",
    "run(callbacks=[MLflowTracker('sqlite:///mlflow.db')])": "mlflow",
    "run(callbacks=[WandbTracker('.')])": "wandb",
}  # fmt: skip
JUDGE = """\
import numpy as np
from fbo_flower.models import pack_exported, predict
x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
y = x[:, 0] - x[:, 1]
def judge(body, name):
    assert predict(pack_exported(body, name, 3), x).shape == (60,)
"""
BODIES = {
    "xgboost": """\
import xgboost
model = xgboost.train({"max_depth": 2}, xgboost.DMatrix(x, y), 5)
judge(model.save_raw("json"), "xgboost-json")
""",
    "lightgbm": """\
import lightgbm
model = lightgbm.train({"verbosity": -1}, lightgbm.Dataset(x, y), 5)
judge(model.model_to_string().encode(), "lightgbm-text")
""",
    "onnx": """\
from onnx import TensorProto, helper, numpy_helper
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])],
    [numpy_helper.from_array(np.ones((3, 1), np.float32), "w")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
judge(model.SerializeToString(), "onnx")
""",
}
ABSENT = f"""\
from fbo_flower.errors import FBOError
for statement, extra in {NEEDS!r}.items():
    try:
        exec(statement)
    except FBOError as error:
        assert f"fbo-flower[{{extra}}]" in str(error), f"{{statement}}: {{error}}"
    else:
        raise AssertionError(f"{{statement}} ran without the extra {{extra}}")
"""
ALONE = {  # what can be done with an extra besides NEEDS: code, or a command that runs in the repository
    "core": f"run().report('report')\nassert Optimizer(space).ask()\n{ABSENT}",
    "optuna": "import optuna_dashboard",
    "docs": ["-m", "mkdocs", "build", "--strict", "--site-dir"],
    "bench": "import bayes_opt, botorch, ot, pytest_benchmark, PyXAB, skopt; run('ray')",
    **{name: JUDGE + body for name, body in BODIES.items()},
}
EXTRAS = ("core", *dict.fromkeys(NEEDS.values()), *BODIES, "docs", "bench")


def program(extra: str) -> str:
    """Return a program that uses every name, and what an extra promises."""
    alone = ALONE.get(extra, "")
    uses = [statement for statement, needed in NEEDS.items() if needed == extra]
    body = "\n".join([*uses, alone if isinstance(alone, str) else "pass"])
    return f"{NAMES}{STUDY}if __name__ == '__main__':\n{textwrap.indent(body, '    ')}\n"


def tried(extra: str, python: str) -> int:
    """Install an extra and use it; return the status of the last command, 0 if all is well."""
    with tempfile.TemporaryDirectory(prefix="fbo-extra-") as folder:
        place = Path(folder)
        subprocess.run([python, "-m", "venv", "venv"], cwd=place, check=True)
        binary = str(place / "venv" / "bin" / "python")
        wanted = str(ROOT) if extra == "core" else f"{ROOT}[{extra}]"
        pip = [binary, "-m", "pip", "--disable-pip-version-check", "-q", "install", wanted]
        if status := subprocess.run(pip, check=False).returncode:
            return status
        (place / "uses.py").write_text(program(extra), encoding="utf-8")
        quiet = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "WANDB_SILENT": "true", "MPLBACKEND": "agg"}
        status = subprocess.run([binary, "uses.py"], cwd=place, env=quiet, check=False).returncode
        command = ALONE.get(extra)
        if not status and isinstance(command, list):
            words = [binary, *command, str(place / "product")]
            status = subprocess.run(words, cwd=ROOT, env=quiet, check=False).returncode
        return status


def main() -> int:
    """Try some extras; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("extras", nargs="*", default=EXTRAS, metavar="EXTRA", help=", ".join(EXTRAS))
    parser.add_argument("--python", default=sys.executable, help="the interpreter to make environments with")
    given = parser.parse_args()
    failed = []
    for extra in given.extras:
        if extra not in EXTRAS:
            parser.error(f"expected extras among {', '.join(EXTRAS)}, got {extra}")
        good = tried(extra, given.python) == 0
        print(f"{extra}: {'installed alone, its promises hold' if good else 'FAILED'}", flush=True)
        failed += [] if good else [extra]
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
