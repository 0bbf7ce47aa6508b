"""Parameters without effect: misspelt names, and clients that read their values elsewhere.

Two sources tell them. **Equal results:** two trials with different configurations whose clients, given the
same model, trained it to the same arrays, bit for bit. If the models and values of all their common rounds
are equal too, no parameter in which the configurations differ had an effect; if only the replies of common
clients are, none had that `build` did not read, because each trial draws clients of its own. A parameter is
named after `MIN_PAIRS` such pairs, unless two other trials that differ in such parameters alone had different
results. **Reads:** clients with the mod `tuned_run_config` say which entries they read, and `build` gets a
dict that notes its own. Where every reply says so, a parameter that nobody has read is named.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from logging import WARNING
from typing import Any

from flwr.app import ConfigRecord, Message
from flwr.common.logger import log

from fbo_flower.errors import did_you_mean, printable
from fbo_flower.federated.records import FederatedTrial
from fbo_flower.federated.replies import arrays_of
from fbo_flower.federated.run_config import READ
from fbo_flower.federated.state import digest_of, from_record

MIN_PAIRS = 3
MOST_TRIALS, MOST_CLIENTS = 40, 20  # that are compared
ADVICE = (
    "two usual reasons: a misspelt name, or clients that read context.run_config, which need "
    "ClientApp(mods=[tuned_run_config]) of fbo_flower.federated"
)


class Effects:
    """What is known about the effects of parameters.

    Parameters
    ----------
    names : of the parameters
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self.read_by_build: set[str] = set()
        self._read_by_clients: set[str] = set()
        self._keys: set[str] = set()  # of the clients' run config
        self._all_tell: bool | None = None  # whether every reply so far said what was read
        self._replies: dict[int, dict[tuple[int, str], str]] = {}  # trial -> (client, model) -> reply
        self._warned: set[str] = set()

    def take_reads(self, replies: Sequence[Message]) -> None:
        """Take the records of the mod out of replies."""
        for reply in replies:
            record = None if reply.has_error() else reply.content.pop(READ, None)
            if isinstance(record, ConfigRecord):
                self._read_by_clients.update(_texts(record.get("read")))
                self._keys.update(_texts(record.get("keys")))
            if not reply.has_error():
                self._all_tell = self._all_tell is not False and record is not None

    def note_training(self, trial: int, model: str, replies: Sequence[Message]) -> None:
        """Note what clients made of a model, by its digest, in the first round of a trial."""
        if len(self._replies) < MOST_TRIALS:
            some = sorted(replies, key=lambda reply: reply.metadata.src_node_id)[:MOST_CLIENTS]
            self._replies[trial] = {
                (reply.metadata.src_node_id, model): digest_of(from_record(arrays_of(reply)), {})
                for reply in some
            }

    def warn(self, trials: Sequence[FederatedTrial]) -> None:
        """Warn of parameters without effect, once of each."""
        pairs, equal = self._equal(trials)
        if new := sorted(equal - self._warned):
            log(WARNING, "%d pairs of trials with different configurations have exactly equal results: %s "
                "had no effect; %s", pairs, _listed(new), ADVICE)  # fmt: skip
            self._warned.update(new)
        if any(trial.has_value for trial in trials):
            new = sorted(self._unread() - self._warned)
            for name in new:
                log(WARNING, "%s: expected a parameter that build or a client reads, got one that none has "
                    "read; the run config has %s%s", name, _listed(self._keys) or "no keys",
                    did_you_mean(name, self._keys))  # fmt: skip
            self._warned.update(new)

    def without(self, trials: Sequence[FederatedTrial]) -> list[str]:
        """Return the parameters that had no effect, in the order of the space."""
        found = self._equal(trials)[1] | self._unread()
        return [name for name in self._names if name in found]

    def _unread(self) -> set[str]:
        read = self.read_by_build | self._read_by_clients
        return set(self._names) - read if self._all_tell else set()

    def _equal(self, trials: Sequence[FederatedTrial]) -> tuple[int, set[str]]:
        """Return the number of pairs with equal results, and the parameters that had no effect."""
        done = [t for t in trials if t.rounds and not t.failure and t.parent < 0][:MOST_TRIALS]
        equal: list[set[str]] = []
        others: list[set[str]] = []
        for one, two in itertools.combinations(done, 2):
            missing = object()
            different = {n for n in self._names if one.config.get(n, missing) != two.config.get(n, missing)}
            if not different:
                continue
            outcomes = list(zip(one.rounds, two.rounds, strict=False))
            if all(a.outcome and a.outcome == b.outcome for a, b in outcomes):
                equal.append(different)
                continue
            others.append(different)
            mine, its = self._replies.get(one.number, {}), self._replies.get(two.number, {})
            common = mine.keys() & its.keys()
            by_clients = different - self.read_by_build - self._read_by_clients
            if common and by_clients and all(mine[key] == its[key] for key in common):
                equal.append(by_clients)
                others.pop()  # what differs comes from the server, or from the draw of clients
        if len(equal) < MIN_PAIRS:
            return len(equal), set()
        found = set().union(*equal)
        for different in others:
            if different and different <= found:
                found -= different
        return len(equal), found


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _listed(names: Any) -> str:
    return printable(", ".join(sorted(names)))
