"""Searches in stages beside all others at equal ε and compute, and the evidence for the default design."""
