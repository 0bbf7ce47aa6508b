"""Secure sums: agents send masked numbers, and the masks cancel only in the sum of all agents.

Every pair of members of a group shares a pairwise mask, which one of them adds and the other subtracts. Every
member also adds a private mask of its own [Bonawitz2017]. The server then announces which members have sent
their numbers, and the members sign that. A member reveals something only if enough members signed the same as
it did: for a member that has sent its numbers, a share of its private mask; for one that has not, the
pairwise mask; never both for the same member. `docs/privacy.md` describes what this protects.

[Bonawitz2017] Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning,
CCS 2017.
"""
