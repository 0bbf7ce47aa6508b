"""Expected improvement: `ei`, every agent alone, and `fed-ei`, with an anonymous pool of all observations."""
