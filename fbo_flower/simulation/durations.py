"""How long simulated evaluations take: the same, log-normal, heavy-tailed, or measured ones.

A duration is a function of the agent, its trial and a random generator, so it does not depend on when or
where the trial runs, and a simulation repeats exactly. On the command line it is a text:

- `constant:SECONDS`: every evaluation takes the same time;
- `lognormal:MEDIAN,SIGMA`: log-normal; a third number is the spread of the agents' own medians;
- `heavy:SHORTEST,EXPONENT`: Pareto; the mean is infinite for an exponent up to 1;
- `table:FILE`: measured ones, from a CSV file with the columns `agent` and `seconds` and a row per trial in
  order, or from the `times.csv` of a study.

A `ClockedGrid` has a simulated clock. Messages are answered by another grid as fast as it can. Their replies
are delivered in the order of simulated time, so hours of stragglers pass in seconds and repeat exactly.
"""

from __future__ import annotations

import csv
import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message

from fbo_flower.errors import ConfigError, did_you_mean, kind_of
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.grids import LocalGrid
from fbo_flower.simulation.settings import Clock
from fbo_flower.space.checks import as_real, check_integer, check_number
from fbo_flower.space.copies import own
from fbo_flower.storage.paths import open_text, path_of
from fbo_flower.strategies.exchange import Clocked, ForwardingGrid, SentAt
from fbo_flower.study.schema import TIMES
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table, unguard

Duration = Callable[[str, int, np.random.Generator], float]  # (agent, trial, rng) -> seconds
Durations = float | Mapping[str, float | Sequence[float]] | Duration


def constant(seconds: float) -> Duration:
    """Return a duration that is always the same."""
    number = float(check_number("seconds", seconds, 0.0))
    return lambda agent, trial, rng: number


def log_normal(median: float = 1.0, sigma: float = 1.0, of_agents: float = 0.0, seed: int = 0) -> Duration:
    """Return log-normal durations.

    Parameters
    ----------
    median : seconds
    sigma : standard deviation of the logarithm, over an agent's trials
    of_agents : standard deviation of the logarithm of the agents' own medians
    seed : of the agents' medians
    """
    median, sigma = check_number("median", median, 0.0), check_number("sigma", sigma, 0.0)
    of_agents, seed = check_number("of_agents", of_agents, 0.0), check_integer("seed", seed, 0)

    def seconds(agent: str, trial: int, rng: np.random.Generator) -> float:
        own = of_agents * generator(seed, "speed", agent).standard_normal() if of_agents else 0.0
        return median * math.exp(own + sigma * rng.standard_normal())

    return seconds


def heavy_tailed(shortest: float = 1.0, exponent: float = 1.5) -> Duration:
    """Return Pareto durations: `P(T > t) = (shortest / t) ** exponent`.

    Parameters
    ----------
    exponent : the mean is infinite up to 1, the variance up to 2
    """
    shortest, exponent = check_number("shortest", shortest, 0.0), check_number("exponent", exponent, 1e-3)
    return lambda agent, trial, rng: float(shortest * (1.0 + rng.pareto(exponent)))


def slower(duration: Duration, factors: Mapping[str, float]) -> Duration:
    """Return a duration that is `factors[agent]` times as long, once for agents that are not named."""
    factors = own(factors)
    return lambda agent, trial, rng: factors.get(agent, 1.0) * duration(agent, trial, rng)


def durations(given: Durations) -> Duration:
    """Return the duration that a user means by a number, a mapping or a function.

    Parameters
    ----------
    given : seconds of every evaluation; or agent -> seconds, or a table of them, of which trial t takes
        entry t, and begins again after the last; or a function `(agent, trial, rng) -> seconds`

    Raises
    ------
    ConfigError
        If it is none of these, or a number is negative or not finite.
    """
    if isinstance(given, Mapping):
        table = {str(agent): _seconds(agent, value) for agent, value in given.items()}

        def listed(agent: str, trial: int, rng: np.random.Generator) -> float:
            if agent not in table:
                raise ConfigError(f"durations: expected seconds for every agent, got none for {agent!r}")
            return table[agent][trial % len(table[agent])]

        return listed
    if callable(given):
        return given
    if (number := as_real(given)) is not None:
        return constant(number)
    raise ConfigError(f"durations: expected seconds, a mapping or a function, got {kind_of(given)}")


