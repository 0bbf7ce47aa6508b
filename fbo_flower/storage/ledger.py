"""The ledger of an agent: one row for everything it sent.

A row records one array or number of one message. The routing fields of a message together are one row,
`header`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.algorithms.registry import ENVELOPE

COLUMNS = (  # of the table `sent`: the fields of `LedgerEntry` in order
    "id INTEGER PRIMARY KEY, study TEXT NOT NULL, round INTEGER NOT NULL, phase TEXT NOT NULL, "
    "algorithm TEXT NOT NULL, name TEXT NOT NULL, shape TEXT NOT NULL, dtype TEXT NOT NULL, "
    "bytes INTEGER NOT NULL, source TEXT NOT NULL, again INTEGER NOT NULL"
)
_NAMED = ("num-failed", "disclosed.failures", "disclosed.incumbent", "disclosed.expected")
_CHOSEN_BY = "; chosen by: "  # separates the two texts of the column `source`


@dataclass(frozen=True)
class LedgerEntry:
    """One array or number that left an agent.

    Parameters
    ----------
    study, round, phase, algorithm : fields of the message; algorithm is "" if it was not recorded
    name : name of the array or number
    shape, dtype : e.g. "30" or "12 x 3"; shape is "" for a single number or text
    num_bytes : size of the content
    source : description of the data it was computed from, and who chose to disclose it
    again : True if the same message had been sent before
    """

    study: str
    round: int
    phase: str
    algorithm: str
    name: str
    shape: str
    dtype: str
    num_bytes: int
    source: str
    again: bool = False

    @property
    def num_numbers(self) -> int:
        """Number of entries of an array, 1 for a number; 0 for texts and bytes, e.g. of a model."""
        if self.dtype in {"text", "uint8"}:
            return 0
        return math.prod(int(side) for side in self.shape.split(" x ")) if self.shape else 1

    @property
    def made_from(self) -> str:
        """The data that it was computed from."""
        return self.source.partition(_CHOSEN_BY)[0]

    @property
    def chosen_by(self) -> str:
        """Who chose that it is disclosed; "" for what the algorithm sends, and if it was not recorded."""
        return self.source.partition(_CHOSEN_BY)[2]


@dataclass(frozen=True)
class Ledger:
    """Everything one agent has sent.

    Parameters
    ----------
    agent : the agent's id
    rows : in the order in which they were sent
    registration : names of the fields that the agent sends at every registration
    disclosure : the agent's setting `disclose` at its last registration, and who chose it; "" if unknown
    """

    agent: str
    rows: Sequence[LedgerEntry]
    registration: Sequence[str] = ()
    disclosure: str = ""


def entries(
    arrays: Mapping[str, AnyArray],
    config: Mapping[str, object],
    algorithm: str,
    source: str,
    again: bool = False,
    chosen_by: str = "",
) -> list[LedgerEntry]:
    """Return the ledger rows of one packed report (see `wire.encode_report`).

    Parameters
    ----------
    chosen_by : who chose what the agent discloses in addition to the algorithm's report; "": unknown
    """
    values = dict(json.loads(str(config.get("values", "{}"))))
    values |= {name: config[name] for name in _NAMED if name in config}
    rest = {key: value for key, value in config.items() if key not in {*_NAMED, "values"}}
    found = [
        (name, " x ".join(map(str, array.shape)), str(array.dtype), array.nbytes)
        for name, array in arrays.items()
    ]
    for name, value in values.items():
        found.append((name, "", "text" if isinstance(value, str) else type(value).__name__, len(str(value))))
    found.append((ENVELOPE, "", "text", len(json.dumps(rest, default=str))))
    study, phase = str(config.get("study", "")), str(config.get("phase", ""))
    header = study, int(str(config.get("round", 0))), phase, algorithm
    disclosed = f"{source}{_CHOSEN_BY}{chosen_by}" if chosen_by else source
    return [
        LedgerEntry(*header, *what, disclosed if what[0].startswith("disclosed.") else source, again)
        for what in found
    ]
