"""How a study ends: tell the agents, log the results, and fail if there are none."""

from __future__ import annotations

import threading
from collections import Counter
from logging import INFO, WARNING

from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms.records import ServerResults
from fbo_flower.errors import ObjectiveError, printable
from fbo_flower.strategies.exchange import Stopped
from fbo_flower.strategies.recorder import Recorder, failures_text, tally
from fbo_flower.strategies.replies import MAX_REASON
from fbo_flower.strategies.settings import StrategySettings
from fbo_flower.strategies.study_run import StudyRun


def end_study(grid: Grid, run: StudyRun, settings: StrategySettings, stop: threading.Event) -> None:
    """Tell the agents that the study has ended, and log its results.

    Raises
    ------
    ObjectiveError
        If every evaluation failed, or not one valid reply came.
    """
    try:
        run.registry.tell_end(grid, run.study, stop, settings.round_timeout)
    except Stopped:
        raise
    except Exception:  # the study is complete; the agents' answers are in their journals
        log(WARNING, "The agents could not be told that the study has ended", exc_info=True)
    results = run.algorithm.results(run.state) or ServerResults()
    if not run.recorder.totals.reason:  # sites that exchange models send the reason beside their report
        reasons = [printable(str(row["failure"])) for row in results.models if row.get("failure")]
        run.recorder.count_evaluations(0, 0, "".join(reasons[:1])[:MAX_REASON])
    for line in result_lines(run, results):
        log(INFO, "%s", line)
    check_results(settings.label, run.recorder)


def result_lines(run: StudyRun, results: ServerResults) -> list[str]:
    """Return what the server knows at the end of a study, as lines of its log."""
    recorder, totals = run.recorder, run.recorder.totals
    down, up = (sum(int(row[name]) for row in recorder.rounds) for name in ("bytes_down", "bytes_up"))
    lines = [
        f"Study {run.study} has ended: {len(recorder.rounds)} rounds, {totals.replies} replies, "
        f"{totals.lost} lost, {totals.refused} refused, {down:,} bytes down, {up:,} bytes up"
        + failures_text(totals.failed, totals.evaluations, totals.reason)
    ]
    if recorder.incumbents:
        top_of = min if recorder.minimize else max
        best = top_of(recorder.incumbents, key=lambda agent: recorder.incumbents[agent])
        lines.append(
            f"Best value {recorder.incumbents[best]:.4f}, of agent {best}; "
            f"{len(recorder.incumbents)} of {len(run.registry.nodes)} agents disclosed a value"
        )
    if totals.replies and not recorder.disclosed and not run.algorithm.roles:
        chosen = tally_text(run.registry.disclosures())
        lines.append(
            f"Values not disclosed{chosen}. Each agent has its own best configuration: its log shows it, and "
            "`fbo-flower best JOURNAL` on its device"
        )
    if results.recommendations:
        lines.append(f"The server recommends a configuration to {len(results.recommendations)} agents")
    return lines


def tally_text(counts: Counter[str]) -> str:
    """Return how many agents disclose what, in brackets; "" if none said so.

    >>> tally_text(Counter({"none, default": 2, "none, operator": 1}))
    ' (none, default: 2 agents; none, operator: 1 agent)'
    """
    texts = [f"{what}: {n} agent{'' if n == 1 else 's'}" for what, n in sorted(counts.items())]
    return f" ({'; '.join(texts)})" if texts else ""


def check_evaluations(label: str, recorder: Recorder) -> None:
    """Raise ObjectiveError if every evaluation so far failed; asked after rounds and at the end."""
    totals = recorder.totals
    if totals.evaluations and totals.failed == totals.evaluations:
        why = f"the first with: {totals.reason}" if totals.reason else "the reasons are in the agents' logs"
        raise ObjectiveError(f"{label}: all of {totals.evaluations} evaluations failed, {why}")


def check_results(label: str, recorder: Recorder) -> None:
    """Raise ObjectiveError if every evaluation failed, or not one valid reply came."""
    check_evaluations(label, recorder)
    totals = recorder.totals
    if totals.tasks and not totals.replies:
        reasons: Counter[str] = Counter()
        for row in recorder.rounds:
            for entry in str(row["reasons"]).split():
                reason, _, number = entry.rpartition(":")
                reasons[reason] += int(number)
        raise ObjectiveError(
            f"{label}: expected a valid reply to one of {totals.tasks} tasks, got none ({tally(reasons)}); "
            "the log above names each agent's reason"
        )
