"""What the server of Co-KG decides in a round: the central model, the next points, the recommendation.

With `central = "auto"` it depends on the least Bayes factor of an agent for sharing the objective of the
others (`numerics.aggregation.evidence`): if it is large, the central model is the product; if it is small,
agents choose for themselves; between, as at the beginning, the central model is the barycenter.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fbo_flower.algorithms.co_kg import central as centre
from fbo_flower.algorithms.co_kg.acquisition import joint_design
from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.state import CoKGState, Recommendation, SharedPrior
from fbo_flower.algorithms.records import Array, IntArray, natural_key

Options = CoKGOptions[CoKGState]
Row = TypeVar("Row")
ENOUGH = 1.0  # log Bayes factor from which observations are pooled
SMALL = 1e-6  # beta_t with the pooled posterior: decides between designs that it values alike
AGAINST = -3.0  # log Bayes factor below which agents do not collaborate: 1 to 20


def next_points(
    options: Options, state: CoKGState, server_round: int, present: Sequence[str], rng: np.random.Generator
) -> tuple[CoKGState, dict[str, Array]]:
    """Choose a point for every agent whose posterior is known [Zhan2025, Alg. 1, lines 4-6]."""
    setting = state.setting
    if setting is None or options.framework == "no-collaboration":
        return state, {}
    known = state.known(options.stale)
    agents = [a for a in present if a in known]
    if options.framework == "data-communication":
        agents = [a for a in present if state.progress.of(a) > 0] if state.histories else []
    if not agents or disagree(options, state):
        return state, {}
    state = _refine(options, state, server_round)
    frame, pending = _with_pending(options, state, setting)
    central = central_model(options, state, frame)  # Alg. 1, line 5
    noise = setting.hyperparameters.noise_variance
    beta = options.weight(server_round - state.settled + 1)  # beta_t of Eq. 6
    if options.central == "auto" and pools(options, state):
        beta = min(beta, SMALL)  # the pooled posterior knows all that the agents know
    if beta > 0.0:
        own = centre.own_gains(options, frame, [known[a] for a in agents], noise, rng)
    else:
        own = np.zeros((len(agents), len(frame.points)))
    # Alg. 1, line 6: argmax of Eq. 6
    index = joint_design(options, central.mean, central.factor, own, beta, noise, rng, pending)
    design = {agent: frame.points[i] for agent, i in zip(agents, index, strict=True)}
    return replace(state, start=central.inner), design


def pools(options: Options, state: CoKGState) -> bool:
    """Return whether the central model pools the observations of all agents."""
    if options.framework == "data-communication" or options.central == "product":
        return True
    return options.central == "auto" and bool(state.evidence) and state.evidence[-1][1] > ENOUGH


def disagree(options: Options, state: CoKGState) -> bool:
    """Return whether agents have different objectives, so that each chooses for itself."""
    return options.central == "auto" and bool(state.evidence) and state.evidence[-1][1] < AGAINST


def central_model(options: Options, state: CoKGState, frame: centre.Frame) -> centre.Central:
    """Return the central model: barycenter [Zhan2025, Eqs. 5 and 8], product, or one of all trials."""
    assert state.setting is not None
    if options.framework == "data-communication":
        agents = sorted(state.histories, key=natural_key)
        total = centre.increment_of(options, state.space, state.setting, [state.histories[a] for a in agents])
        return centre.central_product(frame, [total])
    known = state.known(options.stale)
    posteriors = [known[agent] for agent in sorted(known, key=natural_key)]
    weights = centre.agent_weights(options, frame, posteriors)
    if pools(options, state):
        increments = [posterior.increment for posterior in posteriors if posterior.increment is not None]
        return centre.central_product(frame, centre.weighted(increments, weights))
    return centre.central_barycenter(options, frame, posteriors, weights, state.start)


def _refine(options: Options, state: CoKGState, server_round: int) -> CoKGState:
    """Renew the points around the best one so far, every `refine_every` rounds."""
    due = (server_round - state.settled) // options.refine_every
    if options.refinement == 0 or due <= state.renewals or not state.recommended:
        return state
    added = options.around(state.space, state.recommended[-1].point, due - 1)
    return replace(state, refined=added, renewals=due)


def _with_pending(options: Options, state: CoKGState, setting: SharedPrior) -> tuple[centre.Frame, IntArray]:
    """Return the point set, and the indices in it of the points that agents are evaluating, `(P,)`.

    A point that has left the set, because the added points were renewed, is added to it.
    """
    frame = centre.frame(options, state.space, setting, state.refined)
    points = state.under_way or ()
    missing = [p for p in points if not (frame.points == p).all(axis=1).any()]
    if missing:
        kept = [] if state.refined is None else [state.refined]
        added = np.concatenate([*kept, np.unique(missing, axis=0)])
        frame = centre.frame(options, state.space, setting, added)
    index = [int((frame.points == p).all(axis=1).argmax()) for p in points]
    return frame, np.array(index, dtype=np.int64)


def compare(options: Options, state: CoKGState) -> CoKGState:
    """Test whether agents share one objective.

    The Bayes factor that "auto" needs is computed in every round, the test that names the agent that differs
    whenever the number of rounds has doubled.
    """
    if options.central == "barycenter":
        return state
    known = state.known(options.stale)
    if options.central == "auto" and (evidence := centre.evidence_of(known)) is not None:
        state = replace(state, evidence=(*_before(state, state.evidence), (state.round, evidence)))
    if state.round & (state.round - 1):
        return state
    p_values = centre.agreement_of(known)
    if not p_values:
        return state
    return replace(state, agreement=(*_before(state, state.agreement), (state.round, p_values)))


def recommend(options: Options, state: CoKGState) -> CoKGState:
    """Append the point that the server would return after this round [Zhan2025, Alg. 1, line 11]."""
    best: Recommendation | None = None
    known = state.known(options.stale)
    if state.setting is None:
        return state
    if options.framework == "no-collaboration":
        if state.finished:
            agent = max(sorted(state.finished, key=natural_key), key=lambda a: state.finished[a][1])
            best = Recommendation(state.round, agent, *state.finished[agent])
    elif known or state.histories:
        frame = centre.frame(options, state.space, state.setting, state.refined)
        if pools(options, state):
            best = centre.best_of_central(frame, central_model(options, state, frame).mean, state.round)
        else:
            posteriors = [known[agent] for agent in sorted(known, key=natural_key)]
            weights = centre.agent_weights(options, frame, posteriors)
            best = centre.best_of_agents(frame, known, state.round, weights)
    if best is None:
        return state
    before = (r for r in state.recommended if r.round != state.round)
    return replace(state, recommended=(*before, best))


def recommend_without_asking(
    options: Options, state: CoKGState, asked: Container[str]
) -> dict[str, tuple[Array, float]]:
    """Return point and value to recommend to the agents that still work when a study without a barrier ends.

    Nobody waits for them: the server uses what it last heard of each.
    """
    assert state.setting is not None
    found = dict(state.finished)
    if state.recommended and not state.recommended[-1].agent:
        last = state.recommended[-1]
        found |= dict.fromkeys(state.progress.next_trial, (last.point, last.value))
    else:
        frame = centre.frame(options, state.space, state.setting, state.refined)
        for agent, posterior in state.known("keep").items():
            best = centre.best_of_agents(frame, {agent: posterior}, state.round)
            found[agent] = best.point, best.value
    return {agent: best for agent, best in found.items() if agent not in asked}


def _before(state: CoKGState, rows: tuple[tuple[int, Row], ...]) -> tuple[tuple[int, Row], ...]:
    """Return the rows of earlier rounds: without a barrier, later answers of a round replace its row."""
    return tuple(row for row in rows if row[0] != state.round)
