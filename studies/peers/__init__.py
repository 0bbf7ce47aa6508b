"""Comparators from the field: `consensus`, `fmtbo`, `flora`, `dp-vote`, `share-best`, `share-random`."""

from fbo_flower.algorithms import register
from studies.peers.record import RECORDS

for _record in RECORDS:
    register(_record)
