"""Combine the models of several agents: barycenters, weights, tests of agreement."""
