"""A Flower `Grid` in this process, which calls the ClientApp directly, one node after the other.

The strategy and the ClientApp run unchanged. For tests, the grid can inject faults: nodes that are down, stay
silent, raise, or reply with wrong content or late.

A `ClockedGrid` has a simulated clock. Another grid delivers its messages as fast as it can. Their replies
arrive in the order of simulated time, so hours of stragglers pass in seconds and repeat exactly.
"""

from __future__ import annotations

import gc
import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Literal

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fbo_flower.clients.app import TuningApp
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.durations import Duration
from fbo_flower.space.checks import check_integer
from fbo_flower.strategies.exchange import Clocked, ForwardingGrid, MessageGrid, ReplyProgress, SentAt

# Python looks for garbage cycles whenever 700 more objects exist than before. A round makes hundreds of
# objects per agent and keeps most of them until it ends, so nearly all of these searches find nothing: they
# took a fifth of the time of the grid's process. Here a search begins after 50000 new objects. What existed
# before the study, such as imported modules, is not searched at all.
THRESHOLDS = (50_000, 10, 10)  # of `gc.set_threshold`
LONG_SECONDS = 0.1  # a batch that works so long may leave large objects behind


def collect_rarely() -> None:
    """Set this process to collect garbage rarely from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely within this context; afterwards as before.

    A process that has turned its collector off, or has frozen objects itself, is left as it is.
    """
    if not gc.isenabled() or gc.get_freeze_count() or gc.get_threshold()[0] >= THRESHOLDS[0]:
        yield
        return
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


RUN_ID = 1
BATCH = 256  # messages that the in-process grid has answered together
FIRST_NODE = 1001  # unlike any partition id, so that code which confuses the two fails
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Fault:
    """A fault that the grid injects at one node.

    Parameters
    ----------
    kind : "down": the node is not connected, and a message to it comes back as an error; "silent": the node
        never answers; "raising": the ClientApp fails; "malformed": `change` alters its reply; "slow": its
        reply comes `seconds` late
    rounds : rounds in which the fault occurs; None: all. Round 0 is the first registration; a later
        registration belongs to the round that it opens. A round has passed once one of its messages is sent
    seconds : delay of "slow"
    change : makes the reply malformed, in place or by returning other content
    """

    kind: Literal["down", "silent", "raising", "malformed", "slow"]
    rounds: Sequence[int] | None = None
    seconds: float = 0.0
    change: Callable[[RecordDict], RecordDict] | None = None

    def strikes(self, server_round: int) -> bool:
        """Return whether the fault occurs in this round."""
        return self.rounds is None or server_round in self.rounds


class LocalGrid(MessageGrid):
    """The nodes of one ClientApp on this machine; subclasses deliver the messages.

    Parameters
    ----------
    num_nodes : number of nodes; node `i` gets `partition-id` i and `num-partitions` in its `node_config`
    run_config : run config in every node's context
    node_configs : partition -> further entries of the node's `node_config`
    """

    def __init__(
        self,
        num_nodes: int,
        run_config: Mapping[str, Scalar] | None = None,
        node_configs: Mapping[int, Mapping[str, Scalar]] | None = None,
    ) -> None:
        num_nodes = check_integer("num_nodes", num_nodes, 1)
        self.contexts: dict[int, Context] = {}
        self._num_messages = 0
        for partition in range(num_nodes):
            own = (node_configs or {}).get(partition, {})
            config = {"partition-id": partition, "num-partitions": num_nodes, **own}
            node = FIRST_NODE + partition
            self.contexts[node] = Context(RUN_ID, node, config, RecordDict(), dict(run_config or {}))
        identify()

    def set_run(self, run: Run) -> None:
        """Do nothing, because the grid has a single run."""

    @property
    def run(self) -> Run:
        """Return the grid's only run."""
        return Run.create_empty(RUN_ID)

    def _numbered(self, messages: Iterable[Message]) -> dict[str, Message]:
        """Return the messages by their ids, which they get here."""
        found = {}
        for message in messages:
            if message.metadata.dst_node_id not in self.contexts:
                raise KeyError(message.metadata.dst_node_id)
            self._num_messages += 1
            message.metadata.__dict__["_message_id"] = number = str(self._num_messages)
            found[number] = message
        return found

    def get_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push messages and return the replies that arrive within `timeout` seconds, by default 60."""
        waiting = set(self.push_messages(messages))
        deadline = time.monotonic() + (60.0 if timeout is None else timeout)
        replies: list[Message] = []
        while waiting and time.monotonic() < deadline:
            new = list(self.pull_messages(waiting))
            replies += new
            waiting -= {reply.metadata.reply_to_message_id for reply in new}
            if not self.awaits(waiting):
                break  # no other reply can arrive
            time.sleep(0.001)
        return replies

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages may still arrive."""
        return True


