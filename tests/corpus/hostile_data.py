"""Models whose external data is missing, elsewhere, of another kind, or of another size."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
from onnx import TensorProto

from tests.corpus.hostile import Hostile, changed

SECRET = b"secret" * 100


def external(
    *, prepare: Callable[[Path], object] = lambda folder: None, **entries: object
) -> Callable[[Path], Path]:
    """Write a model whose weight lies in a file that `entries` describe, after `prepare`."""

    def make(folder: Path) -> Path:
        home = folder / "model"
        home.mkdir()
        (folder / "secret.bin").write_bytes(SECRET)
        prepare(home)

        def change(model: onnx.ModelProto) -> None:
            tensor = model.graph.initializer[0]
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
            tensor.data_location = TensorProto.EXTERNAL
            described = {"location": "data.bin", **entries}
            for key, value in described.items():
                tensor.external_data.add(key=key, value=str(value).replace("{folder}", str(folder)))

        return changed(change)(home)

    return make


def data_file(size: int) -> Callable[[Path], object]:
    """Prepare the data file with `size` bytes."""
    return lambda home: (home / "data.bin").write_bytes(bytes(size))


EXTERNAL: Sequence[Hostile] = (
    Hostile("data missing", external(), ("data.bin",)),
    Hostile("data up a folder", external(location="../secret.bin", length=8), ("../secret.bin",)),
    Hostile("data up and down", external(location="a/../../secret.bin", length=8), ("secret.bin",)),
    Hostile("data absolute", external(location="{folder}/secret.bin", length=8), ("secret.bin",)),
    Hostile("data without location", external(location="", length=8), ("location",)),
    Hostile(
        "data through a symlink",
        external(prepare=lambda home: (home / "data.bin").symlink_to("../secret.bin"), length=8),
        ("data.bin", "symlink"),
    ),
    Hostile(
        "data in a symlinked folder",
        external(
            prepare=lambda home: (home / "up").symlink_to("..", target_is_directory=True),
            location="up/secret.bin",
            length=8,
        ),
        ("up/secret.bin",),
    ),
    Hostile(
        "data through a hard link",
        external(
            prepare=lambda home: os.link(home.parent / "secret.bin", home / "data.bin"), length=8
        ),
        ("data.bin", "link"),
    ),
    Hostile(
        "data from a pipe",
        external(prepare=lambda home: os.mkfifo(home / "data.bin"), length=8),
        ("data.bin", "regular"),
    ),
    Hostile(
        "data from a folder",
        external(prepare=lambda home: (home / "data.bin").mkdir(), length=8),
        ("data.bin", "regular"),
    ),
    Hostile("data too short", external(prepare=data_file(4), length=8), ("data.bin", "8", "4")),
    Hostile("data length not the dims'", external(prepare=data_file(64), length=12), ("12", "8")),
    Hostile("offset past the end", external(prepare=data_file(8), offset=8, length=8), ("8",)),
    Hostile(
        "offset that wraps",
        external(prepare=data_file(8), offset=2**64 - 8, length=8),
        ("data.bin",),
    ),
    Hostile("negative offset", external(prepare=data_file(8), offset=-8, length=8), ("-8",)),
    Hostile("offset no number", external(prepare=data_file(8), offset="1e3"), ("1e3",)),
    Hostile("length no number", external(prepare=data_file(8), length="0x8"), ("0x8",)),
    Hostile(
        "key unknown", external(prepare=data_file(8), length=8, basepath="/etc"), ("basepath",)
    ),
)
