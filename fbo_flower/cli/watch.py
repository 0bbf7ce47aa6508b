"""`fbo-flower watch`: how far a run is, from its servers' journals or from its finished study.

The steps in a journal are repeated, so all numbers are those of the server. The number of lines does not grow
with the agents.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from fbo_flower.algorithms.records import natural_key
from fbo_flower.cli.interruption import in_order
from fbo_flower.cli.plan import JOURNALS, PLAN, read_plan
from fbo_flower.errors import ConfigError, FBOError, JournalError, printable
from fbo_flower.reports.summary import estimate
from fbo_flower.storage.files import open_own
from fbo_flower.storage.paths import path_of
from fbo_flower.storage.study_journal import StudyJournalReader
from fbo_flower.study.directory import holds_study
from fbo_flower.study.ranking import expected_of
from fbo_flower.study.study import Study

if TYPE_CHECKING:
    from fbo_flower.strategies.start_and_end import JournalReplay
    from fbo_flower.strategies.study_run import StudyRun

_NAME = "study.db"
_MAX_FILES = 1000  # databases in a directory that are looked at
_RECENT = 10  # rounds from which the next one's duration is expected
_LATE_ROUNDS = 2  # rounds under way after which an agent of an asynchronous run is silent
_WORST = 3  # agents that are named
_MAX_FAILURES = 3  # looks in a row that may fail
_BAR, _MAX_NAME = 25, 30  # characters
_TOTALS = ("replies", "failures", "refused", "failed_trials", "evaluations")


@dataclass(frozen=True)
class RunState:
    """How far one run is."""

    label: str = "run"
    fraction: float = 1.0
    num_rounds: int | None = None  # as requested; None: until the algorithm is finished, or not recorded
    num_trials: int | None = None  # evaluations of each agent, if they are counted instead
    agents: Collection[str] = ()  # that have registered
    present: Collection[str] = ()  # when the server asked last
    heard: int = 0  # agents that have answered in the open round, of those `asked`
    asked: int = 0
    silent: Counter[str] = field(default_factory=Counter)  # agent -> rounds without a reply in a row
    failed: Counter[str] = field(default_factory=Counter)  # agent -> failed evaluations that it reports
    seconds: Sequence[float] = ()  # of the finished rounds
    totals: Counter[str] = field(default_factory=Counter)  # since the study began
    best: float | None = None  # None: no agent disclosed a value; so is the mean of the agents' best values
    mean: float | None = None
    disclosed: bool = False
    several: bool = False  # whether there are several objectives, which have no best
    open_round: int = 0  # 0: none is open
    simulated: bool = False  # whether durations are those of a simulated clock
    ended: bool = False

    def lines(self, status: str, now: datetime, goes_on: bool = True) -> Iterator[str]:
        """Yield the lines that show the run; an end is expected, counted from `now`, if it `goes_on`."""
        yield printable(f"{self.label}: {status}")
        done, totals = len(self.seconds), self.totals
        share, bar = self._share(), ""
        if share is not None:
            full = round(_BAR * share)
            bar = f"  [{'#' * full}{'.' * (_BAR - full)}]"
        text = f"{done} done, for {self.num_trials} evaluations of each agent"
        yield _line("rounds", (text if self.num_trials else f"{done} of {self.num_rounds or '?'} done") + bar)
        if self.asked:
            yield _line("open", f"round {self.open_round}: {self.heard:,} of {self.asked:,} agents answered")
        yield from self._about_agents()
        yield _line("best", self.best_text)
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

    @property
    def best_text(self) -> str:
        """The best value and the mean of the agents' best values, or why there is none."""
        if self.best is not None:
            return f"{self.best:.6g}" + ("" if self.mean is None else f", mean over agents {self.mean:.6g}")
        if not self.totals["replies"]:
            return "no round has ended yet"
        if not self.disclosed:
            return "not disclosed; each device has its own: fbo-flower best JOURNAL"
        if self.totals["evaluations"] <= self.totals["failed_trials"]:
            return "no evaluation has succeeded yet"
        if self.several:
            return "none, because there are several objectives; fbo-flower best shows the fronts"
        return "none: no trial holds the limits yet"

    def _share(self) -> float | None:
        """Return how much of the run is done; None if its end is not known."""
        done, whole = len(self.seconds), self.num_rounds
        if self.num_trials:
            done, whole = self.totals["evaluations"], self.num_trials * len(self.agents)
        return min(done / whole, 1.0) if whole else None

    def _about_agents(self) -> Iterator[str]:
        silent, present = set(self.silent), set(self.present)
        parts = [f"{len(self.agents):,}", f"{len(present - silent):,} present", f"{len(silent):,} silent"]
        if self.fraction < 1.0:  # who was not drawn may be there
            parts[1] = f"{len(present):,} drawn for this round"
        else:
            left = set(self.agents) - present - silent if present else ()
            parts.append(f"{len(left):,} left or resting")
        yield _line("agents", ", ".join(parts))
        for name, counts, unit in (("silent", self.silent, "unanswered"), ("failing", self.failed, "failed")):
            worst = sorted(counts.items(), key=lambda item: (-item[1], natural_key(item[0])))[:_WORST]
            named = [f"{printable(agent)[:_MAX_NAME]} ({number:,} {unit})" for agent, number in worst]
            more = f" and {len(counts) - len(worst):,} more" if len(counts) > len(worst) else ""
            if counts:
                yield _line(f"  {name}", f"{', '.join(named)}{more}")


