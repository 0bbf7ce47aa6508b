"""Secure sums: agents send masked numbers, and the masks cancel only in the sum of all agents.

Every pair of neighbours shares a pairwise mask, which one of them adds and the other subtracts. Every agent
also adds a private mask of its own [Bonawitz2017, Bell2020]. The server then announces which agents have sent
their numbers. For an agent that has, its neighbours reveal shares of its private mask; for an agent that has
not, they reveal the pairwise masks; never both for the same agent. `docs/privacy.md` describes what this
protects.

[Bonawitz2017] Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning,
CCS 2017.
[Bell2020] Bell et al.: Secure single-server aggregation with (poly)logarithmic overhead, CCS 2020.
"""
