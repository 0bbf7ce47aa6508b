"""`fbo-flower watch`: how far a run is, from its servers' journals or from its finished study.

An agent's replies are read before the server has judged them. So all numbers of a round are those that the
server wrote when it closed the round; of the replies themselves only the senders count, and how many failed
evaluations an agent reports, if that is a sensible number. The number of lines does not grow with the agents.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import typer

from fbo_flower.algorithms.records import natural_key
from fbo_flower.cli.interruption import in_order
from fbo_flower.cli.plan import JOURNALS, PLAN, read_plan
from fbo_flower.errors import ConfigError, FBOError, JournalError, printable
from fbo_flower.reports.summary import estimate
from fbo_flower.storage import Event
from fbo_flower.storage.files import open_own
from fbo_flower.storage.paths import path_of
from fbo_flower.storage.study_journal import StudyJournalReader
from fbo_flower.study.directory import holds_study
from fbo_flower.study.study import Study

_NAME = "study.db"
_MOST_FILES = 1000  # databases in a directory that are looked at
_RECENT = 10  # rounds from which the next one's duration is expected
_LATE_ROUNDS = 2  # rounds under way after which an agent of an asynchronous run is silent
_MOST_FAILED = 10_000_000  # evaluations of a task
_WORST = 3  # agents that are named
_MOST_FAILURES = 3  # looks in a row that may fail
_BAR, _LONGEST_NAME = 25, 30  # characters
_TOTALS = ("replies", "failures", "refused", "failed_trials", "evaluations")


@dataclass
class RunState:
    """How far one run is."""

    label: str = ""
    mode: str = "sync"
    fraction: float = 1.0
    num_rounds: int | None = None  # as requested; None: until the algorithm is finished, or not recorded
    num_trials: int | None = None  # evaluations of each agent, if they are counted instead
    agents: set[str] = field(default_factory=set)  # that have registered
    present: set[str] = field(default_factory=set)  # when the server asked last
    waiting: dict[str, int] = field(default_factory=dict)  # agent -> round of its task without a reply yet
    answered: set[str] = field(default_factory=set)  # in the open half-round
    silent: Counter[str] = field(default_factory=Counter)  # agent -> half-rounds without a reply in a row
    failed: Counter[str] = field(default_factory=Counter)  # agent -> failed evaluations that it reports
    seconds: list[float] = field(default_factory=list)  # of the finished rounds
    totals: Counter[str] = field(default_factory=Counter)  # over the finished rounds
    best: float | None = None  # None: no agent disclosed a value; so is the mean of the agents' best values
    mean: float | None = None
    disclosed: bool = False
    open_round: int = 0  # 0: none is open
    simulated: bool = False  # whether durations are those of a simulated clock
    ended: bool = False

    def apply(self, settings: Mapping[str, Any], events: Iterable[Event]) -> None:
        """Apply the settings and the new events of a journal."""
        self.label = str(settings.get("label", self.label))
        self.mode = str(settings.get("mode", self.mode))
        self.fraction = float(settings.get("fraction", self.fraction))
        for event in events:
            self._apply(event, event.values)

    def _apply(self, event: Event, values: Mapping[str, Any]) -> None:
        self.simulated = self.simulated or "time" in values
        match event.kind:
            case "roll" | "agents":
                self.agents |= _names(values.get("agents"))
            case "open":
                self.open_round, self.ended = event.round, False
                number = values.get("num_rounds")
                self.num_rounds = number if isinstance(number, int) else self.num_rounds
            case "ask":
                number = values.get("num_trials")
                self.num_trials = number if isinstance(number, int) else self.num_trials
                self.present = _names(values.get("present"))
                self.agents |= self.present
                asked = _names(values.get("asked", values.get("present")))
                self.waiting |= dict.fromkeys(asked, event.round)
                self.answered = set()
            case "reply":
                self.answered.add(event.agent)
                self.waiting.pop(event.agent, None)
                self.silent.pop(event.agent, None)
                config = values.get("config")
                number = config.get("num-failed") if isinstance(config, dict) else None
                if type(number) is int and 0 < number <= _MOST_FAILED:
                    self.failed[event.agent] += number
            case "tell":
                if self.mode != "async" or event.phase != "train":  # else its tasks stay under way
                    self.silent.update(self.waiting.keys())
                    self.waiting = {}
            case "round":
                self._end_round(event.round, values)
            case "end":
                self.ended, self.open_round = True, 0

    def _end_round(self, server_round: int, values: Mapping[str, Any]) -> None:
        seconds, progress = values.get("seconds"), values.get("progress")
        self.seconds.append(float(seconds) if isinstance(seconds, int | float) else 0.0)
        self.open_round = 0
        if self.mode == "async":
            late = {agent: server_round - since for agent, since in self.waiting.items()}
            self.silent = Counter({agent: rounds for agent, rounds in late.items() if rounds >= _LATE_ROUNDS})
        if isinstance(progress, dict):
            self.best, self.mean = progress.get("best"), progress.get("mean")
            self.disclosed = bool(progress.get("disclosed"))
            self.totals.update({name: int(progress.get(name) or 0) for name in _TOTALS})

    def lines(self, status: str, now: datetime, goes_on: bool = True) -> Iterator[str]:
        """Yield the lines that show the run; an end is expected, counted from `now`, if it `goes_on`."""
        yield printable(f"{self.label or 'run'}: {status}")
        done, totals = len(self.seconds), self.totals
        made, whole = done, self.num_rounds
        if self.num_trials:
            made, whole = totals["evaluations"], self.num_trials * len(self.agents)
        share = min(made / whole, 1.0) if whole else None  # how much is done; None: the end is not known
        full = round(_BAR * (share or 0.0))
        bar = "" if share is None else f"  [{'#' * full}{'.' * (_BAR - full)}]"
        text = f"{done} done, for {self.num_trials} evaluations of each agent"
        yield _line("rounds", (text if self.num_trials else f"{done} of {self.num_rounds or '?'} done") + bar)
        if self.open_round:
            heard, asked = len(self.answered), len(self.waiting) + len(self.answered)
            yield _line("open", f"round {self.open_round}: {heard:,} of {asked:,} agents answered")
        silent, present = set(self.silent), self.present
        parts = [f"{len(self.agents):,}", f"{len(present - silent):,} present", f"{len(silent):,} silent"]
        if self.fraction < 1.0:  # who was not drawn may be there
            parts[1] = f"{len(present):,} drawn for this round"
        else:
            away = self.agents - present - silent if present else ()
            parts.append(f"{len(away):,} left or resting")
        yield _line("agents", ", ".join(parts))
        for name, counts, unit in (("silent", self.silent, "unanswered"), ("failing", self.failed, "failed")):
            worst = sorted(counts.items(), key=lambda item: (-item[1], natural_key(item[0])))[:_WORST]
            named = [f"{printable(agent)[:_LONGEST_NAME]} ({number:,} {unit})" for agent, number in worst]
            more = f" and {len(counts) - len(worst):,} more" if len(counts) > len(worst) else ""
            if counts:
                yield _line(f"  {name}", f"{', '.join(named)}{more}")
        mean = "" if self.mean is None else f", mean over agents {self.mean:.6g}"
        best = "not disclosed; each device has its own: fbo-flower best JOURNAL"
        if self.best is not None:
            best = f"{self.best:.6g}{mean}"
        elif self.disclosed or not totals["replies"]:
            best = f"no {'evaluation has succeeded' if totals['replies'] else 'round has ended'} yet"
        yield _line("best", best)
        counted = f"{totals['evaluations']:,} done" if totals["evaluations"] else "not counted"
        yield _line("evaluations", f"{counted}, {totals['failed_trials']:,} failed")
        lost = f"{totals['failures']:,} lost, {totals['refused']:,} refused"
        yield _line("replies", f"{totals['replies']:,} valid, {lost}")
        if not self.seconds:
            return
        each, clock = statistics.median(self.seconds[-_RECENT:]), ""
        if self.simulated:  # such a clock promises no end
            goes_on, clock = False, " of a simulated clock"
        yield _line("per round", f"{duration(each)}{clock} (the last: {duration(self.seconds[-1])})")
        if goes_on and not self.ended and share:
            left = done * (1.0 / share - 1.0) * each
            end = now + timedelta(seconds=left)
            day = "" if end.date() == now.date() else f"{end:%Y-%m-%d} "
            yield _line("end", f"expected at {day}{end:%H:%M:%S}, in {duration(left)}")


def _line(name: str, text: str) -> str:
    return f"  {name:<12} {text}"


def _names(value: object) -> set[str]:
    return set(map(str, value)) if isinstance(value, list | dict) else set()


def state_of_study(study: Study, algorithm: str) -> RunState:
    """Return the state of a run that is finished, from its study."""
    run, rounds = study.run(algorithm), study.rounds.where(algorithm=algorithm)
    trials = study.trials.where(algorithm=algorithm)
    failed = trials.take(~np.isfinite(trials["value"]))
    best, mean = (float(rounds[name][-1]) if len(rounds) else np.nan for name in ("best", "mean_incumbent"))
    found = study.recommendations.where(algorithm=algorithm)["value"]
    found = found[np.isfinite(found)]
    if not np.isfinite(best) and len(found):
        best = float(found.min() if study.minimizes(algorithm) else found.max())
        mean = estimate(found).mean
    totals = {name: int(rounds[name].sum()) for name in _TOTALS if name != "evaluations"}
    number = int(run.get("num_agents") or len(set(trials["agent"].tolist())))
    agents = set(trials["agent"].tolist()) or {str(k) for k in range(number)}
    return RunState(
        label=algorithm,
        num_rounds=run.get("num_rounds"),
        agents=agents,
        present=agents,
        failed=Counter(failed["agent"].tolist()),
        seconds=rounds["seconds"].tolist(),
        totals=Counter(totals | {"evaluations": int(trials["pulls"].sum())}),
        best=best if np.isfinite(best) else None,
        mean=mean if np.isfinite(mean) else None,
        disclosed=bool(len(trials)) or bool(np.isfinite(best)),
        ended=run.get("status", "finished") == "finished",
    )


def duration(seconds: float) -> str:
    """Return a duration in its two largest units.

    >>> duration(0.25), duration(12.3), duration(200), duration(7300), duration(100_000)
    ('0.25 s', '12 s', '3 min 20 s', '2 h 1 min', '1 d 3 h')
    """
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = math.floor(seconds + 0.5)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def status_of(path: Path, state: RunState) -> tuple[str, bool]:
    """Return whether the server's process runs, in a sentence, and whether the run goes on."""
    from fbo_flower.clients.asking import is_alive  # it imports Flower

    process, now = writer(path), time.time()
    files = [file for file in (path, Path(f"{path}-wal")) if file.exists()]
    last = max((file.stat().st_mtime for file in files), default=now)
    written = f"last write {duration(max(now - last, 0.0))} ago"
    if state.ended:
        return "ended", True
    if process is None:
        return written, True
    if is_alive(process, unknown=True):
        return f"running (process {process}), {written}", True
    return f"not running: process {process} has ended without finishing; resume it to go on", False


