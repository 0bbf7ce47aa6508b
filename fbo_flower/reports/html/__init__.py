"""A study as one HTML page that needs no network."""
