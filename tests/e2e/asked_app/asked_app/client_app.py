"""Agents that are asked by their sites; they have no objective of their own."""

from fbo_flower import Asked, Float, Int, SearchSpace, client_app

space = SearchSpace({"rate": Float(1e-4, 1.0, log=True), "depth": Int(1, 8)})
app = client_app(Asked(timeout=600), space, seed=5, minimize=True, disclose="trials")
