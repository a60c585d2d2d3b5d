"""Exact noise: rounded Gaussians from 128-bit tables, keyed words, coins, noisy counts, sums and sums of vectors.

A float Gaussian is not a Gaussian: its last bits, its gaps and its largest value betray what it was added to. Here a
noisy number is an integer: a count or a sum on a grid, plus ⌊N + ½⌋ for a normal N, drawn by integer comparisons. That
is a Gaussian mechanism with a function applied to its output, up to a total variation that :func:`slack` states.
Nothing here needs PyTorch.
"""

from dphypo.noise.gaussian import noisy_count as noisy_count
from dphypo.noise.gaussian import noisy_sum as noisy_sum
from dphypo.noise.gaussian import rounded_gaussian as rounded_gaussian
from dphypo.noise.gaussian import slack as slack
from dphypo.noise.gaussian import slack_of_sum as slack_of_sum
from dphypo.noise.tables import Table as Table
from dphypo.noise.tables import table as table
from dphypo.noise.vectors import noisy_vector_sum as noisy_vector_sum
from dphypo.noise.vectors import slack_of_vector_sum as slack_of_vector_sum
from dphypo.noise.words import Words as Words
from dphypo.noise.words import poisson_sample as poisson_sample
from dphypo.noise.words import threshold as threshold
