"""Ask and tell on a device: an agent whose objective is another process of the site.

The agent's process has its journal open while an evaluation is under way, so the two processes meet in a
second file beside it, `agent.db.mail`. The agent writes what it asks, and looks for the answer. `Site`, in
the other process, reads what is asked and writes what it was told. Each opens the file for one transaction
(`storage.store`), so either can be killed at any write. A trial is named by its study and its number, and is
told once. The agent's own journal counts it once, whatever restarts.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.options import Settings, bounded, canonical_json
from fbo_flower.algorithms.records import AgentState, Trials
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.optimizer import value_told
from fbo_flower.errors import (
    ConfigError,
    JournalError,
    NotInTimeError,
    ObjectiveError,
    explains_names,
    kind_of,
)
from fbo_flower.space.checks import as_real, check_flag, check_number, plain
from fbo_flower.space.space import Config, SearchSpace
from fbo_flower.storage.agent_journal import KIND, aims_note
from fbo_flower.storage.paths import path_of
from fbo_flower.storage.store import JournalKind, Store, StoredRows, opened

POLL_SECONDS = 1.0  # between two looks for a question or an answer
LOCK_SECONDS = 30.0  # to wait until the other process has finished its transaction
MAIL = JournalKind(
    "fbo-flower mail",
    1,
    {
        "trials": (
            "study TEXT NOT NULL, trial INTEGER NOT NULL, config TEXT NOT NULL, until REAL NOT NULL, "
            "owner INTEGER NOT NULL, told INTEGER NOT NULL, value TEXT NOT NULL, failure TEXT NOT NULL, "
            "PRIMARY KEY (study, trial)"
        ),
        "known": "id INTEGER PRIMARY KEY, config TEXT NOT NULL, value TEXT NOT NULL",
    },
    "stop the SuperNode, remove the file and start again: the agent asks once more for what was not told",
)
_UNTOLD = "WHERE told = 0"
_ENDED = "ended"  # the study that has ended, and after which nothing was asked
T = TypeVar("T")
Told = float | dict[str, float]  # as measured; outputs are in the order of `Aims.names`


@dataclass(frozen=True)
class Question:
    """A trial that an agent has asked for.

    Parameters
    ----------
    study, trial : which trial it is
    config : what is to be evaluated
    until : when the agent stops waiting, in seconds since 1970; it may ask again later
    owner : id of the process that evaluates it; 0: none yet
    told : whether it was told
    value, failure : what was told, NaN if the evaluation failed, and why it failed; "" if it did not
    """

    study: str
    trial: int
    config: Config
    until: float
    owner: int = 0
    told: bool = False
    value: Told = math.nan
    failure: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """What names the trial."""
        return self.study, self.trial

    def is_free(self) -> bool:
        """Return whether this process may evaluate it: no other living process does."""
        return self.owner in {0, os.getpid()} or not is_alive(self.owner)


def mail_of(journal: str | os.PathLike[str]) -> Path:
    """Return the path of the file beside an agent's journal in which its questions stand."""
    return path_of(f"{os.fspath(journal)}.mail", "journal")


def _questions(mail: StoredRows, where: str = "", arguments: Sequence[object] = ()) -> Iterator[Question]:
    for row in mail.select("trials", f"{where} ORDER BY until, trial", arguments):
        yield Question(
            row["study"], row["trial"], json.loads(row["config"]), row["until"], row["owner"],
            bool(row["told"]), json.loads(row["value"]), row["failure"],
        )  # fmt: skip


def _plain(config: Mapping[str, Any]) -> Config:
    """Return a configuration whose numbers, of whatever library, are those of Python."""
    found: dict[str, Any] = {}
    for name, value in dict(config).items():
        number = as_real(value)
        found[name] = plain(value) if number is None else number
    return found


def _insert_known(mail: Store, trials: Iterable[tuple[Mapping[str, Any], Told]]) -> None:
    known = {row["config"] for row in mail.select("known")}
    try:
        found = {canonical_json(_plain(config)): json.dumps(value) for config, value in trials}
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"config: expected only texts, finite numbers and flags, got others: {error}"
        ) from error
    mail.insert("known", [(text, value) for text, value in found.items() if text not in known])


