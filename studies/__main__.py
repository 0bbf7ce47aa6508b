"""`python -m studies`: `fbo-flower` with the studies' problems and comparators, and four more commands."""

from __future__ import annotations

from fbo_flower.cli.main import main

if __name__ == "__main__":
    main("python -m studies", "studies.commands")
