"""What is computed for all runs at once, and norms and sums of per-record gradients, by kinds of layers."""
