"""The bundled Flower app, started by `flwr run .`: its server, its agents and its settings."""
