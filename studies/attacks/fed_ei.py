"""What `fed-ei` gives away: to a server that reads all totals, to one that lies, and to members that lie.

The server sees every row and the names of the agents in each sum. It does not see whose a row is, so it can
guess: rows of one agent look alike. `linking` measures how far that leads. `fed_ei_server` lets the server
lie. `filled` lets a member lie: what it writes into the table must not become a row that nobody wrote.

`first_sum` shows why agents send rows and not sums of features: such sums hide who, not what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from scipy.optimize import least_squares, linear_sum_assignment, nnls

from fbo_flower.algorithms import FedEI
from fbo_flower.algorithms.ei.pool import Part, num_columns, num_sums
from fbo_flower.algorithms.messages import Content, Replies, summable
from fbo_flower.algorithms.records import AgentState, Array, Federation, Phase, Task
from fbo_flower.algorithms.requests import Rng
from fbo_flower.numerics import slots
from fbo_flower.numerics.surrogates import rff, trend
from fbo_flower.simulation.problems import Problem
from studies.attacks import fed_ei_server
from studies.attacks.fed_ei_server import HONEST, NUM_AGENTS, SAME, SHARING, HostileServer, Total
from studies.attacks.harness import SQUARE, AttackResult, compared, overhear
from studies.papers.ei.problems import PROBLEMS

LINKED = ("Styblinski-5", "draws, .64 in common")
NUM_ROUNDS, FIRST_ROUND = 16, 6  # rounds, the first one whose rows are linked
WEIGHTS = {"points": 0.0, "points and values": 0.1}  # of squared differences of values
RESTARTS = 10


def attack(seed: int) -> Iterator[AttackResult]:
    """Link rows, let the server and members lie, and read the points of one sum of features."""
    for label in LINKED:
        yield linking(PROBLEMS[label](NUM_AGENTS, seed), f"fed-ei, {label}", seed)
    yield from fed_ei_server.attack(seed)
    for what in FILLS:
        yield filled(PROBLEMS[LINKED[0]](NUM_AGENTS, seed), what, seed)
    yield from first_sum(seed)


# -- linking -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owned:
    """The rows `(m, D + 1)` of one sum and, as the truth, their owners `(m,)`."""

    rows: Array
    owners: Sequence[str]


def linking(problem: Problem, what: str, seed: int) -> AttackResult:
    """Link each row to one of the sum before; of two kinds of links, report the better."""
    sums = watched(problem, seed, NUM_ROUNDS)
    linked = [sums[number] for number in range(FIRST_ROUND, NUM_ROUNDS) if number in sums]
    found = {by: follow(linked, weight) for by, weight in WEIGHTS.items()}
    by = max(found, key=lambda name: float(np.mean(found[name])))
    return AttackResult(
        f"{what}: links by {by} to the sum before", float(np.mean(found[by])), 1.0 / problem.num_agents,
        "share that is right", len(found[by]), "any agent",
    )  # fmt: skip


def watched(problem: Problem, seed: int, num_rounds: int) -> dict[int, Owned]:
    """Run a study with secure sums; return the rows of each round's sum."""
    heard = overhear(problem, FedEI, num_rounds, seed)
    totals = [(one.round, Total(tuple(a), sums)) for one in heard.kept for a, sums in one.replies.groups]
    trials = heard.study.trials
    points = np.array([problem.space.encode(config) for config in trials["config"]])
    found: dict[int, Owned] = {}
    for number, total in totals:
        owners = []
        for row in total.rows:  # other trials may repeat its point
            same = np.abs(points - row[:-1]).max(axis=1) < SAME
            owners.append(trials["agent"][int(np.flatnonzero(same & (trials["round"] <= number))[-1])])
        before = found.get(number, Owned(total.rows[:0], []))
        found[number] = Owned(np.concatenate([before.rows, total.rows]), [*before.owners, *owners])
    return found


def follow(sums: Sequence[Owned], weight: float) -> list[bool]:
    """Return for each link whether both rows have one owner; a row that finds none waits for the next sum.

    `weight` is that of squared differences of values, beside squared distances of points.
    """
    scale = np.sqrt(np.append(np.ones(sums[0].rows.shape[1] - 1), weight))
    ends = [(row * scale, owner) for row, owner in zip(sums[0].rows, sums[0].owners, strict=True)]
    links: list[bool] = []
    for owned in sums[1:]:
        rows = owned.rows * scale
        distances = ((np.array([row for row, _ in ends])[:, None] - rows) ** 2).sum(axis=2)
        taken = [(int(i), int(j)) for i, j in zip(*linear_sum_assignment(distances), strict=True)]
        links += [ends[chain][1] == owned.owners[row] for chain, row in taken]
        for chain, row in taken:
            ends[chain] = rows[row], owned.owners[row]
        new = sorted(set(range(len(rows))) - {row for _, row in taken})
        ends += [(rows[row], owned.owners[row]) for row in new]
    return links


# -- members that lie ----------------------------------------------------------------------------------

# what is written into each slot: every coordinate, and the last entry
FILLS: Mapping[str, tuple[float, float]] = {
    "counts of 7": (0.0, 7 * slots.MARK),
    "coordinates of 3": (3.0, slots.MARK + 1.0),
    "huge values": (1e12, 1e12),
    "well-formed rows": (0.3, slots.MARK + trend.LARGEST),
    "offsets of .1 without a count": (0.1, 0.1),
}


