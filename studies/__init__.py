"""Studies with fbo-flower: papers' experiments, attacks, comparators, problems of papers, benchmarks.

Nothing here is installed with the package, and nothing here uses a name of it that is not public
(`docs/reference.md`). `python -m studies --help` lists what can be run, `make studies` runs the tests.

Importing it registers the comparators (`consensus`, `fmtbo`, `flora`, `dp-vote`, `share-best`,
`share-random`) and the problems of the papers, so that `simulate` and the experiments know their names.
Processes that an experiment starts import it too, because what they are sent comes from here.
"""

from __future__ import annotations

import sys

from fbo_flower.cli.main import guard

if sys.orig_argv[1:3] == ["-m", "studies"]:
    guard()  # before the imports below, which take seconds

from studies import peers, problems

__all__ = ["peers", "problems"]
