"""Golden trials: every trial of fixed studies, so that a rebuild can show that it changes none.

`make golden` writes `tests/golden/trials.json.xz` anew; `make golden ONLY="fts ts"` only these studies.
`tests/test_golden_trials.py` compares. Values are equal bit for bit on one type of processor and one set of
numerical libraries; `arithmetic()` says whether these are the same.
"""

import hashlib
import json
import logging
import lzma
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grouped import grouped
from scipy import linalg, special

from fbo_flower import Categorical, Float, SearchSpace
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation import simulate
from fbo_flower.simulation.durations import log_normal

PATH = Path(__file__).parent.parent / "golden" / "trials.json.xz"
SEEDS = (3, 4)
# parameters of a test: the first seed always, the other in `make test`
BY_SEED = [pytest.param(seed, marks=pytest.mark.slow if i else ()) for i, seed in enumerate(SEEDS)]
MIXED = SearchSpace({"x": Float(0, 1), "y": Float(1e-3, 1, log=True), "k": Categorical(["a", "b"])})
SQUARE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})


def loss(config, centre):
    """Return a loss over `MIXED` whose optimum differs from agent to agent."""
    penalty = 0.1 if config["k"] == "b" else 0.0
    return (config["x"] - centre) ** 2 + (config["y"] - 0.3) ** 2 + penalty


def score(config, centre):
    """Return a score over `SQUARE`."""
    return 1 - (config["x"] - centre) ** 2 - (config["y"] - 0.4) ** 2


def learning(config, centre, context):
    """Return a score that is learnt in six steps, and may be stopped after each."""
    value = 0.0
    for step in range(6):
        value = score(config, centre) * (1 - 0.5 ** (step + 1))
        context.report(step, value)
        if context.should_stop():
            return None
    return value


@dataclass(frozen=True)
class Golden:
    """One study: an algorithm with options on an objective, or on a problem by name."""

    algorithm: str
    rounds: int | None
    options: Mapping[str, object] = field(default_factory=dict)
    agents: int = 5
    objective: Callable[..., Any] = loss
    space: SearchSpace = MIXED
    problem: str = ""
    more: Mapping[str, object] = field(default_factory=dict)  # further arguments of `simulate`

    def trials(self, seed):
        """Return agent, trial, value and configuration of every trial, in order of agents and trials."""
        given: dict[str, Any] = {"algorithm": self.algorithm, "options": self.options, **self.more}
        given |= {"num_rounds": self.rounds, "seed": seed, "engine": "inline"}
        if self.problem:
            study = simulate(self.problem, **grouped(**given))
        else:
            centres = [0.2 + 0.6 * i / self.agents for i in range(self.agents)]
            given |= {"agents": centres, "minimize": self.objective is loss}
            study = simulate(self.objective, self.space, **grouped(**given))
        rows = [
            [row["agent"], row["trial"], row["value"], list(row["config"].values())] for row in study.trials
        ]
        return sorted(rows, key=lambda row: (row[0], row[1]))


def _square(algorithm, rounds, options, agents=4, **more):
    return Golden(algorithm, rounds, options, agents, score, SQUARE, more=more)