def _seconds(agent: object, value: Any) -> list[float]:
    listed = list(value) if isinstance(value, Sequence | np.ndarray) else [value]
    numbers = [as_real(seconds) for seconds in listed]
    found = [float(number) for number in numbers if number is not None and 0 <= number < math.inf]
    if not found or len(found) < len(listed):
        raise ConfigError(f"durations: expected seconds for {agent!r}, not negative, got {value!r}")
    return found


FORMS = "constant:SECONDS, lognormal:MEDIAN,SIGMA, heavy:SHORTEST,EXPONENT or table:FILE"
_KINDS: dict[str, tuple[Callable[..., Duration], int, int]] = {  # name -> function, fewest and most numbers
    "constant": (constant, 1, 1),
    "lognormal": (log_normal, 2, 3),
    "heavy": (heavy_tailed, 2, 2),
}


def parse_durations(text: str) -> Duration:
    """Return the durations in a text.

    Raises
    ------
    ConfigError
        If the text has another form, a number is out of bounds, or the file of a table cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> parse_durations("constant:2.5")("north", 0, np.random.default_rng(0))
    2.5
    """
    name, _, rest = text.partition(":")
    if name == "table" and rest:
        return durations(_read_table(path_of(rest, "durations")))
    if name not in _KINDS:
        known = (*_KINDS, "table")
        raise ConfigError(f"durations: expected {FORMS}, got {text!r}{did_you_mean(name, known)}")
    make, fewest, most = _KINDS[name]
    try:
        numbers = [float(word) for word in rest.split(",")]
    except ValueError:
        numbers = []
    if not fewest <= len(numbers) <= most or not all(map(math.isfinite, numbers)):
        raise ConfigError(f"durations: expected {FORMS}, with numbers, got {text!r}")
    return make(*numbers)


