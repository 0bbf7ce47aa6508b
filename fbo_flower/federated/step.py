"""One round of all trials that run side by side: messages travel together, each trial aggregates its own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fbo_flower.errors import ConfigError, FBOError
from fbo_flower.federated.guards import Guard, weighted_median
from fbo_flower.federated.noise import median_variance, sampling_variance
from fbo_flower.federated.records import TrialRound
from fbo_flower.federated.replies import Checked, client_metrics
from fbo_flower.federated.settings import ALL
from fbo_flower.federated.trial_run import TrialRun, is_number
from fbo_flower.numerics.arrays import Array
from fbo_flower.strategies.connected_nodes import is_simulated, wait_for_nodes
from fbo_flower.strategies.send_and_receive import send_and_receive


@dataclass(frozen=True)
class Failure:
    """Why a round of a trial brought nothing.

    Attributes
    ----------
    lost : whether the clients could not be reached, so that the round may be tried again; otherwise the
        configuration is to blame
    """

    reason: str
    lost: bool = False


@dataclass(frozen=True)
class Step:
    """Runs rounds.

    Parameters
    ----------
    grid : the federation
    metric : name of the metric that judges trials
    sign : -1 if smaller is better
    timeout : seconds for each half-round
    evaluate_on : "share": a trial is judged by its own share of the clients; "all": by all
    stop : ends a run when it is set
    guard : against false replies; None: replies are believed
    """

    grid: Grid
    metric: str
    sign: float
    timeout: float
    evaluate_on: str
    stop: threading.Event
    guard: Guard | None = None

    def run(
        self,
        runs: Mapping[int, TrialRun],
        rounds: Mapping[int, int],
        shares: Mapping[int, Sequence[int]],
        population: Sequence[int],
    ) -> dict[int, TrialRound | Failure]:
        """Do one round of each trial and return what it brought, or why the trial has failed.

        Parameters
        ----------
        runs : trial -> its live state, which changes
        rounds : trial -> the number of this round
        shares : trial -> the clients of its share
        population : all clients that are connected
        """
        results: dict[int, TrialRound | Failure] = {}
        asked: dict[int, int] = {}
        trained: dict[int, int] = {}
        sent = {
            k: _protected(partial(run.train_messages, rounds[k], self.grid, shares[k]))
            for k, run in runs.items()
        }
        for k, checked in self._exchange(runs, sent, results).items():
            asked[k], trained[k] = checked.asked, len(checked.used)
            failure = self._train(runs[k], rounds[k], checked, asked[k])
            if failure is not None:
                results[k] = failure
        whom = {k: population if self.evaluate_on == ALL else shares[k] for k in runs}
        sent = {
            k: _protected(partial(run.evaluate_messages, rounds[k], self.grid, whom[k]))
            for k, run in runs.items()
            if k not in results
        }
        for k, checked in self._exchange(runs, sent, results).items():
            judged = self._judge(runs[k], rounds[k], checked, len(population))
            if isinstance(judged, Failure):
                results[k] = judged
                continue
            value, variance, metrics = judged
            results[k] = TrialRound(
                rounds[k], value, variance, asked[k], trained[k], len(checked.used), metrics
            )
        return results

    def judge_on(
        self, run: TrialRun, server_round: int, population: Sequence[int]
    ) -> tuple[float, float, dict[str, float]] | Failure:
        """Return value, variance and metrics of a model on all clients, or why there is none."""
        template = run.evaluate_messages(server_round, self.grid, population)
        if not template:
            return self._judge(run, server_round, Checked([], []), len(population))
        messages = [
            Message(template[0].content, node, template[0].metadata.message_type) for node in population
        ]
        results: dict[int, TrialRound | Failure] = {}
        checked = self._exchange({run.number: run}, {run.number: messages}, results)
        return self._judge(run, server_round, checked[run.number], len(population))

    def _exchange(
        self,
        runs: Mapping[int, TrialRun],
        sent: Mapping[int, list[Message] | Failure],
        results: dict[int, TrialRound | Failure],
    ) -> dict[int, Checked]:
        """Send the messages of all trials and return each trial's checked replies; note who has failed."""
        results.update({k: found for k, found in sent.items() if isinstance(found, Failure)})
        lists = {k: found for k, found in sent.items() if not isinstance(found, Failure)}
        flat = [message for messages in lists.values() for message in messages]
        replies = send_and_receive(self.grid, flat, self.timeout, self.stop)
        found, start = {}, 0
        for k, messages in lists.items():
            own = [replies.get(start + i) for i in range(len(messages))]
            start += len(messages)
            guard = self.guard or Guard(self.metric)
            found[k] = guard.checked(messages, own, runs[k].weighted_by, f"Trial {k}")
        return found

    def _train(self, run: TrialRun, server_round: int, checked: Checked, asked: int) -> Failure | None:
        """Aggregate updates; return why the trial has failed, None if it has not."""
        if asked and not checked.used:
            return _without_replies("update", checked)
        try:
            run.train(server_round, checked.used)
        except FBOError:
            raise
        except Exception as error:  # of the user's strategy
            return Failure(f"aggregate_train: {type(error).__name__}: {error}")
        return Failure("diverged: the aggregated model is not finite") if run.diverged() else None

    def _judge(
        self, run: TrialRun, server_round: int, checked: Checked, population: int
    ) -> tuple[float, float, dict[str, float]] | Failure:
        """Return value, variance and metrics, or why the trial has failed."""
        if checked.not_finite > len(checked.used):
            return Failure("diverged: most evaluations were not finite")
        try:
            metrics = run.evaluate(server_round, checked.used)
        except Exception as error:  # of the user's strategy or evaluate_fn
            return Failure(f"aggregate_evaluate: {type(error).__name__}: {error}")
        if self.metric not in metrics:
            if not metrics and checked.refused:
                return _without_replies("evaluation", checked)
            there = ", ".join(sorted(metrics)) or "none"
            raise ConfigError(
                f"metric: expected {self.metric!r} among the metrics of aggregate_evaluate, got {there}; "
                "return it "
                "in the MetricRecord of @app.evaluate(), evaluate with a positive fraction_evaluate, or "
                "pass evaluate_fn"
            )
        if self.guard is not None and self.guard.judge_by == "median":
            value, variance = self._median(run, checked, population)
        else:
            value, variance = metrics[self.metric], self._variance(run, checked, population)
        if not math.isfinite(value):
            return Failure(f"diverged: {self.metric} is {value}")
        return self.sign * value, variance, metrics

    def _variance(self, run: TrialRun, checked: Checked, population: int) -> float:
        """Return the variance that comes from judging by some clients only; 0 if the clients do not tell."""
        found = self._values(run, checked)
        return 0.0 if found is None else sampling_variance(*found, population)

    def _median(self, run: TrialRun, checked: Checked, population: int) -> tuple[float, float]:
        """Return the weighted median of the clients' values, and its variance."""
        found = self._values(run, checked)
        if found is None:
            raise ConfigError(
                f"judge_by: expected {self.metric!r} in the metrics of @app.evaluate() to judge by its "
                'median, got none; choose judge_by="mean"'
            )
        median = weighted_median(*found)
        return median, median_variance(*found, median, population)

    def _values(self, run: TrialRun, checked: Checked) -> tuple[Array, Array] | None:
        """Return values and weights of the clients that judged; None if they do not tell."""
        records = [client_metrics(reply) for reply in checked.used]
        if not all(is_number(record.get(self.metric)) for record in records) or not records:
            return None
        weighted_by = run.weighted_by or ""
        weights = [record[weighted_by] if is_number(record.get(weighted_by)) else 1.0 for record in records]
        values = np.array([record[self.metric] for record in records], dtype=np.float64)
        return values, np.array(weights, dtype=np.float64)