RFMS = {"num_initial": 5, "num_trials": 8}
STUDIES: dict[str, Golden] = {
    "random": Golden("random", 6),
    "ts": Golden("ts", 8),
    "ei": Golden("ei", 6),
    "fed-ei": Golden("fed-ei", 6),
    "fed-ei in the clear": Golden("fed-ei", 6, {"secure_sums": 0}),
    "fts": Golden("fts", 10),
    "fts portfolio": Golden("fts", 10, {"advice": "portfolio"}),
    "fts mixture": Golden("fts", 8, {"advice": "mixture"}),
    "fts federated": Golden("fts", 8, {"lengthscale": "federated"}),
    "fts secure": Golden("fts", 8, {"lengthscale": "federated", "secure_sums": 3}),
    "fts three a round": Golden("fts", 5, {"trials_per_round": 3}),
    "ei three a round": Golden("ei", 4, {"trials_per_round": 3}),
    "dp-fts": Golden("dp-fts", 6, agents=6),
    "dp-fts local": Golden("dp-fts", 6, {"noise": "local"}, agents=6),
    "dp-fts secure": Golden("dp-fts", 6, {"secure_sums": 3}, agents=6),
    "rgpe": Golden("rgpe", 5, agents=4),
    "taf": Golden("taf", 5, agents=4),
    "co-kg": Golden("co-kg", 5, agents=4),
    "co-kg secure": Golden("co-kg", 5, {"secure_sums": 3}, agents=4),
    "pf-pne": _square("pf-pne", 8, {"budget": 100}),
    "pf-pne secure": _square("pf-pne", 8, {"budget": 100, "secure_sums": 3}),
    "pf-pne racing": _square("pf-pne", 6, {"budget": 100, "variant": "racing"}),
    "pf-pne gp": _square("pf-pne", 5, {"budget": 20, "variant": "gp"}),
    "fed-pne": _square("fed-pne", 6, {"budget": 100}),
    "local-pne": _square("local-pne", 4, {"budget": 100}),
    "hct": _square("hct", 4, {"budget": 100}),
    "fed1-ucb": _square("fed1-ucb", 5, {"budget": 100}),
    "fn-ucb": _square("fn-ucb", 3, {"budget": 12}, agents=3),
    "flora": Golden("flora", 5, agents=4),
    "fmtbo": Golden("fmtbo", 5, agents=4),
    "consensus": Golden("consensus", 5, agents=4),
    "rfms fmo": Golden("rfms", None, {"method": "fmo", **RFMS}, problem="breast-cancer-5sites"),
    "rfms ehvi": Golden("rfms", None, {"method": "ehvi", **RFMS}, problem="breast-cancer-5sites"),
    "rfms rand_mo": Golden("rfms", None, {"method": "rand_mo", **RFMS}, problem="breast-cancer-5sites"),
    "rfms lso": Golden("rfms", None, {"method": "lso", **RFMS}, problem="breast-cancer-5sites"),
    "fts without a barrier": Golden("fts", 6, more={"mode": "async", "durations": log_normal(1.0, 0.5)}),
    "fed-ei without a barrier": Golden(
        "fed-ei", 6, {"secure_sums": 0}, more={"mode": "async", "durations": log_normal(1.0, 0.5)}
    ),
    "ei with pruning": Golden("ei", 8, objective=learning, space=SQUARE, more={"pruning": "median"}),
    "fts with pooled pruning": Golden(
        "fts", 8, objective=learning, space=SQUARE, more={"pruning": "federated"}
    ),
}


PEERS = ("flora", "fmtbo", "consensus")  # tested in studies/, where these algorithms are


def arithmetic():
    """Return a digest of some floating-point results, which differ with processor and libraries."""
    rng = np.random.default_rng(0)
    with single_thread():
        a = rng.standard_normal((60, 60))
        b = a @ a.T + 60 * np.eye(60)
        parts = [
            np.linalg.cholesky(b),
            np.linalg.eigh(b)[1],
            linalg.solve_triangular(np.tril(b), a),
            np.exp(a),
        ]
        parts += [np.log1p(np.abs(a)), np.sin(a), special.ndtr(a), special.log_ndtr(a), a @ a[:, 0]]
        single = a.astype(np.float32)  # searches are in single precision
        parts += [single @ single.T, single @ single[:, 0], np.exp(single), np.cos(single)]
        parts.append(np.matmul(single.reshape(6, 10, 60), single.T))
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def stored():
    """Return what the file holds: `arithmetic`, and `trials` by study and seed."""
    found: dict[str, Any] = json.loads(lzma.decompress(PATH.read_bytes()))
    return found


@cache
def comparable():
    """Return the stored trials by study and seed; skip the test where arithmetic gives other digits."""
    found = stored()
    if found["arithmetic"] != arithmetic():
        pytest.skip("golden trials were stored on another processor, or with other numerical libraries")
    trials: dict[str, Any] = found["trials"]
    return trials


def check(name, seed):
    """Compare the trials of a study with the stored ones."""
    expected = comparable()[name][str(seed)]
    trials = json.loads(json.dumps(STUDIES[name].trials(seed)))
    assert json.dumps(trials) == json.dumps(expected)  # as text, so that NaN equals NaN


def main(names):
    """Compute the named studies, or all, and write the file."""
    logging.disable(logging.CRITICAL)
    import_module("studies")  # the peers
    trials = stored()["trials"] if names else {}
    for name in names or STUDIES:
        trials[name] = {str(seed): STUDIES[name].trials(seed) for seed in SEEDS}
        print(f"{name}: {sum(map(len, trials[name].values()))} trials", flush=True)
    text = json.dumps({"arithmetic": arithmetic(), "trials": trials})
    PATH.write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{PATH.name}: {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
