"""Every error that this package raises on purpose.

::

    FBOError
    ├── ConfigError      a setting, an option or a search space is wrong; nothing was started
    ├── WireError        a message is malformed, of another version or not for this study
    │   └── ModelError   a model that came over the wire is refused, or failed in its sandbox
    ├── NumericalError   a matrix or an iteration failed beyond repair
    ├── ObjectiveError   an evaluation of the user's objective failed
    └── JournalError     a journal is in use, damaged, of another version or of another study

Each message names the thing, what was expected and what came, in one line.
"""

from __future__ import annotations


class FBOError(Exception):
    """Base class: catch this to catch everything this package raises on purpose."""


class ConfigError(FBOError, ValueError):
    """A setting, an option or a search space cannot be used."""


class WireError(FBOError, ValueError):
    """What came over the wire cannot be trusted or understood.

    Parameters
    ----------
    message : names the thing, the expectation and the value
    reason : one word, by which a study counts what was refused: "schema", "study", "agent", "space", "phase",
        "round", "trial", "num-trials" and "num-failed" for that entry of a message, "content", "size",
        "encoding", "names", "dtype", "shape", "not-finite", "bounds", "values" and "disclosed" for its form,
        "covariance" and "report" for a content that makes no sense
    """

    def __init__(self, message: str, reason: str = "report") -> None:
        super().__init__(message)
        self.reason = reason


class ModelError(WireError):
    """A model that came over the wire is refused, or did not predict within its limits."""


class NumericalError(FBOError, ArithmeticError):
    """A computation failed although its input was well-formed."""


class ObjectiveError(FBOError, RuntimeError):
    """An objective raised, or returned something that is not a finite number."""


class JournalError(FBOError, OSError):
    """A journal cannot be used."""
