"""The algorithms. Each is a frozen dataclass of options with methods for the server and for the agent.

`registry.py` collects one record per algorithm. An algorithm's module is imported only when that algorithm is
used, because a device imports this package anew for every message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fbo_flower.algorithms.algorithm_record import AlgorithmRecord, Meaning, PlotStyle
from fbo_flower.algorithms.messages import ArraySpec, Content, Replies, Schema, real, summable, whole
from fbo_flower.algorithms.options import check_choice, check_secure_sums, checked
from fbo_flower.algorithms.protocol import Algorithm, Independent, Progress, TrialsPerRound, uniform_point
from fbo_flower.algorithms.records import AgentState, Phase, Report, Task, Trials
from fbo_flower.algorithms.registry import Algorithms, built_in_class, find, register
from fbo_flower.algorithms.requests import Evaluation
from fbo_flower.errors import did_you_mean
from fbo_flower.space.checks import check_flag, check_integer, check_number

if TYPE_CHECKING:
    from fbo_flower.algorithms.bandits.fed1_ucb import Fed1UCB
    from fbo_flower.algorithms.bandits.fn_ucb import FNUCB
    from fbo_flower.algorithms.bandits.hct import HCT
    from fbo_flower.algorithms.co_kg.co_kg import CoKG
    from fbo_flower.algorithms.ei.fed_ei import FedEI
    from fbo_flower.algorithms.ei.local import ExpectedImprovement
    from fbo_flower.algorithms.fts.dp_fts import DPFTS
    from fbo_flower.algorithms.fts.fts import FTS
    from fbo_flower.algorithms.pne.pf_pne import PFPNE, FedPNE, LocalPNE
    from fbo_flower.algorithms.random_search import RandomSearch
    from fbo_flower.algorithms.rfms.rfms import RFMS
    from fbo_flower.algorithms.thompson import ThompsonSampling
    from fbo_flower.algorithms.transfer.rgpe_taf import RGPE, TAF

ALGORITHMS = Algorithms()

if not TYPE_CHECKING:  # type checkers read the imports above and report misspelt names

    def __getattr__(name):
        """Import the algorithm whose class has this name: `from fbo_flower.algorithms import FTS`."""
        record = built_in_class(name)
        if record is None:
            hint = "" if name.startswith("_") else did_you_mean(name, __all__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
        return record.load()

    def __dir__():
        return sorted({*globals(), *__all__})


def make_algorithm(name: str, options: Mapping[str, object]) -> Algorithm[Any]:
    """Build an algorithm by name.

    Raises
    ------
    ConfigError
        If the name or an option is unknown (the message lists the known ones), or if the package that
        registers the algorithm cannot be used.
    """
    made: Algorithm[Any] = find(name).load().from_options(options)
    return made


__all__ = [
    "ALGORITHMS", "DPFTS", "FNUCB", "FTS", "HCT", "PFPNE", "RFMS", "RGPE", "TAF", "AgentState",
    "Algorithm", "AlgorithmRecord", "ArraySpec", "CoKG", "Content", "Evaluation", "ExpectedImprovement",
    "Fed1UCB", "FedEI", "FedPNE", "Independent", "LocalPNE", "Meaning", "Phase", "PlotStyle",
    "Progress", "RandomSearch", "Replies", "Report", "Schema", "Task", "ThompsonSampling", "Trials",
    "TrialsPerRound", "check_choice", "check_flag", "check_integer", "check_number", "check_secure_sums",
    "checked", "make_algorithm", "real", "register", "summable", "uniform_point", "whole",
]  # fmt: skip
