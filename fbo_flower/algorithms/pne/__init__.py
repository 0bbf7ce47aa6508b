"""PF-PNE, the personalised federated X-armed bandit with double elimination [Li2024]."""
