"""Searches, stages and surveys on landscapes: many at once, or, without adaptivity, by quadrature."""