def _put(mail: Store, question: Question) -> None:
    q = question
    config = json.dumps(q.config)
    mail.put("trials", (q.study, q.trial, config, q.until, q.owner, q.told, json.dumps(q.value), q.failure))


@contextmanager
def _changing(path: Path) -> Iterator[Store]:
    """Open the mail for one transaction, which no other process can interleave."""
    with Store(path, MAIL, LOCK_SECONDS) as mail, mail.transaction():
        yield mail


def _read(path: Path, where: str, arguments: Sequence[object] = ()) -> list[Question]:
    """Return some questions; none if there is no file yet."""
    if not path.exists():
        return []
    with opened(path, MAIL, check=False) as mail:
        return list(_questions(mail, where, arguments))


def waiting(look: Callable[[], T | None], seconds: float) -> T | None:
    """Return what `look()` returns as soon as it is not None; None after `seconds`."""
    end = time.monotonic() + seconds
    while (found := look()) is None and (left := end - time.monotonic()) > 0:
        time.sleep(min(POLL_SECONDS, left))
    return found


@dataclass(frozen=True)
class Asked(Settings):
    """An objective that another process of the site evaluates: `client_app(Asked(), space)`.

    The operator's `node_config` must name a `journal`. The site's process is `Site(journal)`,
    `FederatedSampler(journal)`, or the commands `fbo-flower ask` and `tell`.

    Parameters
    ----------
    timeout : seconds that the agent waits for a value. Then its reply counts as lost, and the server asks for
        the same trial again in a later round. Choose less than the strategy's `round_timeout`

    Raises
    ------
    ConfigError
        If `timeout` is not positive.
    """

    timeout: float = bounded(3000.0, 1e-3)

    def __call__(self, config: Config, context: ObjectiveContext) -> Told:
        """Ask for a trial, wait until it is told, and return its value or its outputs by name.

        Raises
        ------
        ObjectiveError
            If the site tells that the evaluation has failed.
        NotInTimeError
            If nobody tells the value in time, `node_config` names no journal, or the file beside it cannot be
            used. Nothing is counted.
        """
        journal = str(context.node_config.get("journal", ""))
        if not journal:
            raise NotInTimeError(
                "journal: expected a file in node_config, beside which the agent asks, got none; set "
                'journal="PATH" there'
            )
        try:
            told = self._told(mail_of(journal), context.study, context.trial, config)
        except JournalError as error:  # of the file: the trial has not failed
            raise NotInTimeError(str(error)) from error
        if told is None:
            raise NotInTimeError(
                f"trial {context.trial}: expected a value within {self.timeout:g} s, nobody told one; "
                "the trial is asked for again"
            )
        if told.failure:
            raise ObjectiveError(told.failure)
        return told.value

    def _told(self, path: Path, study: str, trial: int, config: Config) -> Question | None:
        """Ask for a trial, unless it was told, and wait; None if it is not told in time."""
        own, until = ("WHERE study = ? AND trial = ?", (study, trial)), time.time() + self.timeout
        with _changing(path) as mail:
            known = next(_questions(mail, *own), None)
            if known is None or known.config != config:  # another one is from a journal that was lost
                known = Question(study, trial, config, until)
            if not known.told:
                _put(mail, replace(known, until=until))
                mail.put_meta(_ENDED, "")

        def answer() -> Question | None:
            return next((question for question in _read(path, *own) if question.told), None)

        return waiting(answer, self.timeout)