def identify() -> None:
    """Set the ids of this process, a Flower internal that a Message needs outside a Flower run."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN_ID, 0, 0


def reply_of(app: ClientApp, message: Message, context: Context) -> Message:
    """Return the ClientApp's reply; if the app fails, return an error message, as Flower does.

    A strategy may send one content to all nodes. Over a network each node gets its own, and so it does here.
    """
    received = copy(message)
    received.content = deepcopy(message.content)
    try:
        reply = app(received, context)
    except Exception as error:
        return _error(error, message)
    if reply.metadata.reply_to_message_id == message.metadata.message_id:
        return reply
    # some of Flower's mods answer the client's reply with their error, and nobody would ever get that
    lost = reply.error if reply.has_error() else Error(code=2, reason="expected a reply to the message")
    return Message(lost, reply_to=message)


def reply_all(
    app: ClientApp, batch: Sequence[tuple[Message, Context]], on_reply: Callable[[], object] = lambda: None
) -> list[Message]:
    """Return the ClientApp's replies to messages of different nodes; it may answer them together.

    Parameters
    ----------
    on_reply : called whenever an agent of a `TuningApp` has done its task
    """
    begin = time.thread_time()
    if isinstance(app, TuningApp):
        replies = []
        for (message, _), reply in zip(batch, app.answer_together(batch, on_reply), strict=True):
            replies.append(_error(reply, message) if isinstance(reply, Exception) else reply)
    else:
        replies = [reply_of(app, message, context) for message, context in batch]
    if time.thread_time() - begin > LONG_SECONDS and gc.get_threshold() == THRESHOLDS:
        gc.collect(1)  # young garbage: objectives may leave large objects in cycles
    return replies


def _error(error: Exception, message: Message) -> Message:
    return Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message)


class InProcessGrid(LocalGrid):
    """Nodes of one ClientApp in this process.

    Parameters
    ----------
    app : the ClientApp
    faults : partition -> the fault of its node
    num_nodes, run_config, node_configs : see `LocalGrid`
    """

    def __init__(
        self,
        app: ClientApp,
        num_nodes: int,
        *,
        run_config: Mapping[str, Scalar] | None = None,
        faults: Mapping[int, Fault] | None = None,
        node_configs: Mapping[int, Mapping[str, Scalar]] | None = None,
    ) -> None:
        super().__init__(num_nodes, run_config, node_configs)
        self._app = app
        self._faults = dict(faults or {})
        self._next_round = 0  # 0: the registration
        self._replies: dict[str, tuple[float, Message]] = {}

    # -- Flower's interface --------------------------------------------------------------------

    def get_node_ids(self) -> list[int]:
        """Return the ids of the nodes that are connected now, before the next round."""
        nodes = dict.fromkeys(self.contexts)
        for partition, fault in self._faults.items():
            if fault.kind == "down" and fault.strikes(self._next_round):
                nodes.pop(FIRST_NODE + partition, None)
        return list(nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Deliver messages and let their nodes answer at once, in batches."""
        upcoming, items = self._next_round, self._numbered(messages)
        waiting = list[tuple[Message, Context]]()
        progress = ReplyProgress(len(items))
        for message_id, message in items.items():
            text = message.metadata.group_id  # a round of our strategies; others write what they like
            group = int(text) if text.isdecimal() else 0
            server_round = group or upcoming
            self._next_round = max(self._next_round, group + 1)
            if (node := message.metadata.dst_node_id) - FIRST_NODE in self._faults:
                self._deliver(message_id, message, server_round)
            else:
                waiting.append((message, self.contexts[node]))
        for begin in range(0, len(waiting), BATCH):
            batch = waiting[begin : begin + BATCH]
            for (message, _), reply in zip(batch, reply_all(self._app, batch, progress.add), strict=True):
                self._replies[message.metadata.message_id] = 0.0, reply
        return list(items)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived; each reply is returned once."""
        now = time.monotonic()
        wanted = message_ids if isinstance(message_ids, Set) else set(message_ids)
        found = []
        for message_id, (due, reply) in [*self._replies.items()]:
            if message_id in wanted and due <= now:
                found.append(reply)
                del self._replies[message_id]
        return found

    def awaits(self, message_ids: Iterable[str]) -> bool:
        """Return whether a reply to one of these messages has yet to be pulled."""
        return any(message_id in self._replies for message_id in message_ids)

    # -- one node ------------------------------------------------------------------------------

    def _deliver(self, message_id: str, message: Message, server_round: int) -> None:
        node = message.metadata.dst_node_id
        fault = self._faults[node - FIRST_NODE]
        kind, due = fault.kind if fault.strikes(server_round) else "none", 0.0
        if kind == "silent":
            return
        if kind == "down":
            gone = Error(code=ErrorCode.NODE_UNAVAILABLE, reason="planted fault")
            reply = Message(gone, reply_to=message)
        elif kind == "raising":
            reply = Message(Error(code=2, reason="RuntimeError: planted fault"), reply_to=message)
        else:
            reply = reply_of(self._app, message, self.contexts[node])
        if kind == "malformed" and fault.change is not None:
            reply = Message(fault.change(reply.content), reply_to=message)
        elif kind == "slow":
            due = time.monotonic() + fault.seconds
        self._replies[message_id] = due, reply


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
