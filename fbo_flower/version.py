"""The version of the package, which any room may import."""

__version__ = "0.1.0"
