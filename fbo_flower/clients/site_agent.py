"""`SiteAgent`: one site of a restrictive federated model selection, as Flower's `NumPyClient`.

An openbox trains models on its own rows and sends them. A curator judges models on its rows and returns one
number for each. A lockbox judges models only once, at the end. The site refuses every task outside its role
and outside what its operator allows, see `SiteOptions`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from logging import INFO, WARNING
from secrets import randbelow
from typing import Any, TypeVar, cast

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.common.logger import log

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.records import AgentState, AnyArray, Phase, Trials
from fbo_flower.algorithms.rfms.rfms import CURATOR, LOCKBOX, OPENBOX, ROLES
from fbo_flower.algorithms.rfms.site import digest, num_final_judgements
from fbo_flower.algorithms.rfms.state import REFUSED, WITHHELD
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.evaluator import Evaluator, TaskContext
from fbo_flower.clients.memory import check_journal
from fbo_flower.clients.model_site import ModelSite, SiteOptions
from fbo_flower.clients.objective import MAX_REASON, ObjectiveContext
from fbo_flower.clients.own_answer import OnFinish, OwnAnswer, call_on_finish
from fbo_flower.clients.site import Export, Scorer, Shipment, SiteData, SiteObjective
from fbo_flower.errors import ConfigError, ObjectiveError, WireError, printable
from fbo_flower.models import as_file
from fbo_flower.numerics.discrete_noise import noisy_count, uniform_from
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.files import atomic_file
from fbo_flower.storage.paths import path_of

_PHASES = {
    OPENBOX: (Phase.TRAIN, Phase.FINISH),
    CURATOR: (Phase.EVALUATE, Phase.FINISH),
    LOCKBOX: (Phase.FINISH,),
}
# notes of the agent's memory; in the account are answers and total epsilon for each bag, over all studies
_LOCKBOX_NOTE, _ACCOUNT = "lockbox", "account"
_T = TypeVar("_T")


def noisy_rate(rate: float, num_rows: int, epsilon: float, uniform: Callable[[int], int]) -> float:
    """Return a misclassification rate with discrete Laplace noise on the count of wrong rows, in [0, 1].

    One row more or less wrong changes the count by 1, so `P(k) ~ exp(-epsilon |k|)` makes the answer
    epsilon-differentially private for the replacement of one row [Canonne2020]. The count is an integer and
    the noise is drawn without floating point: the bits of the answer depend on the noisy count alone.
    `num_rows` is sent without noise.

    Parameters
    ----------
    uniform : `uniform(n)` returns a uniform integer in `[0, n)`; `secrets.randbelow` on devices

    References
    ----------
    [Canonne2020] Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy, NeurIPS 2020.
    """
    return noisy_count(round(rate * num_rows), num_rows, Fraction(epsilon), uniform) / num_rows


class SiteAgent(TuningAgent):
    """An agent that trains models (openbox) or judges them (curator, lockbox).

    Parameters
    ----------
    site : trains and judges models on the site's rows
    options : what the operator allows
    space, context, and others : see `TuningAgent`
    on_finish : `on_finish(answer, context)` is called once at the site when the study has ended. `answer` is
        the site's `OwnAnswer`: the configuration with the smallest loss on its own rows, and minus that loss.
        A lockbox, and a site whose trainings and judgements all failed, have no configuration there
    role : "openbox", "curator" or "lockbox"; `role` in `node_config` overrides it

    Raises
    ------
    ConfigError
        If the role or an option is unknown.
    """

    def __init__(
        self,
        site: ModelSite,
        options: SiteOptions,
        space: SearchSpace,
        context: Context,
        *,
        role: str = "",
        **others: Any,
    ) -> None:
        super().__init__(_no_objective, space, context, **others)
        self._site = site
        self._role = str(context.node_config.get("role", role))
        if self._role not in ROLES:
            raise ConfigError(
                f"role: expected one of {', '.join(ROLES)} in node_config of agent {self._agent}, "
                f"got {self._role!r}"
            )
        self._site_options = options
        if options.answer_noise_epsilon and not site.is_rate:
            raise ConfigError(
                "answer_noise_epsilon: expected scorer='misclassification', whose sensitivity is 1/n, got "
                "another scorer; set answer_noise_epsilon = 0 or change the scorer"
            )
        if self._role == LOCKBOX:
            check_journal(self._durable, "the models that a lockbox has judged")
        elif self._role == CURATOR and options.query_budget:
            check_journal(self._durable, f"query_budget={options.query_budget}")

    @property
    def _wants_end(self) -> bool:
        return self._on_finish is not None  # otherwise it has nothing to do then: the server chooses models

    def _judged(self, agent_state: AgentState) -> int:
        return num_final_judgements(agent_state)

    def _announce(self, answer: OwnAnswer) -> None:
        log(
            INFO, "agent %s: study %s has ended; number of models trained or judged here: %d",
            self._agent, printable(answer.study), answer.num_evaluations,
        )  # fmt: skip
        call_on_finish(answer, self._on_finish, self._context)

    def get_properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return this site's registration, with its role."""
        return {**super().get_properties(config), "role": self._role}

    # -- one task --------------------------------------------------------------------------------------------

    def _admit(self, algorithm: Algorithm[Any]) -> None:
        if not algorithm.roles:
            raise ConfigError(
                f"algorithm: expected one for sites with roles, such as rfms, got {algorithm.name}; an agent "
                "for it is made with `client_app`"
            )

    def _evaluator(
        self, context: TaskContext, algorithm: Algorithm[Any], agent_state: AgentState
    ) -> Evaluator:
        task = context.task
        if task.phase not in _PHASES[self._role]:
            raise WireError(
                f"phase: expected {' or '.join(_PHASES[self._role])} at a {self._role}, got {task.phase}"
            )
        if self._role == OPENBOX and task.phase is Phase.FINISH and "digests" not in agent_state.arrays:
            raise WireError("model: expected one that this site has made, but it has made none in this study")
        return SiteEvaluator(self._site, self._site_options, self._role, self._space, context)


