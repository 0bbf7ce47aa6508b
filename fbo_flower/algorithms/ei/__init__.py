"""Expected improvement: `ei`, every agent alone, and `fed-ei`, guided by sums over the other agents."""
