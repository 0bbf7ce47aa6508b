"""Federated Thompson sampling [Dai2020] and its differentially private form [Dai2021]."""
