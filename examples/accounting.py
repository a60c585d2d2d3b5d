"""What a search costs before anything has run: one DP-SGD run, forty-odd of them, and choosing adaptively.

python examples/accounting.py
"""

from __future__ import annotations

import dp_accounting

import dphypo

# One run of the paper's MNIST experiment: 60 000 records, batches of 256, 10 epochs, noise multiplier 0.71.
STEP = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.71))
RUN = dp_accounting.SelfComposedDpEvent(STEP, 2344)
DELTA = 1e-5


def main() -> None:
    alone = dphypo.account(RUN, dphypo.Pmf({1: 1.0})).one_run(DELTA)["pld"]
    print(f"one run alone, as it is usually reported: epsilon = {alone:.2f}")
    for band in (dphypo.Band(1, 1), dphypo.Band(0.75, 2)):
        kind = "uniform search" if band.C == 1 else "adaptive search in the band (0.75, 2)"
        guarantee = dphypo.account(RUN, dphypo.Geometric(mean=40), band)
        bounds = guarantee.bounds(DELTA)
        print(f"{kind}, 40 runs on average: epsilon = {bounds['profile']:.2f}; by the paper {bounds['paper']:.2f}")
    total = dphypo.calibrate(
        lambda noise: dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(noise)), 2344
        ),
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
