"""The earlier names of :mod:`dphypo.torch`, ``jax``, ``sklearn``, ``optuna`` and ``transformers``."""