@explains_names
class Site:
    """The process of a site that evaluates what the site's agent asks for.

    It has the methods of `Optimizer`. The agent is that of an app with the objective `Asked`.

    Parameters
    ----------
    journal : path of the agent's journal, as in `journal` of its `node_config`. It need not exist yet
    """

    def __init__(self, journal: str | os.PathLike[str]) -> None:
        self.journal = path_of(journal, "journal")

    def ask(self, timeout: float | None = None) -> Config:
        """Wait until the agent asks, and return the configuration; the same one again until it was told.

        Several processes of one site get different configurations, if the agent asks for several at once
        (`num_parallel`). What a process that has ended was asked goes to another one.

        Parameters
        ----------
        timeout : seconds to wait; None: any number

        Raises
        ------
        NotInTimeError
            If nothing is asked in time.
        JournalError
            If the file beside the journal is damaged.
        """
        return self.question(timeout).config

    def question(self, timeout: float | None = None) -> Question:
        """Return the trial whose configuration `ask` returns."""
        timeout = math.inf if timeout is None else check_number("timeout", timeout, 0.0)
        question = waiting(self.take, timeout)
        if question is None:
            raise NotInTimeError(self.not_asked(timeout or 0.0))
        return question

    def not_asked(self, timeout: float) -> str:
        """Return what to say if the agent has not asked in time."""
        return (
            f"ask: expected the agent of {self.journal} to ask within {timeout:g} s, it did not; check "
            "that a study runs, that node_config has this journal, and that its app tunes Asked()"
        )

    def about(self, study: str = "") -> tuple[SearchSpace, Aims]:
        """Return the search space of a study of the agent, and its aims; "": of the latest study.

        Raises
        ------
        JournalError
            If the agent's journal cannot be read, or does not hold the study.
        """
        with opened(self.journal, KIND, check=False) as journal:
            known = [row["study"] for row in journal.select("studies", "ORDER BY rowid")]
            study = study or next(reversed(known), study)
            space = journal.meta(f"space.{study}")
            note = journal.meta(f"note.{aims_note(study)}")
        if space is None:
            raise JournalError(f"journal: expected study {study} in {self.journal}, found others only")
        aims = NUMBER if note is None else Aims.from_json(json.loads(note)["aims"])
        return SearchSpace.from_json(space), aims

    def ended(self) -> str:
        """Return the study that has ended, if the agent has asked for nothing since; else ""."""
        path = mail_of(self.journal)
        if not path.exists():
            return ""
        with opened(path, MAIL, check=False) as mail:
            return mail.meta(_ENDED) or ""

    def tell(
        self,
        config: Mapping[str, Any],
        value: float | Mapping[str, float] | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """Tell the value of a configuration, in the objective's own units.

        If nobody asked for the configuration, it enters the agent's history, see `know`; a failed one does
        not. Repeating a call is allowed, so a process that was killed may tell again.

        Parameters
        ----------
        value : a number, or a dict of the app's outputs; None, NaN or an infinity: the evaluation has failed
        failed : whether the evaluation has failed, whatever the value is

        Raises
        ------
        ConfigError
            If a configuration that was not asked for is no JSON, the value is neither what the app expects
            nor None, or another one was told before for this configuration.
        JournalError
            If the file beside the journal cannot be written, or is damaged.
        """
        failed = check_flag("failed", failed)
        if not isinstance(config, Mapping):
            raise ConfigError(f"config: expected a dict, got {kind_of(config)}")
        config = _plain(config)
        with _changing(mail_of(self.journal)) as mail:
            same = [question for question in _questions(mail) if question.config == config]
            question = next((q for q in same if not q.told), same[-1] if same else None)
            told, reason = self._measured(value, failed, "" if question is None else question.study)
            if question is None:
                _insert_known(mail, [] if reason else [(config, told)])
            elif not question.told:
                _put(mail, replace(question, told=True, value=told, failure=reason))
            elif repr((question.value, question.failure)) != repr((told, reason)):
                raise ConfigError(
                    f"value: expected the one told before for this configuration, "
                    f"{question.failure or question.value}, got {reason or told}; a value is told once"
                )

    def answer(self, study: str, trial: int, value: float | Mapping[str, float] | None) -> None:
        """Tell the value of a trial by its number; what was told before stays. Errors are those of `tell`."""
        told, reason = self._measured(value, study=study)
        with _changing(mail_of(self.journal)) as mail:
            for question in _questions(mail, "WHERE study = ? AND trial = ? AND told = 0", (study, trial)):
                _put(mail, replace(question, told=True, value=told, failure=reason))

    def know(self, trials: Iterable[tuple[Mapping[str, Any], float | Mapping[str, float]]]) -> None:
        """Give the agent configurations and values that were measured before the study, or beside it.

        They enter its history from its next task on, as the `prior` of `client_app` does: the agent's model
        knows them, but they count as no trials. Each configuration enters once; one without a value does not.

        Raises
        ------
        ConfigError, JournalError
            As `tell`.
        """
        try:
            known = [(config, *self._measured(value)) for config, value in trials]
        except (TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"trials: expected pairs of a configuration and its value, got {kind_of(trials)}"
            ) from error
        with _changing(mail_of(self.journal)) as mail:
            _insert_known(mail, [(config, told) for config, told, reason in known if not reason])

    def _measured(self, value: object, failed: bool = False, study: str = "") -> tuple[Told, str]:
        """Return what was told as the mail holds it, and why the evaluation has failed; "" if it has not."""
        try:
            aims = self.about(study)[1]
        except JournalError:
            if study and self.journal.exists():
                raise
            # there is no study yet: what does not fit a later one is left out there
            aims = Aims(tuple((name, "max") for name in value)) if isinstance(value, Mapping) else NUMBER
        numbers, reason = value_told(value, failed, aims if aims.names else NUMBER)
        return aims.measured(numbers) if aims.names and not reason else numbers[0], reason

    @property
    def pending(self) -> list[Config]:
        """The configurations that were asked for and not told yet; the newest last."""
        return [question.config for question in self.untold()]

    def untold(self) -> list[Question]:
        """Return the trials that were asked for and not told yet; the newest last."""
        return _read(mail_of(self.journal), _UNTOLD)

    def take(self, held: Collection[tuple[str, int]] = ()) -> Question | None:
        """Return a question that the agent waits for, and note that this process evaluates it.

        Parameters
        ----------
        held : study and trial of questions that this process evaluates already
        """

        def first(questions: Iterable[Question]) -> Question | None:
            free = [q for q in questions if q.until > time.time() and q.is_free() and q.key not in held]
            return min(free, key=lambda q: (q.owner != os.getpid(), q.until, q.trial), default=None)

        path = mail_of(self.journal)
        found = first(self.untold())
        if found is None or found.owner == os.getpid():
            return found
        with _changing(path) as mail:  # another process may have taken it meanwhile
            found = first(_questions(mail, _UNTOLD))
            if found is not None:
                _put(mail, replace(found, owner=os.getpid()))
        return found


def note_end(journal: str, study: str) -> None:
    """Let the site's process know that a study has ended."""
    with _changing(mail_of(journal)) as mail:
        mail.put_meta(_ENDED, study)


def with_known(
    agent_state: AgentState, memory: Memory, study: str, key: str, journal: str, num_prior: int
) -> AgentState:
    """Return an agent's state with what its site has told of configurations that nobody asked for.

    Their rows precede those of the study's trials, as the `prior` of an app does. Proposals depend on them,
    so an interrupted task keeps those with which it has begun.

    Parameters
    ----------
    key : names the task
    num_prior : number of observations in the app's `prior`
    """
    rows: list[Any] = []
    if mail_of(journal).exists():
        with opened(mail_of(journal), MAIL, check=False) as mail:
            rows = [(row["config"], row["value"]) for row in mail.select("known", "ORDER BY id")]
    begun = memory.note(f"known.{study}")
    if begun.get("task") == key:
        rows = rows[: int(str(begun["count"]))]
    else:
        memory.put_note(f"known.{study}", {"task": key, "count": len(rows)})
    space, aims = agent_state.space, agent_state.aims
    points, found = [np.empty((0, space.dimension))], [np.empty((0, max(1, len(aims.names))))]
    for config, value in rows:
        with suppress(ConfigError):  # it is of another search space, or has other outputs
            values, _ = value_told(json.loads(value), aims=aims)
            points.append(space.snap(space.encode(json.loads(config))[np.newaxis]))
            found.append(np.array([values]))
    outputs = np.concatenate(found)
    history, own = agent_state.history, agent_state.history.trials >= 0
    prior = np.flatnonzero(~own)[:num_prior]
    if not len(outputs) and len(prior) == np.count_nonzero(~own):
        return agent_state
    first = -len(prior) - len(outputs)
    before = replace(history.rows(prior), trials=np.arange(first, -len(outputs)))
    told = Trials(
        np.concatenate(points), outputs[:, 0], np.arange(-len(outputs), 0),
        outputs=outputs if aims.has_outputs else None,
    )  # fmt: skip
    return replace(agent_state, history=before.concat(told, history.rows(own)))


def is_alive(process: int, unknown: bool = False) -> bool:
    """Return whether a process of this machine runs; `unknown` on Windows, where asking would end it."""
    if os.name != "posix":
        return unknown
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it runs, as another user
    return True
