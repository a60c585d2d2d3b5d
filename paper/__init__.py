"""The experiments of "DP-HyPO: An Adaptive Private Hyperparameter Optimization Framework", and what lies past them.

Run ``python -m paper --help``. The landscapes were trained for real (:mod:`paper.train`) and are committed; every
table and figure is made from them.
"""
