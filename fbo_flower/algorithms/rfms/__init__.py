"""RFMS, restrictive federated model selection [Sun2019]."""