@dataclass(frozen=True, kw_only=True)
class Unbounded(Part):
    """What a member that lies may add to a sum."""

    level: Annotated[Array | None, summable(num_sums, bound=1e15, repeats=False)] = None
    table: Annotated[Array | None, summable("value(slots)", num_columns, bound=1e15, repeats=False)] = None


@dataclass(frozen=True, kw_only=True)
class Filler(FedEI):
    """An agent that writes the same into every slot of its table."""

    name: ClassVar[str] = "fed-ei-filler"
    report_content: ClassVar[type[Content]] = Unbounded

    fills: ClassVar[str]  # no option: the members of a sum compare these

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        coordinate, last = FILLS[self.fills]
        if "slots" not in task.values:
            return Unbounded()
        table = np.full((int(task.values["slots"]), agent_state.space.dimension + 1), coordinate)
        table[:, -1] = last
        return Unbounded(table=table, level=np.zeros(trend.NUM_SUMS))


def filled(problem: Problem, what: str, seed: int) -> AttackResult:
    """Sum tables of which the last agent fills its own; count the false rows that an honest server has."""
    liar = str(problem.num_agents - 1)
    filler = type("Filler", (Filler,), {"fills": what})(secure_sums=HONEST.secure_sums)
    agents = HostileServer(problem, seed, others={liar: filler})
    small = slots.num_slots(2 * problem.num_agents)
    total = agents.add_up(agents.tasks(replace(SHARING, slots=small)))
    before = HONEST.init(Federation(problem.space, tuple(agents.points)), np.random.default_rng(seed))
    groups = None if total is None else [(total.agents, total.sums)]
    state = HONEST.tell(before, Phase.TRAIN, Replies({}, Part, groups))
    honest = [agent for agent in agents.points if agent != liar]
    false = sum(not any(agents.has_made(agent, row) for agent in honest) for row in state.rows)
    told = "the log names the sum" if HONEST.progress_lines(state, before) else "no line in the log"
    return AttackResult(
        f"fed-ei, a member that fills its table with {what} ({told}): rows that nobody evaluated",
        false, 0.0, "rows", len(state.rows), "an honest member",
    )  # fmt: skip


# -- one sum of features -------------------------------------------------------------------------------


def first_sum(seed: int, num_agents: int = 16, num_features: int = 100) -> Iterator[AttackResult]:
    """Look for the points and values of agents with an observation each, from one sum of features.

    The sum is `Phi^T Phi` and `Phi^T y` over agents. A fit with weights of 0 or more on a mesh tells where
    points are; least squares moves them until the sum is met.
    """
    draws = np.random.default_rng(seed)
    features = rff.draw_features(num_features, 0.3 * np.sqrt(2.0), 2, draws)
    upper = np.triu_indices(num_features)
    points, values = draws.random((num_agents, 2)), draws.standard_normal(num_agents)
    axis = np.linspace(0.0, 1.0, 41)
    mesh = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def products(x: Array) -> Array:  # a row per point, the upper triangle of phi phi^T
        phi = features(x)
        return np.asarray(phi[:, upper[0]] * phi[:, upper[1]])

    on_mesh = products(mesh)
    _, sizes, rows = np.linalg.svd(on_mesh, full_matrices=False)
    base = rows[sizes > 1e-9 * sizes[0]]
    total = base @ products(points).sum(axis=0)
    left, start = nnls(base @ on_mesh.T, total)[0], list[Array]()
    while len(start) < num_agents:
        near = np.linalg.norm(mesh - mesh[left.argmax()], axis=1) < 0.06
        mass = left[near].sum()
        middle = left[near] @ mesh[near] / mass if mass > 0.3 else draws.random(2)
        start += max(1, round(mass)) * [middle]
        left[near] = 0.0

    def misses(x: Array) -> Array:
        return np.asarray(base @ products(x.reshape(-1, 2)).sum(axis=0) - total)

    found, cost = np.array(start[:num_agents]) + draws.normal(0.0, 0.005, (num_agents, 2)), np.inf
    for _ in range(RESTARTS):
        first = np.clip(found if cost == np.inf else found + draws.normal(0.0, 0.03, found.shape), 0.0, 1.0)
        fit = least_squares(
            misses, first.ravel(), bounds=(0.0, 1.0), xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=60,
        )  # fmt: skip
        if fit.cost < cost:
            found, cost = fit.x.reshape(-1, 2), fit.cost
        if cost < 1e-20:
            break
    distances = np.linalg.norm(points[:, None] - found, axis=2)
    recovered = np.linalg.lstsq(features(found).T, features(points).T @ values, rcond=None)[0]
    uniform = np.linalg.norm(points[:, None] - draws.random(points.shape), axis=2).min(axis=1)
    what = f"a sum of {num_features} features over {num_agents} agents with a point each:"
    near, how = distances.min(axis=1), "as many uniform points"
    yield compared(f"{what} points", near, uniform, SQUARE, how)
    errors, text = recovered[distances.argmin(axis=1)] - values, f"{what} values, without a name"
    yield compared(text, errors, values.std(), "s.d. of the values", "the mean of the values")
