"""Secure sums: agents send numbers under masks that cancel in their sum, and only there.

Every pair of neighbours shares a mask, which one adds and the other subtracts; every agent adds one of its
own besides [Bonawitz2017, Bell2020]. Who has sent its numbers is then settled: of those who have, neighbours
reveal shares of the own mask; of those who have not, the pair's mask; never both of one agent.
`docs/privacy.md` says what that is good for.

[Bonawitz2017] Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning,
CCS 2017.
[Bell2020] Bell et al.: Secure single-server aggregation with (poly)logarithmic overhead, CCS 2020.
"""
