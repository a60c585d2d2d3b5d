"""What training in PyTorch, JAX and scikit-learn shares: costs, scores, splits, persons, settings. No framework."""