def _protected(configure: Callable[[], list[Message]]) -> list[Message] | Failure:
    """Return messages, or why the strategy made none."""
    try:
        return configure()
    except FBOError:
        raise
    except Exception as error:  # of the user's strategy
        return Failure(f"configure: {type(error).__name__}: {error}")


def _without_replies(what: str, checked: Checked) -> Failure:
    reasons = "; ".join(checked.refused[:3])
    if checked.not_finite:
        return Failure(f"diverged: every {what} held numbers that are not finite")
    return Failure(f"no {what} could be used: {reasons}", lost=not checked.raised)


def wait_for_clients(
    grid: Grid, num_clients: int | None, least: int, seconds: float, stop: threading.Event
) -> list[int]:
    """Return the ids of the connected clients at the start of a run.

    Parameters
    ----------
    num_clients : how many to wait for; None: until their number stops changing
    least : with fewer no trial can run

    Raises
    ------
    ConfigError
        If too few are there in time.
    """
    began = time.monotonic()
    nodes = wait_for_nodes(grid, num_clients, began + seconds, stop)
    wanted = max(least, num_clients or 1)
    if len(nodes) < wanted and is_simulated(grid):
        raise ConfigError(
            f"clients: expected {wanted}, the simulation has {len(nodes)} nodes; add --federation-config "
            f"num-supernodes={wanted}"
        )
    if len(nodes) < wanted:
        raise ConfigError(
            f"clients: expected {wanted}, only {len(nodes)} connected after "
            f"{time.monotonic() - began:.0f} s; start more SuperNodes, or set a larger wait_seconds"
        )
    return nodes
