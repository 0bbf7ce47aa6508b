"""Results of a study of Co-KG besides its trials: recommendations, shared prior, test of agreement."""

from __future__ import annotations

from collections.abc import Mapping

from fbo_flower.algorithms.co_kg.design import AGAINST, ENOUGH
from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.state import CoKGState, SharedPrior
from fbo_flower.algorithms.server_results import ServerResults

DOUBTFUL = 0.01  # level of the test of agreement; divided by the number of agents


def results(options: CoKGOptions[CoKGState], state: CoKGState) -> ServerResults | None:
    """Return every agent's recommendation: the maximiser of its posterior mean, and the mean there.

    Under "product" and "data-communication" every agent's recommendation is the central model's maximiser.
    """
    if state.setting is None:
        return None
    maximisers = dict(state.finished)
    if state.recommended and not state.recommended[-1].agent:
        last = state.recommended[-1]
        maximisers = dict.fromkeys(maximisers, (last.point, last.value))
    return ServerResults(
        recommendations={
            agent: (point, in_units_of_the_objective(options, state.setting, value))
            for agent, (point, value) in maximisers.items()
        }
    )


def description(options: CoKGOptions[CoKGState], state: CoKGState) -> dict[str, object]:
    """Return the shared prior and the recommendations as JSON values; empty before the first warm-up report.

    `recommended` has a row per round: the point that the server would have returned after it
    [Zhan2025, Alg. 1, line 11].
    """
    setting = state.setting
    if setting is None:
        return {}
    h = setting.hyperparameters
    return {
        "lengthscales": h.lengthscales.tolist(),
        "outputscale": h.outputscale,
        "noise_variance": h.noise_variance,
        "shift": setting.shift,
        "scale": setting.scale,
        "num_pivots": len(setting.pivots),
        "recommended": [
            {
                "round": best.round,
                "agent": best.agent,
                "config": state.space.decode(best.point),
                "value": in_units_of_the_objective(options, setting, best.value),
            }
            for best in state.recommended
        ],
        "agreement": [{"round": number, "p_values": dict(p)} for number, p in state.agreement],
        **(
            {"evidence": [{"round": number, "log_bayes_factor": b} for number, b in state.evidence]}
            if state.evidence
            else {}
        ),
    }


def in_units_of_the_objective(options: CoKGOptions[CoKGState], setting: SharedPrior, value: float) -> float:
    """Return a posterior mean in units of the objective; with a transform, the posterior median."""
    return options.untransformed(setting.shift + setting.scale * value)


def progress_lines(state: CoKGState, before: CoKGState) -> list[str]:
    """Return a log line for every test of agreement, and every change of "auto", since the state `before`."""
    lines = [_agreement(number, p_values) for number, p_values in state.agreement[len(before.agreement) :]]
    if state.evidence:
        (number, value), earlier = state.evidence[-1], before.evidence[-1][1] if before.evidence else 0.0
        if _model(value) != _model(earlier):
            lines.append(
                f"[round {number}] {_model(value)} (least log Bayes factor of an agent: {value:.1f})"
            )
    return lines


def _model(log_bayes_factor: float) -> str:
    if log_bayes_factor > ENOUGH:
        return "central model: product"
    return "central model: " + ("barycenter" if log_bayes_factor >= AGAINST else "none, agents differ")


def _agreement(number: int, p_values: Mapping[str, float]) -> str:
    listed = ", ".join(f"{agent}: {p:.2g}" for agent, p in p_values.items())
    odd = [agent for agent, p in p_values.items() if p < DOUBTFUL / len(p_values)]
    advice = ""
    if odd:
        least = min(odd, key=lambda agent: p_values[agent])
        advice = (
            f"; they do not share one objective, least of all agent {least}: use central=barycenter or auto"
        )
    return f"[round {number}] do agents share one objective? p-values {listed}{advice}"