@dataclass(frozen=True)
class SiteEvaluator:
    """Trains or judges models for one task of a site."""

    site: ModelSite
    options: SiteOptions
    role: str
    space: SearchSpace
    context: TaskContext

    def __call__(self, query: Trials, first_trial: int) -> Trials:
        """Return minus the loss of a configuration or a model; stored evaluations are not repeated."""
        task = self.context.task
        points, trials = self.space.snap(query.points)[:1], np.array([task.trial])
        asked = Trials(points, np.full(1, np.nan), trials, artifact=query.artifact)
        row = self.context.take(asked)
        if row is None:
            started, before = time.time(), time.perf_counter()
            row = self._evaluate(asked)
            row = replace(row, times=np.array([[started, started + time.perf_counter() - before]]))
            self.context.append(row)
        for trial, reason in row.reasons.items():
            log(WARNING, "agent %s, trial %d failed: %s", self.context.agent, trial, reason)
        return row

    def arrays(self) -> Mapping[str, AnyArray]:
        """Return no arrays: the losses are in the algorithm's own arrays."""
        return {}

    def _evaluate(self, asked: Trials) -> Trials:
        task, model = self.context.task, asked.artifact
        trial, context = task.trial, self.context.objective_context(task.trial)
        try:
            if task.phase is Phase.TRAIN and model is None:
                trained = self._train(self.space.decode(asked.points[0]), context)
                rows = {"num_rows": np.array([float(trained.num_rows)])}
                values = np.array([-trained.loss])
                return replace(asked, values=values, measures=rows, artifact=trained.model)
            assert model is not None
            split = {Phase.EVALUATE: "inbag", Phase.FINISH: "outbag"}[task.phase]
            loss, num_rows, spent = self._judge(model, split, context)
        except ObjectiveError as error:
            return replace(asked, failures=np.array([str(error)], dtype=object), artifact=None)
        if task.phase is Phase.FINISH and self.role == OPENBOX and self.options.models:
            self._save(model, trial)
        measures = {"num_rows": np.array([float(num_rows)]), "epsilon": np.array([spent])}
        return replace(asked, values=np.array([-loss]), measures=measures, artifact=None)

    def _train(self, config: dict[str, Any], context: ObjectiveContext) -> Shipment:
        trained = _as_objective_error(lambda: self.site.train(config, context))
        parts = ", ".join(trained.carries[:3])
        if trained.carries and not self.options.allow_models_with_data:
            raise ObjectiveError(
                f"{REFUSED}expected a model without rows of the openbox's data, got rows in {parts}; choose "
                "another learner, or let the operator set allow_models_with_data = true in node_config"
            )
        if trained.carries:
            log(
                INFO if context.trial else WARNING,
                "agent %s, trial %d: the model that is sent carries rows of this site's data (%s); "
                "allow_models_with_data permits it", self.context.agent, context.trial, parts,
            )  # fmt: skip
        if trained.model.nbytes > self.options.max_model_bytes:
            raise ObjectiveError(
                f"{REFUSED}expected a model of at most {self.options.max_model_bytes} bytes, the site's "
                f"max_model_bytes, got {trained.model.nbytes} bytes"
            )
        return trained

    def _judge(self, model: AnyArray, split: str, context: ObjectiveContext) -> tuple[float, int, float]:
        """Return the (noisy) loss to send, its number of rows, and the total epsilon spent on these rows."""
        # a server cannot get a new budget by starting a new study
        note, budget = self.context.memory.note(_ACCOUNT), self.options.query_budget
        answers, spent = (cast(dict[str, Any], note.get(name, {})) for name in ("answers", "epsilon"))
        if self.role != OPENBOX and budget and answers.get(split, 0) >= budget:
            raise ObjectiveError(f"{WITHHELD}the query budget of {budget} answers is used up")
        if self.role == LOCKBOX:
            self._open_lockbox()
        rows = "all" if self.role == LOCKBOX else split
        epsilon = 0.0 if self.role == OPENBOX else self.options.answer_noise_epsilon
        answers = {**answers, split: answers.get(split, 0) + 1}
        spent = {**spent, split: spent.get(split, 0.0) + epsilon}
        # before judging: a failure also reveals something
        self.context.memory.put_note(_ACCOUNT, {"answers": answers, "epsilon": spent})
        loss, num_rows = _as_objective_error(lambda: self.site.judge(model, rows, context))
        if epsilon:
            noise = self.context.draws("noise", self.context.task.trial)
            integers = uniform_from(noise) if self.context.simulated else randbelow
            loss = noisy_rate(loss, num_rows, epsilon, integers)
            log(
                INFO, "agent %s: %d answers on its %s, epsilon spent %g",
                self.context.agent, answers[split], split, spent[split],
            )  # fmt: skip
        return loss, num_rows, spent[split]

    def _open_lockbox(self) -> None:
        """Enter the manifest of the task in the lockbox's memory; ObjectiveError if it is one too many."""
        task, memory = self.context.task, self.context.memory
        manifest = digest(np.asarray(task.arrays["manifest"])).tobytes().hex()
        known = cast(list[str], memory.note(_LOCKBOX_NOTE).get("manifests", []))  # study and digest of each
        if f"{self.context.study} {manifest}" in known:
            return
        if len(known) >= self.options.lockbox_answers:
            raise ObjectiveError(
                f"{WITHHELD}this lockbox has judged the models of {len(known)} "
                f"{'study' if len(known) == 1 else 'studies'} and judges no others; its operator may raise "
                "lockbox_answers"
            )
        memory.put_note(_LOCKBOX_NOTE, {"manifests": [*known, f"{self.context.study} {manifest}"]})

    def _save(self, model: AnyArray, trial: int) -> None:
        directory = path_of(self.options.models, "models")
        suffix, content = as_file(model)
        path = directory / f"trial-{trial:03d}-{digest(model).tobytes().hex()[:12]}{suffix}"
        with atomic_file(path, private=True) as file:
            file.write(content)
        log(INFO, "agent %s: saved %s", self.context.agent, path)


