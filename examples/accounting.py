"""What a search costs before anything has run: one DP-SGD run, forty-odd of them, and choosing adaptively.

python examples/accounting.py
"""

from __future__ import annotations

import dp_accounting

import dphypo
from dphypo.mechanisms import SampledGaussian

# One run of the paper's MNIST experiment: 60 000 records, batches of 256, 10 epochs, noise multiplier 0.71.
DELTA = 1e-5


def run(noise: float) -> dp_accounting.DpEvent:
    return SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=noise).event


RUN = run(0.71)


def main() -> None:
    alone = dphypo.account(RUN, dphypo.Pmf({1: 1.0})).one_run(DELTA)["pld"]
    print(f"one run alone, as it is usually reported: epsilon = {alone:.2f}")
    for band in (dphypo.Band(1, 1), dphypo.Band(0.75, 2)):
        kind = "uniform search" if band.C == 1 else "adaptive search in the band (0.75, 2)"
        guarantee = dphypo.account(RUN, dphypo.Geometric(mean=40), band)
        bounds = guarantee.bounds(DELTA)
        print(f"{kind}, 40 runs on average: epsilon = {bounds['profile']:.2f}; by the paper {bounds['paper']:.2f}")
    total = dphypo.calibrate(
        run,
        dphypo.Geometric(mean=40),
        dphypo.Band(0.75, 2),
        epsilon=4.0,
        delta=DELTA,
    )
    print(f"for a total of epsilon = 4 that adaptive search needs a noise multiplier of {total.noise_multiplier:.3f}")
    print()
    print(total.guarantee.certificate(DELTA).statement())


if __name__ == "__main__":
    main()
