"""Many DP-SGD trainings at once: one vectorised program, per-sample clipping exact.

K models with K learning rates, clipping norms and noise multipliers see the same Poisson batch, so that the first
convolution is one matrix product for all of them; initial weights and noise are independent. Each model alone has
exactly the law of a DP-SGD run.
"""
