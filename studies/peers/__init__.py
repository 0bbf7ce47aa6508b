"""Comparators from the field: `consensus`, `fmtbo`, `flora` and `dp-vote`; `docs/papers/peers.md`."""

from fbo_flower.algorithms import register
from studies.peers.record import RECORDS

for _record in RECORDS:
    register(_record)
