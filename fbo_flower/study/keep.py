"""`Keep`: what a run keeps on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fbo_flower.errors import ConfigError, kind_of

Directory = str | os.PathLike[str]


@dataclass(frozen=True)
class Keep:
    """What a run keeps on disk.

    Parameters
    ----------
    out : directory for the study's files, which are written also when the run is interrupted
    journals : directory for the run's journals, those of simulated agents included; a run that dies can be
        resumed from them. They cost some milliseconds per agent and round. None: no journals
    resume : continue the study in `journals` where it stopped, without repeating its evaluations
    messages : directory in whose folder `messages` the server saves the agents' messages, so that a later
        study can start from them with `Start(warm_start=...)`. None: `out`
    overwrite : replace the study in `out`, with all that was made from it; otherwise a directory with a study
        is refused
    label : name of this run in tables and pictures; None: the algorithm's name

    Raises
    ------
    ConfigError
        If `resume` is set without `journals`.

    Examples
    --------
    >>> Keep(resume=True)
    Traceback (most recent call last):
        ...
    fbo_flower.errors.ConfigError: keep: resume=True needs journals, the directory of the run to resume
    """

    out: Directory | None = None
    journals: Directory | None = None
    resume: bool = False
    messages: Directory | None = None
    overwrite: bool = False
    label: str | None = None

    def __post_init__(self) -> None:
        if self.resume and self.journals is None:
            raise ConfigError("keep: resume=True needs journals, the directory of the run to resume")
        for name in ("out", "journals", "messages"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | os.PathLike):
                raise ConfigError(f"{name}: expected the path of a directory, got {kind_of(value)}")
