"""Real private searches on MNIST, not simulations: many at once, through ``dphypo.Study``.

The searches ask for runs; what waits is trained in rounds, all models of a round in one vectorised program, and told.
A run is scored on one half of the test pictures, which count as public as in the paper, plus Gaussian noise as a
private score would have; what is released is judged on the other half. The space is the paper's finite grid, so that
results compare with the landscapes.

**What this measures, and what it does not.** The models of a round have weights, noise and score noise of their own but
share their Poisson batches. For runs of different searches that is no bias: it pairs the arms. Runs of *one* search
that share a round are correlated in a way the theorem does not know; and the draws are seeded, equally in all arms. So
this is an experiment about utility on public data. Its ε is that of the declared events; a release would have it if
the batches were drawn for each run and the entropy were secret, as they are in ``dphypo.torch``.
"""
