"""Measure what secure sums cost an agent and the server, and whole studies with and without them.

OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.secure_sums [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from fbo_flower.algorithms.messages import SUM
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.secure import fixed_point, keys, rounds
from fbo_flower.secure import member as secure_member
from fbo_flower.secure.member import Member
from fbo_flower.study import Study
from studies.benchmarks.bench import options, say
from studies.experiment import head, run, traffic

LEAST = 3
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
    agents = {n: Member(keys.new_private_key(), keys.new_identity(), b"study") for n in names}
    others = {n: [o for o in names if o != n] for n in names}
    cards = {n: agents[n].card() for n in names}
    words = fixed_point.encode(np.random.default_rng(0).standard_normal(size), 1e6)
    needed = keys.threshold(num_agents, LEAST) - 1
    tasks = {}

    def task(phase: Phase, **arrays: np.ndarray) -> Task:
        named = {f"secure.{name}": array for name, array in arrays.items()}
        return Task(phase, 1, 0, 0, named, {SUM: 1})

    begin = time.process_time()
    sent, signatures, revealed = {}, {}, {}
    for n in names:  # first exchange
        rows = secure_member.to_rows([cards[o] for o in others[n]], keys.CARD_BYTES)
        asked = task(Phase.TRAIN, members=rows)
        agents[n] = secure_member.accept_masking(asked, agents[n], LEAST, "work", b"", repeats=False)
        arrays = secure_member.masked_arrays(words, agents[n], LEAST)
        sent[n] = rounds.Masked(
            arrays["secure.words"].view(np.uint64),
            arrays["secure.boxes"].astype(np.uint8),
            arrays["secure.commitment"].tobytes(),
        )
    everybody = np.ones(num_agents - 1, dtype=np.uint8)
    for n in names:  # second exchange
        asked = task(Phase.EVALUATE, there=everybody)
        agents[n] = secure_member.accept_signing(asked, agents[n], LEAST, repeats=False)
        signatures[n] = bytes.fromhex(secure_member.signature(agents[n]))
    for n in names:
        boxes = np.array([sent[o].boxes[others[o].index(n)] for o in others[n]])
        signed = secure_member.to_rows([signatures[o] for o in others[n]], keys.SIGNATURE_BYTES)
        tasks[n] = task(Phase.REVEAL, boxes=boxes, signatures=signed)
    for n in names:  # third exchange
        agents[n] = secure_member.accept_reveal(tasks[n], agents[n], LEAST)
        revealed[n] = secure_member.revealed(tasks[n], agents[n])
    agent = 1e3 * (time.process_time() - begin) / num_agents
    begin = time.process_time()
    public = {n: keys.agreement_of(card) for n, card in cards.items()}
    statement = agents[names[0]].statement()
    assert all(keys.is_signed(keys.identity_of(cards[n]), statement, signatures[n]) for n in names)
    parts = {n: map(bytes.fromhex, text.split(",")) for n, text in revealed.items()}
    found = {n: dict(zip(others[n], shares, strict=True)) for n, shares in parts.items()}
    total = rounds.unmask(sent, public, found, needed)
    server = 1e3 * (time.process_time() - begin) / num_agents
    assert total is not None
    up = sent["0"].words.nbytes + sent["0"].boxes.nbytes + keys.SEED_BYTES
    up += 2 * keys.SIGNATURE_BYTES + len(revealed["0"])
    down = (num_agents - 1) * (keys.CARD_BYTES + 1 + rounds.BOX_BYTES + keys.SIGNATURE_BYTES)
    return agent, server, up, down


def figures(study: Study) -> tuple[int, float, float, float, float]:
    """Return rounds, seconds, bytes per agent and round, down and up, and the sum of all values."""
    number = len(study.rounds)
    down, up = traffic(study) / number
    return number, float(study.rounds["seconds"].sum()), down, up, study.trials["value"].sum()


def main() -> None:
    """Print two tables; quick: small groups and one study."""
    quick = options(__doc__, quick=False).quick
    print(f"One group, sums of at least {LEAST}; a group has at most {keys.largest_group(LEAST)}.\n")
    print(head(["group", "numbers", "agent, ms", "server per agent, ms", "bytes up", "bytes down"]))
    for num_agents, size in ((4, 100), (6, 100), (10, 100), (12, 100), (12, 10_000))[: 2 if quick else 5]:
        agent, server, up, down = one_sum(num_agents, size)
        say(num_agents, size, f"{agent:.1f}", f"{server:.1f}", up, down)
    print("\nBytes are down and up, per agent and round.\n")
    columns = ["s per round", "with secure sums", "bytes", "with secure sums"]
    print(head(["study", "agents", "rounds", *columns]))
    for algorithm, problem, agents, num_rounds, chosen in STUDIES[: 1 if quick else 5]:
        plain, secure = (
            figures(run(problem, algorithm, {**chosen, **more}, num_rounds, agents=agents))
            for more in ({}, {"secure_sums": LEAST})
        )
        assert abs(plain[4] - secure[4]) < 1e-6 * abs(plain[4]), "the same decisions"
        each = [f"{took / plain[0]:.3f}" for took in (plain[1], secure[1])]
        sent = [f"{down:.0f} / {up:.0f}" for _, _, down, up, _ in (plain, secure)]
        say(f"{algorithm}, {problem}", agents, plain[0], *each, *sent)


if __name__ == "__main__":
    main()
