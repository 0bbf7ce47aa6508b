"""RFMS, restrictive federated model selection: one site trains models, other sites judge them [Sun2019].

Sites have roles. The openbox trains models; curators judge every model during the search; lockboxes judge
only at the end. No row of data leaves a site. A round tries one configuration `phi`:

- TRAIN: the openbox cross-validates `phi` on its own rows (`J_l`) and fits a model `theta`.
- EVALUATE: each curator judges `theta` and reports one loss and its number of rows; `J_r` is the mean of
  these losses, weighted by rows.
- FINISH, after the last round: all sites judge the models that are not dominated in `(J_l, J_r)`, and the
  model to ship, on rows that were not used before: the outbag rows of openbox and curators, and all rows of
  the lockboxes.

A curator that does not answer is left out of `J_r`; its next reply includes the loss that the server missed.
A site that does not answer is asked `attempts` times. A trial fails if the fit fails, or if all curators that
answered refuse the model. A failed trial uses up its round and counts as the worst loss seen in the search's
model of losses; its model is neither on the front nor shipped. Sites that are present at registration take
part; they may leave and return.

The sites' part is in `site.py`, the methods' use of losses in `state.py`.

[Sun2019] Sun, Bommert, Pfisterer, Rahnenfuehrer, Lang, Bischl. High dimensional restrictive federated model
selection with multi-objective Bayesian optimization over shifted distributions. 2019 (arXiv 1902.08999).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.options import bounded, choice, integer
from fbo_flower.algorithms.records import Best, Federation, Phase, Report, Scalar, ServerResults, Task
from fbo_flower.algorithms.rfms.site import MAX_MODELS, Sites, digest
from fbo_flower.algorithms.rfms.state import (
    SETUP,
    Method,
    ModelTrial,
    RFMSState,
    SiteReply,
    pooled_loss,
    read_late,
    read_reply,
    read_trials,
    shipped,
)
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.acquisition.proposals import INCUMBENTS
from fbo_flower.numerics.arrays import AnyArray

OPENBOX, CURATOR, LOCKBOX = ROLES = ("openbox", "curator", "lockbox")
_SWEEPS = 2  # at the end, a site that did not judge a model is asked once more


@dataclass(frozen=True, kw_only=True)
class RFMS(Sites[RFMSState]):
    """Restrictive federated model selection with (multi-objective) Bayesian optimisation.

    Parameters
    ----------
    method : "lso": minimise the openbox's loss `J_l`; "fso": minimise `alpha J_l + (1 - alpha) J_r`, where
        `J_r` is the curators' loss; "fmo": minimise both, by ParEGO; "ehvi": minimise both, by expected
        hypervolume improvement; "rand_mo": random search
    alpha : weight of `J_l` in "fso"
    volume_reference : reference point of the area that "ehvi" enlarges. "front": a tenth of the range of all
        losses beyond the ends of the front of posterior means, computed anew for each proposal; "ones":
        (1, 1), as in the paper's volume, for losses between 0 and 1
    improve_on : what expected improvement ("lso", "fso", "fmo") improves on. "mean": the best posterior mean
        at a configuration tried; "observed": the best loss observed, as in mlrMBO, which the paper uses. With
        noisy losses "observed" explores more
    num_initial : random configurations at the start. With the same seed they are the same for every method
        except "rand_mo"
    num_trials : configurations in all
    ship : criterion of the configuration to ship, which is its minimiser: "own": the method's objective, for
        "fmo", "ehvi" and "rand_mo" the mean of both losses; "mean": the mean of `J_l` and `J_r`; "max": the
        largest loss at any site; "guarded": as "max" if some configuration has a loss below 0.5 at every
        site, else as "mean"
    attempts : how often a site that does not answer is asked for the same trial
    """

    name: ClassVar[str] = "rfms"
    phases: ClassVar[tuple[Phase, ...]] = (Phase.TRAIN, Phase.EVALUATE)
    budget_option: ClassVar[str] = "num_trials"
    roles: ClassVar[tuple[str, ...]] = ROLES

    method: str = choice("fmo", ("lso", "fso", "fmo", "ehvi", "rand_mo"))
    alpha: float = bounded(0.5, 0, 1)
    volume_reference: str = choice("front", ("front", "ones"))
    improve_on: str = choice("mean", INCUMBENTS)
    num_initial: int = integer(20, 1, MAX_MODELS)
    num_trials: int = integer(60, 1, MAX_MODELS)
    ship: str = choice("own", ("own", "mean", "max", "guarded"))
    attempts: int = integer(5, 1, 1000)

    @property
    def _method(self) -> Method:
        return Method(self.method, self.alpha, self.volume_reference, self.improve_on)

    # -- the server's half ---------------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> RFMSState:
        sites = {
            role: tuple(a for a in federation.agents if federation.roles.get(a) == role) for role in ROLES
        }
        for agent in federation.agents:
            role = federation.roles.get(agent, "")
            if role not in ROLES:
                raise ConfigError(f"role of agent {agent}: expected one of {', '.join(ROLES)}, got {role!r}")
        if len(sites[OPENBOX]) != 1:
            raise ConfigError(f"roles: expected exactly one openbox, got agents {list(sites[OPENBOX])}")
        if not sites[CURATOR]:
            raise ConfigError("roles: expected at least one curator, got none")
        dimension = federation.space.dimension
        design = rng.random((self.num_initial, dimension))  # Alg. 1, line 2
        if self.method == "rand_mo":  # all configurations are random
            design = rng.random((self.num_trials, dimension))
        design = federation.space.snap(design)
        return RFMSState(federation.space, sites[OPENBOX][0], sites[CURATOR], sites[LOCKBOX], design)

    def finished(self, state: RFMSState) -> bool:
        """Return whether all trials are made or no model can be judged.

        No model can be judged if all of the initial design failed, all curators withhold answers, or the
        openbox found at its first model that the sites are not set up for it.
        """
        done = len(state.trials)
        failed = done >= self.num_initial and bool(state.failed()[: self.num_initial].all())
        unfit = done > 0 and state.trials[0].local.failure.startswith(SETUP)
        no_progress = failed or state.exhausted() or unfit
        return state.point is None and state.unjudged is None and (done >= self.num_trials or no_progress)

    def ask(
        self, state: RFMSState, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[RFMSState, dict[str, Task]]:
        if phase is Phase.TRAIN:
            return self._ask_openbox(state, server_round, present, rng)
        if phase is Phase.EVALUATE:
            return self._ask_curators(state, server_round, present)
        return self._ask_all_sites(state, server_round, present)

    def tell(self, state: RFMSState, phase: Phase, reports: Replies) -> RFMSState:
        if phase is Phase.TRAIN:
            return self._tell_openbox(state, reports)
        if phase is Phase.EVALUATE:
            return self._tell_curators(state, reports)
        return self._tell_all_sites(state, reports)

    # -- TRAIN -------------------------------------------------------------------------------------------

    def _ask_openbox(
        self, state: RFMSState, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[RFMSState, dict[str, Task]]:
        """Ask the openbox to train the next configuration [Sun2019, Alg. 1, lines 4-6 and 13-16]."""
        if state.openbox not in present or state.unjudged is not None or self.finished(state):
            return state, {}
        trial = len(state.trials)
        if state.point is None:
            given = trial < len(state.design)
            point = state.design[trial] if given else self._method.propose(state, rng)  # lines 4 and 13
            state = replace(state, point=point, attempts=0)
        assert state.point is not None
        task = Task(Phase.TRAIN, server_round, trial, 1, {"point": state.point[None, :]})
        return replace(state, round=server_round, attempts=state.attempts + 1), {state.openbox: task}

    def _tell_openbox(self, state: RFMSState, reports: Mapping[str, Report]) -> RFMSState:
        """Store `J_l` [Eq. 2] and the model; if the openbox did not answer, it is asked again."""
        report = reports.get(state.openbox)
        if state.point is None or (report is None and state.attempts < self.attempts):
            return state
        if report is None:
            local = SiteReply(math.nan, 0, f"the openbox did not answer {self.attempts} times")
        else:
            local = read_reply(report)
        number = len(state.trials)
        trial = ModelTrial(state.round, state.point, local)
        state = replace(state, trials=(*state.trials, trial), point=None, attempts=0)
        if report is None or local.failure:
            return state
        return replace(state, models={**state.models, number: report.arrays["model"]}, unjudged=number)

    # -- EVALUATE ----------------------------------------------------------------------------------------

    def _ask_curators(
        self, state: RFMSState, server_round: int, present: Sequence[str]
    ) -> tuple[RFMSState, dict[str, Task]]:
        """Ask the curators to judge the newest model [Sun2019, Alg. 1, lines 7 and 17]."""
        trial = state.unjudged
        asked = tuple(agent for agent in present if agent in state.curators)
        if trial is None or not asked:
            return replace(state, asked=()), {}
        arrays = {"point": state.trials[trial].point[None, :], "model": state.models[trial]}
        tasks = {}
        for agent in asked:
            owed = state.owed.get(agent, ())
            values: dict[str, Scalar] = {"owed": ",".join(map(str, owed))} if owed else {}
            tasks[agent] = Task(Phase.EVALUATE, server_round, trial, 1, arrays, values)
        return replace(state, asked=asked, attempts=state.attempts + 1), tasks

    def _tell_curators(self, state: RFMSState, reports: Mapping[str, Report]) -> RFMSState:
        """Store the losses for `J_r` [Eq. 3], late ones too; note which curators did not answer."""
        trial = state.unjudged
        if trial is None or not state.asked:
            return state
        replies = {t: dict(known) for t, known in state.replies.items()}
        owed = dict(state.owed)
        for agent in state.asked:
            report = reports.get(agent)
            if report is None:
                owed[agent] = tuple(dict.fromkeys((*owed.get(agent, ()), trial)))
                continue
            late = read_late(report.values.get("late", "[]"), owed.pop(agent, ()))
            for number, reply in {**late, trial: read_reply(report)}.items():
                replies.setdefault(number, {})[agent] = reply
        judged = trial in replies or state.attempts >= self.attempts
        state = replace(
            state,
            replies={t: dict(sorted(replies[t].items())) for t in sorted(replies)},
            owed=owed,
            asked=(),
            unjudged=None if judged else trial,
            attempts=0 if judged else state.attempts,
        )
        # models that are not worth keeping, and for which no further answer is expected, are dropped
        kept = set(self._selected(state.settled())) | state.unsettled
        return replace(state, models={trial: m for trial, m in state.models.items() if trial in kept})

    def _selected(self, state: RFMSState) -> list[int]:
        """Return the trials on the front and the one to ship [Sun2019, Alg. 1, lines 22-25]."""
        best = shipped(state, self.ship, self._method)
        return sorted(set(state.front()) | ({best} if best is not None else set()))

    # -- FINISH ------------------------------------------------------------------------------------------

    def _ask_all_sites(
        self, state: RFMSState, server_round: int, present: Sequence[str]
    ) -> tuple[RFMSState, dict[str, Task]]:
        """Send one of the selected models to all sites that have not judged it yet."""
        if state.final is None:
            kept = tuple(t for t in self._selected(state) if t in state.models)
            state = replace(state, final=kept, unjudged=None)
        assert state.final is not None
        sites = [agent for agent in present if agent in (state.openbox, *state.curators, *state.lockboxes)]
        manifest = np.array([digest(state.models[t]) for t in state.final], dtype=np.uint8).reshape(-1, 32)
        for step in range(state.final_step, _SWEEPS * len(state.final)):
            trial = state.final[step % len(state.final)]
            arrays: dict[str, AnyArray] = {"model": state.models[trial], "manifest": manifest}
            waiting = [agent for agent in sites if agent not in state.final_replies.get(trial, {})]
            if waiting:
                tasks = {agent: Task(Phase.FINISH, server_round, trial, 0, arrays) for agent in waiting}
                return replace(state, final_step=step + 1), tasks
        return replace(state, final_step=_SWEEPS * len(state.final)), {}

    def _tell_all_sites(self, state: RFMSState, reports: Mapping[str, Report]) -> RFMSState:
        """Store the losses of the selected models on rows that were not used before."""
        replies = {t: dict(known) for t, known in state.final_replies.items()}
        for agent in sorted(reports):
            replies.setdefault(reports[agent].trial, {})[agent] = read_reply(reports[agent])
        return replace(state, final_replies={t: dict(sorted(replies[t].items())) for t in sorted(replies)})

    # -- reports and results -----------------------------------------------------------------------------

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError unless a report has a loss or a reason, and a model exactly if one was trained."""
        reply = read_reply(report)
        failed = bool(reply.failure)
        if task.num_trials and bool(report.num_failed) != failed:
            raise WireError(
                f"failure: expected a reason if the trial failed, and none otherwise, got {reply.failure!r} "
                f"with {report.num_failed} failed trials"
            )
        expected = task.phase is Phase.TRAIN and not failed
        if bool(report.arrays) != expected or (expected and not report.arrays["model"].size):
            raise WireError(
                f"model: expected {'one, not empty' if expected else 'none'} in this report, "
                f"got {', '.join(report.arrays) or 'none'}"
            )
        owed = read_trials(task.values.get("owed", ""))
        read_late(report.values.get("late", "[]"), [t for t in owed if t != task.trial])

    def results(self, state: RFMSState) -> ServerResults:
        """Return a row per trial, a row per answer of a site, and the configuration that is shipped."""
        best = shipped(state, self.ship, self._method)
        front, losses, failed = set(state.front()), state.losses(), state.failed()
        models = []
        for number, trial in enumerate(state.trials):
            final = state.final_replies.get(number, {})
            curators = pooled_loss(a for agent, a in final.items() if agent in state.curators)
            lockboxes = pooled_loss(a for agent, a in final.items() if agent in state.lockboxes)
            inbag = state.replies.get(number, {})
            refusals = [f"{agent}: {reply.failure}" for agent, reply in inbag.items() if reply.failure]
            models.append(
                {
                    "trial": number,
                    "round": trial.round,
                    "config": state.space.decode(trial.point),
                    "failure": (trial.local.failure or "; ".join(refusals)) if failed[number] else "",
                    "local_loss": float(losses[number, 0]),
                    "remote_loss": float(losses[number, 1]),
                    "on_front": number in front,
                    "shipped": number == best,
                    "model": digest(state.models[number]).tobytes().hex() if number in state.models else "",
                    "openbox_outbag": final[state.openbox].loss if state.openbox in final else math.nan,
                    "curators_outbag": curators,
                    "lockbox": lockboxes,
                }
            )
        judgements = []
        for number, trial in enumerate(state.trials):
            answers = [("inbag", state.openbox, trial.local)]
            for split, replies in (("inbag", state.replies), ("outbag", state.final_replies)):
                answers += [(split, agent, reply) for agent, reply in replies.get(number, {}).items()]
            for split, agent, reply in answers:
                role = "curator" if agent in state.curators else "lockbox"
                row = {"agent": agent, "role": "openbox" if agent == state.openbox else role}
                judgements.append({**row, "trial": number, "split": split, **vars(reply)})
        if best is None:
            return ServerResults(models, judgements)
        # every site that judged the shipped model gets it, with minus its loss, in the search or at the end
        judged = {**state.final_replies.get(best, {}), **state.replies.get(best, {})}
        judged[state.openbox], point = state.trials[best].local, state.trials[best].point
        recommended = {a: Best(point, -r.loss) for a, r in judged.items() if math.isfinite(r.loss)}
        return ServerResults(models, judgements, recommended)