def _line(name: str, text: str) -> str:
    return f"  {name:<12} {text}"


def state_of_run(run: StudyRun, ended: bool) -> RunState:
    """Return the state of a run, from the steps of its journal."""
    recorder, agents, server_round = run.recorder, run.registry.agents, len(run.recorder.rounds)
    silent = {name: agent.silent for name, agent in agents.items() if agent.silent}
    heard, asked = len(run.replies), len(run.sent)
    if run.asynchronous:
        late = {name: server_round - sent.made_in for name, sent in run.sent.items()}
        silent = {name: rounds for name, rounds in late.items() if rounds >= _LATE_ROUNDS}
        heard, asked = run.num_told, run.window
    best, mean = (None if np.isnan(value) else value for value in recorder.best()[1:])
    return RunState(
        label=recorder.label,
        fraction=run.settings.fraction,
        num_rounds=run.num_rounds,
        num_trials=run.registry.num_trials,
        agents=agents.keys(),
        present=run.present,
        heard=heard,
        asked=asked if run.open_round else 0,
        silent=Counter(silent),
        failed=+recorder.failed,
        seconds=[row["seconds"] for row in recorder.rounds],
        totals=recorder.totals,
        best=best,
        mean=mean,
        disclosed=recorder.disclosed,
        several=len(recorder.aims.objectives) > 1,
        open_round=run.open_round,
        simulated=run.clocked,
        ended=ended,
    )


def state_of_study(study: Study, algorithm: str) -> RunState:
    """Return the state of a run that is finished, from its study."""
    run, rounds = study.run(algorithm), study.rounds.where(algorithm=algorithm)
    trials = study.trials.where(algorithm=algorithm)
    failed = trials.take(~np.isfinite(trials["value"]))
    best, mean = (float(rounds[name][-1]) if len(rounds) else np.nan for name in ("best", "mean_incumbent"))
    rows = study.recommendations.where(algorithm=algorithm)
    found = [{n: row[n] for n in ("value", "mean") if np.isfinite(row[n])} for row in rows]
    found = [numbers for numbers in found if "value" in numbers]
    if not np.isfinite(best) and found:
        best = (min if study.minimizes(algorithm) else max)(found, key=expected_of)["value"]
        mean = estimate(np.array([numbers["value"] for numbers in found])).mean
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
        several=len(study.objectives) > 1,
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


