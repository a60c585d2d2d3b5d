"""One search whose runs use several processes: by ``--devices``, or one of the commands in docs/clusters.md."""

import argparse

import torch
from torch import nn

import dphypo
from dphypo.torch import DPSGD

parser = argparse.ArgumentParser()
parser.add_argument("--journal", required=True)
parser.add_argument("--devices", type=int, help="processes of this machine; leave it out with torchrun")
parser.add_argument("--epochs", type=float, default=4)
parser.add_argument("--seed", type=int, help="for tests alone: whoever knows it can repeat every draw")


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


def records() -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes: the same records in the same order in every process."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (2000,), generator=generator)
    return torch.randn(2000, 5, generator=generator) + labels[:, None], labels


if __name__ == "__main__":  # processes of this machine import the script again
    given = parser.parse_args()
    mechanism = DPSGD(
        model=net, data=records(), score="accuracy", epochs=given.epochs, batch_size=300, devices=given.devices
    )
    entropy = dphypo.entropy.SYSTEM if given.seed is None else dphypo.entropy.Seeded(given.seed)
    release = dphypo.tune(mechanism, epsilon=4.0, delta=1e-5, survey=4, journal=given.journal, entropy=entropy)
    print(release)
