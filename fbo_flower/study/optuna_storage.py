"""Open an Optuna storage from what a user may name: a URL, a file, or a storage object."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fbo_flower.errors import ConfigError, kind_of
from fbo_flower.space.optuna import require_optuna

_DATABASES, _JOURNALS = (".db", ".sqlite", ".sqlite3"), (".log", ".journal")
SQLITE = "sqlite:///"
BUSY_SECONDS = 1.0  # to wait for a locked database; Optuna itself tries five times

Storage = Any  # a URL, a path or an `optuna.storages.BaseStorage`, which has no types where it is missing


def storage_name(storage: Storage) -> Storage:
    """Return a storage with a file in the form of a URL or path that `open_storage` knows, with `~` expanded.

    "study.db" becomes "sqlite:///study.db".

    Raises
    ------
    ConfigError
        If Optuna is not installed, or `storage` cannot be one.
    """
    require_optuna("optuna")
    if hasattr(storage, "create_new_trial"):
        return storage
    if not isinstance(storage, str | os.PathLike):
        raise ConfigError(
            f"optuna: expected a URL such as 'sqlite:///study.db', got {kind_of(storage)}; or a file, or a "
            "storage of Optuna"
        )
    text = os.fspath(storage)
    if "://" in text and not text.startswith(SQLITE):
        return text
    path = Path(text.removeprefix(SQLITE)).expanduser()
    if not text.startswith(SQLITE) and path.suffix not in _DATABASES + _JOURNALS:
        raise ConfigError(
            f"optuna: expected a URL such as 'sqlite:///study.db', or a file that ends in .db (SQLite) or "
            f".log (Optuna's journal), got {text!r}"
        )
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"optuna: expected a file in an existing directory, got {text!r}")
    return f"{path}" if path.suffix in _JOURNALS else f"{SQLITE}{path}"


def open_storage(storage: Storage) -> Any:
    """Return the `optuna.storages.BaseStorage` that `storage_name` names; Optuna's errors pass."""
    optuna = require_optuna("optuna")
    storage = storage_name(storage)
    if not isinstance(storage, str):
        return storage
    if storage.startswith(SQLITE):
        waits = {"connect_args": {"timeout": BUSY_SECONDS}}
        return optuna.storages.RDBStorage(storage, engine_kwargs=waits)
    if "://" in storage:
        return optuna.storages.get_storage(storage)
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(storage))


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Let Optuna log warnings only; it would log a line for every study that is created."""
    optuna = require_optuna("optuna")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