class WatchedJournal:
    """A server's journal and the state that its steps lead to."""

    def __init__(self, path: Path) -> None:
        self._path, self.state = path, RunState()
        self._replay: JournalReplay | None = None

    def look(self) -> None:
        """Read what was committed since the last look."""
        from fbo_flower.strategies.start_and_end import JournalReplay  # it imports Flower

        if not self.state.ended:
            replay, self._replay = self._replay or JournalReplay(self._path), None
            replay.look()
            self._replay = replay  # after an error, the next look begins anew
            if replay.run is not None:
                self.state = state_of_run(replay.run, replay.has_ended)

    def lines(self, now: datetime) -> Iterator[str]:
        """Yield lines that show the run, with a sentence on whether the server's process runs."""
        from fbo_flower.clients.asking import is_alive  # it imports Flower

        process, goes_on, now_seconds = writer(self._path), True, time.time()
        files = [file for file in (self._path, Path(f"{self._path}-wal")) if file.exists()]
        last = max((file.stat().st_mtime for file in files), default=now_seconds)
        written = f"last write {duration(max(now_seconds - last, 0.0))} ago"
        if self.state.ended:
            status = "ended"
        elif process is None:
            status = written
        elif is_alive(process, unknown=True):
            status = f"running (process {process}), {written}"
        else:
            status = f"not running: process {process} has ended without finishing; resume it to go on"
            goes_on = False
        return self.state.lines(status, now, goes_on)


class WatchedRun:
    """A server's journal, or the directory of a run with the journals of several algorithms.

    Raises ConfigError if there is nothing to watch.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = path_of(path)
        self._journals: dict[Path, WatchedJournal] = {}
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
            if path not in self._journals:
                self._journals[path] = WatchedJournal(path)
        for journal in self._journals.values():
            journal.look()

    def lines(self, now: datetime) -> Iterator[str]:
        """Yield the lines that show the run: several for an algorithm that runs, one if it has ended."""
        journals = list(self._journals.values())
        if not journals and not holds_study(self.path):
            yield f"{self.path}: no algorithm has begun yet"
        elif not journals:
            study = Study.load(self.path)
            for algorithm in study.algorithms:
                status = str(study.run(algorithm).get("status") or "ended")
                yield from state_of_study(study, algorithm).lines(status, now)
        labels = self._planned()
        if journals and len(labels) > 1:
            ended = sum(journal.state.ended for journal in journals)
            yield printable(f"{ended} of {len(labels)} algorithms ended: {', '.join(labels)}")
        for journal in journals:
            state = journal.state
            if not state.ended or journal is journals[-1]:
                yield from journal.lines(now)
            else:
                rounds = f"ended after {len(state.seconds)} rounds"
                yield printable(f"{state.label}: {rounds}, best {state.best_text}")

    @property
    def may_change(self) -> bool:
        """Whether it makes sense to look again."""
        if not self._journals:
            return not holds_study(self.path)
        states = [journal.state for journal in self._journals.values()]
        return not all(state.ended for state in states) or len(states) < len(self._planned())

    def progress(self) -> tuple[object, ...]:
        """Return what changes when a round or a run has ended, or agents went silent."""
        states = [journal.state for journal in self._journals.values()]
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
    if found:
        return sorted(found, key=_order)
    others = [path for path in sorted(directory.glob("*.db"))[:_MAX_FILES] if _is_server_journal(path)]
    if len(others) > 1:
        names = ", ".join(path.name for path in others[:5])
        raise ConfigError(f"watch: expected one server's journal in {directory}, got {names}; pass the file")
    return others


def _order(path: Path) -> tuple[int, str]:
    """Return a key that sorts "prior" first and "2-ts" before "10-ei"."""
    match = re.match(r"([0-9]+)-", path.parent.name)
    return (int(match[1]) if match else 0), str(path)


def _is_server_journal(path: Path) -> bool:
    try:
        StudyJournalReader(path)
    except JournalError:
        return False
    return True


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
                if failures >= _MAX_FAILURES:
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