class WatchedRun:
    """A server's journal, or the directory of a run with the journals of several algorithms.

    Raises ConfigError if there is nothing to watch.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = path_of(path)
        self._readers: dict[Path, StudyJournalReader] = {}
        self._states: dict[Path, RunState] = {}  # to which the events of each journal lead
        if path.is_dir():
            if not find_journals(path) and not holds_study(path) and not (path / PLAN).exists():
                raise ConfigError(
                    f"watch: expected the directory of a run or of a server's journal, got {path}, which "
                    "holds neither; a run can be watched if it writes a journal (fbo-flower simulate "
                    "--journal, or journal='/srv/study.db' in the run config)"
                )
        elif not path.is_file():
            raise ConfigError(
                f"watch: expected the directory of a run or a server's journal, got {path}, which does not "
                "exist; a journal appears when the run begins"
            )

    def look(self) -> None:
        """Read what is new."""
        for path in find_journals(self.path) if self.path.is_dir() else [self.path]:
            if path not in self._readers:
                self._readers[path], self._states[path] = StudyJournalReader(path), RunState()
        for path, state in self._states.items():
            if not state.ended:
                state.apply(self._readers[path].settings(), self._readers[path].new_events())

    def lines(self, now: datetime) -> Iterator[str]:
        """Yield the lines that show the run: several for an algorithm that runs, one if it has ended."""
        states = list(self._states.values())
        if not states and not holds_study(self.path):
            yield f"{self.path}: no algorithm has begun yet"
        elif not states:
            study = Study.load(self.path)
            for algorithm in study.algorithms:
                status = str(study.run(algorithm).get("status") or "ended")
                yield from state_of_study(study, algorithm).lines(status, now)
        labels = self._planned()
        if states and len(labels) > 1:
            ended = sum(state.ended for state in states)
            yield printable(f"{ended} of {len(labels)} algorithms ended: {', '.join(labels)}")
        for path, state in self._states.items():
            if not state.ended or state is states[-1]:
                status, goes_on = status_of(path, state)
                yield from state.lines(status, now, goes_on)
            else:
                best = "not disclosed" if state.best is None else f"best {state.best:.6g}"
                yield printable(f"{state.label}: ended after {len(state.seconds)} rounds, {best}")

    @property
    def may_change(self) -> bool:
        """Whether it makes sense to look again."""
        if not self._states:
            return not holds_study(self.path)
        all_ended = all(state.ended for state in self._states.values())
        return not all_ended or len(self._states) < len(self._planned())

    def progress(self) -> tuple[object, ...]:
        """Return what changes when a round or a run has ended, or agents went silent."""
        states = self._states.values()
        return tuple((s.label, len(s.seconds), s.ended, len(s.silent)) for s in states)

    def _planned(self) -> list[str]:
        """Return the labels of the algorithms that the run consists of; empty if that is not written."""
        try:
            plan = read_plan(self.path) if (self.path / PLAN).is_file() else None
        except FBOError:
            return []  # of another version
        return [] if plan is None else [contestant.label for contestant in plan.contestants]


def find_journals(directory: Path) -> list[Path]:
    """Return the servers' journals of a run's directory in the order of its algorithms, or the only one."""
    if (directory / JOURNALS).is_dir():
        directory = directory / JOURNALS
    found = [path for path in (directory / _NAME, *directory.glob(f"*/{_NAME}")) if path.is_file()]
    if found:  # "prior" first, and "2-ts" before "10-ei"
        numbers = {path: re.match(r"([0-9]+)-", path.parent.name) for path in found}
        return sorted(found, key=lambda path: (int(match[1]) if (match := numbers[path]) else 0, str(path)))
    others = []
    for path in sorted(directory.glob("*.db"))[:_MOST_FILES]:
        with suppress(JournalError):  # another database
            StudyJournalReader(path)
            others.append(path)
    if len(others) > 1:
        names = ", ".join(path.name for path in others[:5])
        raise ConfigError(f"watch: expected one server's journal in {directory}, got {names}; pass the file")
    return others


def writer(path: Path) -> int | None:
    """Return the id of the process that has opened a journal last; None if it is not known."""
    try:
        name = path.with_name(path.name + ".lock")
        with open(name, encoding="utf-8", errors="replace", opener=open_own) as stream:
            match = re.fullmatch(r"process ([0-9]{1,10})", stream.read(200).strip())
    except OSError:  # also a JournalError
        return None
    return int(match[1]) if match else None


def watch(path: Path, *, once: bool = False, interval: float = 2.0) -> None:
    """Show how far a run is, and when it is expected to end.

    Shows rounds, agents, best value and evaluations. Reads the journals of a run or of a deployed server
    while they are written, and changes nothing. In a terminal the text is redrawn in place; otherwise it is
    printed again when a round has ended.

    It ends when the run has ended, or with Ctrl-C.

    Example: fbo-flower watch runs/mine

    Parameters
    ----------
    path : Directory of a run, or a server's journal; a run without a journal shows its results at its end.
    once : Print the state once and end.
    interval : Seconds between two looks at the files.
    """
    if not 0.05 <= interval <= 3600:
        raise ConfigError(f"--interval: expected 0.05 to 3600 seconds, got {interval:g}")
    with in_order(lambda: "watch changes nothing, the run itself goes on"):
        watched = WatchedRun(path)
        if once:
            watched.look()
            typer.echo("\n".join(watched.lines(datetime.now())))
        else:
            _follow(watched, interval)


def _follow(watched: WatchedRun, interval: float) -> None:
    """Show the run until it has ended: redraw it in a terminal, else print it when a round has ended."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    failures, before = 0, None
    with ExitStack() as stack:
        live = None
        if sys.stdout.isatty():
            live = stack.enter_context(Live(console=Console(highlight=False), auto_refresh=False))
        while True:
            try:
                watched.look()
                failures = 0
            except JournalError:  # a file that is just being created or replaced
                failures += 1
                if failures >= _MOST_FAILURES:
                    raise
            if not failures:
                text, now = "\n".join(watched.lines(datetime.now())), watched.progress()
                if live is not None:
                    live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
                elif now != before:
                    typer.echo(f"{text}\n")
                before = now
                if not watched.may_change:
                    return
            time.sleep(interval)
