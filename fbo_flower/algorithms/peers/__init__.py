"""Comparators from the field: `consensus`, `fmtbo`, `flora` and `dp-vote`; `docs/papers/peers.md`."""