def _read_table(path: Path) -> dict[str, list[float]]:
    """Return agent -> seconds of its trials, in the order of the rows."""
    found: dict[str, list[float]] = {}
    try:
        with open_text(path) as file:
            rows = csv.DictReader(file)
            names = set(rows.fieldnames or ())
            if not {"agent", "seconds"} <= names and not {"agent", "started", "ended"} <= names:
                raise ConfigError(
                    f"durations: {path}: expected the columns agent and seconds, or the times.csv of a "
                    f"study, got {', '.join(sorted(names)) or 'none'}"
                )
            for row in rows:
                measured = "seconds" not in names
                seconds = float(row["ended"]) - float(row["started"]) if measured else float(row["seconds"])
                found.setdefault(unguard(row["agent"]), []).append(seconds)
    except OSError as error:
        raise ConfigError(f"durations: {path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, csv.Error) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"durations: {path}: expected a CSV file with numbers, {error}") from error
    return found


class ClockedGrid(Clocked, ForwardingGrid):
    """A grid whose nodes answer after the simulated duration of their evaluations.

    Parameters
    ----------
    inner : the grid that answers the messages
    duration : of an evaluation, by agent and trial
    seed : of the durations
    exchange_seconds : time on the way of a task and its reply together, half of it in either direction
    """

    def __init__(
        self, inner: LocalGrid, duration: Duration, seed: int, exchange_seconds: float = 0.0
    ) -> None:
        super().__init__(inner)
        self._inner, self._duration, self._seed = inner, duration, seed
        self._one_way = exchange_seconds / 2.0
        self._now = 0.0
        self._free: dict[str, float] = {}  # agent -> when it has done its tasks
        self._times: dict[tuple[str, int], tuple[float, float]] = {}
        self._missing: set[str] = set()  # ids of the messages whose replies have not arrived
        self._heap: list[tuple[float, int, str]] = []  # of them: when the reply is due, place, id
        self._arrived: dict[str, Message] = {}
        self._num_sent = 0
        # agent -> first trial and number of trials of its last task from before, and when its reply was due
        self._restored: dict[str, tuple[int, int, float]] = {}

    # -- the clock -----------------------------------------------------------------------------

    def now(self) -> float:
        """Return the seconds since the simulation began."""
        return self._now

    def advance(self, to: float) -> None:
        """Let time pass until `to`, in which nothing happens."""
        self._now = max(self._now, to)

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""
        ids = list(message_ids)
        return any(i in self._arrived for i in ids) or self._inner.awaits(ids)

    def restore(self, now: float, sent: Sequence[SentAt]) -> None:
        """Set the clock to `now`, after these tasks were sent in an earlier process."""
        for task in sent:
            reply_due = self._do_work(task) + self._one_way
            self._restored[task.agent] = task.trial, task.num_trials, reply_due
        self._now = now

    @property
    def times(self) -> Mapping[tuple[str, int], tuple[float, float]]:
        """Agent and trial -> start and end of its evaluation, in simulated seconds."""
        return self._times

    # -- Flower's interface --------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages, and set when their replies are due."""
        listed = list(messages)
        due = [self._due_time(message) for message in listed]
        ids = [str(i) for i in self._inner.push_messages(listed)]
        for message_id, seconds in zip(ids, due, strict=True):
            self._num_sent += 1
            self._missing.add(message_id)
            heapq.heappush(self._heap, (seconds, self._num_sent, message_id))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are due next, once they have arrived; the clock advances to that time."""
        wanted = message_ids if isinstance(message_ids, Set) else set(message_ids)
        missing = wanted & self._missing
        for reply in self._inner.pull_messages(missing) if missing else []:
            message_id = reply.metadata.reply_to_message_id
            self._arrived[message_id] = reply
            self._missing.discard(message_id)
        found: list[Message] = []
        skipped: list[tuple[float, int, str]] = []
        while self._heap:
            entry = heapq.heappop(self._heap)
            seconds, _, message_id = entry
            is_lost = message_id not in self._arrived and not self._inner.awaits([message_id])
            if message_id not in wanted or is_lost:
                skipped.append(entry)  # somebody else may ask for it later
                continue
            if (found and seconds > self._now) or message_id not in self._arrived:
                skipped.append(entry)
                break
            self.advance(seconds)
            found.append(self._arrived.pop(message_id))
        for entry in skipped:
            heapq.heappush(self._heap, entry)
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push messages and return their replies, in the order of simulated time."""
        waiting, replies = set(self.push_messages(messages)), []
        while waiting:
            new = self.pull_messages(waiting)
            replies += new
            waiting -= {reply.metadata.reply_to_message_id for reply in new}
            if not new and not self._inner.awaits(waiting):
                break
        return replies

    # -- durations -----------------------------------------------------------------------------

    def _due_time(self, message: Message) -> float:
        """Return when the reply to a message is due, and note the times of its evaluations."""
        config = message.content.get("config") if message.has_content() else None
        if not isinstance(config, ConfigRecord) or "num-trials" not in config:
            return self._now
        agent, trial, num_trials = (config[name] for name in ("agent", "trial", "num-trials"))
        task = SentAt(self._now, str(agent), int(str(trial)), int(str(num_trials)))
        *known, reply_due = self._restored.pop(task.agent, (-1, 0, 0.0))
        if known == [task.trial, task.num_trials]:
            return max(self._now, reply_due)  # under way when the earlier process ended: it is not sent twice
        return max(self._now, self._do_work(task) + self._one_way)

    def _do_work(self, task: SentAt) -> float:
        """Return when an agent has done a task, and note the times of its evaluations."""
        agent = task.agent
        time = max(task.time + self._one_way, self._free.get(agent, 0.0))
        for trial in range(task.trial, task.trial + task.num_trials):
            if (agent, trial) in self._times:  # a task that is sent again was done the first time
                time = max(time, self._times[agent, trial][1])
                continue
            seconds = float(self._duration(agent, trial, generator(self._seed, "duration", agent, trial)))
            if not 0.0 <= seconds < math.inf:
                raise ConfigError(
                    f"durations: expected seconds that are finite and not negative, got {seconds!r} for "
                    f"trial {trial} of agent {agent!r}"
                )
            self._times[agent, trial] = time, time + seconds
            time += seconds
        self._free[agent] = time
        return time


def duration_of(clock: Clock | None, engine: str) -> Duration | None:
    """Return how long the evaluations of a simulation take, or ConfigError; None: there is no clock."""
    if clock is None:
        return None
    if engine == "flower":
        raise ConfigError("clock: expected engine 'inline' or 'ray', got 'flower', which has a real clock")
    return (
        parse_durations(clock.durations) if isinstance(clock.durations, str) else durations(clock.durations)
    )


def with_simulated_times(study: Study, times: Mapping[tuple[str, int], tuple[float, float]]) -> Study:
    """Return the study with the times of a `ClockedGrid` for its disclosed trials, not measured ones."""
    label, trials = study.algorithms[0], study.trials
    rows = [
        {"algorithm": label, "agent": agent, "trial": trial, "started": start, "ended": end}
        for agent, trial in zip(trials["agent"].tolist(), trials["trial"].tolist(), strict=True)
        if (agent, trial) in times
        for start, end in [times[agent, trial]]
    ]
    return study.with_times(Table.from_rows(rows, TIMES))
