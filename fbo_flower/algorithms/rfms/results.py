"""Results of a study of RFMS: a row per trial, and a row per answer of a site."""

from __future__ import annotations

import math

from fbo_flower.algorithms.records import Array
from fbo_flower.algorithms.rfms.site import digest
from fbo_flower.algorithms.rfms.state import RFMSState, SiteReply, pooled_loss
from fbo_flower.algorithms.server_results import ServerResults


def results(state: RFMSState, shipped: int | None) -> ServerResults:
    """Return the rows of the study's tables `models` and `judgements`.

    Parameters
    ----------
    state : the server's state
    shipped : the trial whose model is shipped; None if no trial succeeded
    """
    front, losses, failed = set(state.front()), state.losses(), state.failed()
    models = []
    for number, trial in enumerate(state.trials):
        final = state.final_answers.get(number, {})
        curators = pooled_loss(a for agent, a in final.items() if agent in state.curators)
        lockboxes = pooled_loss(a for agent, a in final.items() if agent in state.lockboxes)
        models.append(
            {
                "trial": number,
                "round": trial.round,
                "config": state.space.decode(trial.point),
                "failure": _failure(state, number) if failed[number] else "",
                "local_loss": float(losses[number, 0]),
                "remote_loss": float(losses[number, 1]),
                "on_front": number in front,
                "shipped": number == shipped,
                "model": digest(state.models[number]).tobytes().hex() if number in state.models else "",
                "openbox_outbag": final[state.openbox].loss if state.openbox in final else math.nan,
                "curators_outbag": curators,
                "lockbox": lockboxes,
            }
        )
    judgements = []
    for number, trial in enumerate(state.trials):
        judgements.append(_row(number, state.openbox, "openbox", "inbag", trial.local))
        for split, answers in (("inbag", state.answers), ("outbag", state.final_answers)):
            for agent, answer in answers.get(number, {}).items():
                judgements.append(_row(number, agent, _role(state, agent), split, answer))
    return ServerResults(models, judgements, {} if shipped is None else _recommendations(state, shipped))


def _recommendations(state: RFMSState, shipped: int) -> dict[str, tuple[Array, float]]:
    """Return the shipped configuration for every site that judged it, with minus its loss as the value.

    The loss is the one of the search, or of the end if there is none.
    """
    trial = state.trials[shipped]
    answers = {**state.final_answers.get(shipped, {}), **state.answers.get(shipped, {})}
    answers[state.openbox] = trial.local
    known = {agent: answer.loss for agent, answer in answers.items() if math.isfinite(answer.loss)}
    return {agent: (trial.point, -loss) for agent, loss in known.items()}


def _row(trial: int, agent: str, role: str, split: str, answer: SiteReply) -> dict[str, object]:
    return {
        "agent": agent,
        "role": role,
        "trial": trial,
        "split": split,
        "loss": answer.loss,
        "num_rows": answer.num_rows,
        "failure": answer.failure,
        "epsilon": answer.epsilon,
    }


def _role(state: RFMSState, agent: str) -> str:
    return "openbox" if agent == state.openbox else "curator" if agent in state.curators else "lockbox"


def _failure(state: RFMSState, trial: int) -> str:
    local = state.trials[trial].local.failure
    refusals = [f"{agent}: {a.failure}" for agent, a in state.answers.get(trial, {}).items() if a.failure]
    return local or "; ".join(refusals)