def _as_objective_error(work: Callable[[], _T]) -> _T:
    """Return `work()`; any exception is an ObjectiveError, with REFUSED only for a refused model."""
    try:
        return work()
    except WireError as error:  # the model is refused; the text holds nothing about the data
        raise ObjectiveError(f"{REFUSED}{error}"[:MAX_REASON]) from error
    except Exception as error:  # an error of the user's code or of a learner
        raise ObjectiveError(f"{type(error).__name__}: {error}"[:MAX_REASON]) from error


def _no_objective(config: dict[str, Any], context: ObjectiveContext) -> float:
    raise ObjectiveError("expected an agent with an objective, got a site")


def site_app(
    make_model: Callable[[Mapping[str, Any]], Any],
    space: SearchSpace,
    load_data: Callable[[ObjectiveContext], SiteData],
    *,
    scorer: str | Scorer = "misclassification",
    folds: int = 10,
    format: str = "skops",
    export: Export | None = None,
    seed: int | None = None,
    disclose: str | None = None,
    on_finish: OnFinish | None = None,
) -> ClientApp:
    """Return a ClientApp for an openbox, a curator or a lockbox.

    All sites run the same app. `node_config` holds the site's `role` and the operator's options, see
    `SiteOptions`. It is also the place for the path of the rows, which `load_data` gets in its context.

    Parameters
    ----------
    make_model, load_data, scorer, folds, format, export : see `SiteObjective`
    space : search space of `make_model`'s configurations; the server compares its digest with the other
        sites' at registration
    seed, disclose : see `TuningAgent`
    on_finish : called once at every site when the study has ended, see `SiteAgent`
    """
    objective = SiteObjective(make_model, load_data, scorer, folds, format=format, export=export)
    given: dict[str, Any] = {"seed": seed, "disclose": disclose, "on_finish": on_finish}
    return agent_app(lambda context: site_agent(objective, space, context, **given))


def site_agent(
    objective: SiteObjective,
    space: SearchSpace,
    context: Context,
    *,
    defaults: Mapping[str, Any] | None = None,
    **others: Any,
) -> SiteAgent:
    """Return the agent of a site.

    Parameters
    ----------
    defaults : values of `SiteOptions` that `node_config` does not set
    others : see `SiteAgent`
    """
    options = SiteOptions.read(context.node_config, defaults or {})
    return SiteAgent(ModelSite(objective, options), options, space, context, **others)
