"""Surveys: short, noisy runs whose results are all published, then one full run at the setting they point to."""
