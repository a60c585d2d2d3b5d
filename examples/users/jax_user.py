"""A JAX user: tune a network on private records, save it, load it elsewhere, predict.

python examples/users/jax_user.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from scipy.stats import loguniform
from sklearn.datasets import load_digits

import dphypo
from dphypo.jax import DPSGD


def init(key: jax.Array, width: int) -> dict[str, jax.Array]:
    first, second = jax.random.split(key)
    return {"in": jax.random.normal(first, (64, width)) / 8, "out": jax.random.normal(second, (width, 10)) / width**0.5}


def predict(params: dict[str, jax.Array], pixels: jax.Array) -> jax.Array:
    """The logits of one picture."""
    return jax.nn.relu(pixels @ params["in"]) @ params["out"]


def main(folder: Path) -> None:
    pixels, labels = load_digits(return_X_y=True)
    # The loss of one record is the cross entropy of predict; loss= takes any other, loss(params, record) -> scalar.
    train = DPSGD(init=init, predict=predict, data=(pixels / 16, labels), score="accuracy", epochs=5)
    space = dphypo.Space({"learning_rate": loguniform(0.1, 10), "width": [16, 32], "clipping": ["normalise"]})
    release = dphypo.tune(space, train, epsilon=8, delta=1e-5, survey=6, journal=folder / "tune.db")
    release.save(folder / "release")

    loaded = dphypo.load_release(folder / "release")  # the arrays, as init gave them
    digit = predict(loaded.model, jnp.asarray(pixels[0] / 16)).argmax()
    print(f"The first picture shows a {int(digit)}; the model was trained with {dict(loaded.params or {})}.")
    print(loaded.certificate.statement())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else sys.exit(__doc__))
