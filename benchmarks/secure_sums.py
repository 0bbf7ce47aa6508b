"""Measure what secure sums cost an agent and the server, and whole studies with and without them.

OPENBLAS_NUM_THREADS=1 python benchmarks/secure_sums.py
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import numpy as np

from fbo_flower.secure import fixed_point, keys, rounds
from fbo_flower.simulation.runner import simulate
from fbo_flower.study import Study

LEAST, LABEL = 3, b"benchmark 1"
STUDIES: list[tuple[str, str, int, int | None, Mapping[str, object]]] = [
    ("fed-pne", "himmelblau", 6, None, {"budget": 400}),
    ("fed-pne", "himmelblau", 30, None, {"budget": 400}),
    ("dp-fts", "gp-samples", 10, 20, {"sampling_rate": 0.8}),
    ("dp-fts", "gp-samples", 30, 20, {"sampling_rate": 0.8}),
    ("co-kg", "f1", 6, 10, {}),
]


def one_sum(num_agents: int, size: int) -> tuple[float, float, int, int]:
    """Return CPU ms of an agent, CPU ms of the server per agent, and an agent's bytes up and down."""
    names = [str(i) for i in range(num_agents)]
    private = {name: keys.new_private_key() for name in names}
    public = {name: keys.public_key(key) for name, key in private.items()}
    around = rounds.neighbours(names, rounds.degree(LEAST))
    words = fixed_point.encode(np.random.default_rng(0).standard_normal(size), 1e6)
    begin = time.process_time()
    sent = {a: rounds.mask(words, private[a], [public[o] for o in around[a]], LABEL) for a in names}
    boxes = {a: np.array([sent[o].boxes[around[o].index(a)] for o in around[a]]) for a in names}
    revealed = {}
    for a in names:
        others = [public[o] for o in around[a]]
        parts = rounds.reveal(private[a], others, [True] * len(others), boxes[a], LABEL)
        revealed[a] = dict(zip(around[a], parts, strict=True))
    agent = 1e3 * (time.process_time() - begin) / num_agents
    begin = time.process_time()
    total = rounds.unmask(sent, public, around, revealed)
    server = 1e3 * (time.process_time() - begin) / num_agents
    assert total is not None
    up = sent["0"].words.nbytes + sent["0"].boxes.nbytes + 2 * sum(map(len, revealed["0"].values()))
    return agent, server, up, boxes["0"].nbytes + len(around["0"]) * keys.PUBLIC_BYTES


def row(study: Study) -> tuple[int, float, float, float, float]:
    """Return rounds, seconds, and bytes per agent and round, down and up."""
    agents = int(study.settings["runs"][0]["num_agents"])
    turns = agents * len(study.rounds)
    down, up = (float(study.rounds[f"bytes_{way}"].sum()) / turns for way in ("down", "up"))
    return len(study.rounds), float(study.rounds["seconds"].sum()), down, up, study.trials["value"].sum()


def main() -> None:
    """Print two tables."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"One sum of at least {LEAST}, every agent has at most {rounds.degree(LEAST)} neighbours.\n")
    print("| agents | numbers | agent, ms | server per agent, ms | bytes up | bytes down |")
    print("|---:|---:|---:|---:|---:|---:|")
    for num_agents, size in ((4, 100), (10, 100), (100, 100), (1000, 100), (100, 10_000)):
        agent, server, up, down = one_sum(num_agents, size)
        print(f"| {num_agents} | {size} | {agent:.1f} | {server:.1f} | {up} | {down} |", flush=True)
    print("\nBytes are down and up, per agent and round.\n")
    print("| study | agents | rounds | s per round | with secure sums | bytes | with secure sums |")
    print("|---|---:|---:|---:|---:|---|---|")
    for algorithm, problem, agents, num_rounds, options in STUDIES:
        plain, secure = (
            row(
                simulate(problem, algorithm, agents, num_rounds, engine="inline", options={**options, **more})
            )
            for more in ({}, {"secure_sums": LEAST})
        )
        assert abs(plain[4] - secure[4]) < 1e-6 * abs(plain[4]), "the same decisions"
        print(
            f"| {algorithm}, {problem} | {agents} | {plain[0]} | {plain[1] / plain[0]:.3f} | "
            f"{secure[1] / secure[0]:.3f} | {plain[2]:.0f} / {plain[3]:.0f} | "
            f"{secure[2]:.0f} / {secure[3]:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
