"""Each algorithm as a Flower strategy: `FTS(...).start(grid, num_rounds=25)` in a ServerApp."""

from __future__ import annotations

from fbo_flower.strategies.base import TuningStrategy
from fbo_flower.strategies.co_kg import CoKG
from fbo_flower.strategies.dp_fts import DPFTS
from fbo_flower.strategies.fed1_ucb import Fed1UCB
from fbo_flower.strategies.fn_ucb import FNUCB
from fbo_flower.strategies.fts import FTS
from fbo_flower.strategies.hct import HCT
from fbo_flower.strategies.pf_pne import PFPNE, FedPNE, LocalPNE
from fbo_flower.strategies.random_search import RandomSearch
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.rfms import RFMS
from fbo_flower.strategies.rgpe import RGPE
from fbo_flower.strategies.taf import TAF
from fbo_flower.strategies.thompson import ThompsonSampling

STRATEGIES: dict[str, type[TuningStrategy]] = {
    "random": RandomSearch,
    "ts": ThompsonSampling,
    "fts": FTS,
    "dp-fts": DPFTS,
    "rgpe": RGPE,
    "taf": TAF,
    "pf-pne": PFPNE,
    "fed-pne": FedPNE,
    "local-pne": LocalPNE,
    "hct": HCT,
    "co-kg": CoKG,
    "fed1-ucb": Fed1UCB,
    "fn-ucb": FNUCB,
    "rfms": RFMS,
}

__all__ = [
    "DPFTS",
    "FNUCB",
    "FTS",
    "HCT",
    "PFPNE",
    "RFMS",
    "RGPE",
    "STRATEGIES",
    "TAF",
    "CoKG",
    "Fed1UCB",
    "FedPNE",
    "LocalPNE",
    "RandomSearch",
    "RoundProgress",
    "ThompsonSampling",
    "TuningStrategy",
]
