"""Find the most accurate network that each of four devices can afford, together and without pooling data."""

import sys
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from fbo_flower import Float, Int, SearchSpace
from fbo_flower.simulation import Agents, Keep, simulate

# multiplications that a device can spend on one prediction
BUDGETS = {"sensor": 800, "watch": 2_000, "phone": 8_000, "gateway": 30_000}


def data():
    """Return the images of each device, of which some write certain digits more often."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    owners = np.array([rng.choice(4, p=np.roll([0.4, 0.3, 0.2, 0.1], digit)) for digit in y])
    return {name: (x[owners == n] / 16, y[owners == n]) for n, name in enumerate(BUDGETS)}


def score(config, images):
    """Train on two thirds of a device's images; operations are counted, so they are the same everywhere."""
    x, x_test, y, y_test = train_test_split(*images, test_size=1 / 3, random_state=0)
    network = MLPClassifier(
        (config["width"],) * config["layers"],
        learning_rate_init=config["rate"], alpha=config["decay"], max_iter=30, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(x, y)
    operations = sum(weights.size for weights in network.coefs_)
    return {"accuracy": network.score(x_test, y_test), "operations": operations}


space = SearchSpace(
    {
        "width": Int(4, 128, log=True),
        "layers": Int(1, 3),
        "rate": Float(1e-4, 0.1, log=True),
        "decay": Float(1e-6, 1.0, log=True),
    }
)

if __name__ == "__main__":
    num_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    agents = Agents(data(), limits={name: {"operations": budget} for name, budget in BUDGETS.items()})
    study = simulate(
        score, space, agents, num_rounds=num_rounds, engine="inline", keep=Keep(out="fits", overwrite=True),
        objectives={"accuracy": "max"}, limits={"operations": max(BUDGETS.values())},
    )  # fmt: skip
    study.plot().savefig("fits/report.png")
    for name in BUDGETS:
        best = study.best.get(name)
        print(f"{name}: {best['outputs']} with {best['config']}" if best else f"{name}: no network fits")
