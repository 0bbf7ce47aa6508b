"""What to evaluate next: acquisition functions and proposals."""
