"""The only reader and the only writer of files: gates on the way in, atomic on the way out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np  # noqa: TC002  (contract sketch: to be imported inside functions)


@dataclass(frozen=True)
class Content:
    """The bytes of one regular file, read once through one descriptor, and their sha256."""

    path: Path
    data: bytes
    sha256: str


def read(path: Path, *, max_bytes: int | None = None, exit_code: int = 3) -> Content:
    """Read a regular file whole (O_NONBLOCK, fstat, size limit); anything else is refused."""
    raise NotImplementedError


def sniff(content: bytes) -> str:
    """Tell the format by content: `onnx`, `zip`, `pt2`, `torchscript`, `pickle`, `text`, …."""
    raise NotImplementedError


def read_input_set(path: Path) -> list[tuple[str, dict[str, np.ndarray[Any, Any]]]]:
    """Read `.npz`, `.safetensors` or an ONNX test_data_set folder: (set name, arrays by name)."""
    raise NotImplementedError


@dataclass(frozen=True)
class ExternalFile:
    """A data file beside a model that passed the gate of promise P7; `offset`+`length` checked."""

    location: str
    path: Path
    size: int


class Output:
    """An artifact being written: temp files in the target's folder, all or nothing.

    Refuses (exit 8) a folder, a symlink, the input itself (unless in_place), a path inside the
    input's external data. `commit` fsyncs, reads back, renames, in the order of design section 7.
    """

    def __init__(
        self, path: Path, *, inputs: Sequence[Path] = (), in_place: bool = False
    ) -> None:
        raise NotImplementedError

    def write(self, chunks: Iterable[bytes]) -> str:
        """Stage the main file; give its sha256."""
        raise NotImplementedError

    def write_side(self, name: str, chunks: Iterable[bytes]) -> str:
        """Stage a file beside it (external data, sidecar); give its sha256."""
        raise NotImplementedError

    def commit(self) -> None:
        """Make everything staged visible, in a safe order."""
        raise NotImplementedError

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove what was staged and not committed."""


def stream(path: Path, offset: int, length: int, block: int = 1 << 22) -> Iterator[bytes]:
    """Read part of a file in blocks, never whole."""
    raise NotImplementedError


def write_text(path: Path, text: str) -> None:
    """Write a report or plan atomically (same gates as `Output`)."""
    raise NotImplementedError


_ = Mapping
