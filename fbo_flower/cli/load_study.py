"""Load what `fbo-flower report` is given: the directory of a study, or a server's journal."""

from __future__ import annotations

from pathlib import Path

from fbo_flower.cli.watch_source import find_journals
from fbo_flower.errors import ConfigError
from fbo_flower.study.directory import holds_study
from fbo_flower.study.study import Study


def load_study(path: Path) -> Study:
    """Return a saved study; without one, what the journals of its server hold so far.

    Raises
    ------
    ConfigError
        If there is neither, or a file is malformed.
    JournalError
        If a journal cannot be read.
    """
    from fbo_flower.strategies.study_start import study_of_journal

    if path.is_file():
        return study_of_journal(path)
    if holds_study(path) or not path.is_dir():
        return Study.load(path)
    journals = [journal for journal in find_journals(path) if journal.parent.name != "prior"]
    if not journals:
        raise ConfigError(
            f"{path}: expected a study (study.json) or a server's journal (study.db), got neither; if the "
            "run goes on, wait until its first algorithm has ended"
        )
    return Study.merge([study_of_journal(journal) for journal in journals], name=path.resolve().name)
