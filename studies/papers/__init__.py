"""The experiments of the papers, and what only they use."""
