"""Models of an objective: Gaussian processes and what approximates them."""
