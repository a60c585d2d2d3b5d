"""The data sets, and the grids of hyperparameters on which they are trained."""
