"""Input sets that the user gave for a PyTorch program, read without torch as far as that goes.

`.npz` and `.safetensors` become arrays by name here. A `.pt` of tensors in plain containers can
hold a whole call, `(args, kwargs)`; it is judged here and loaded where torch is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters.files import InputSource, read, read_input_set, sniff
from oprep.converters.program_source import require_data

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Given:
    """One input set: arrays by name or position, or the bytes of a file that torch has to load."""

    name: str
    arrays: Mapping[str | int, Any] | None = None
    data: bytes = b""

    def plain(self) -> dict[str, Any]:
        """Give it as plain data, to travel to a child."""
        arrays = None if self.arrays is None else dict(self.arrays)
        return {"name": self.name, "arrays": arrays, "data": self.data}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Given:
        """Build it from what `plain` gave."""
        return Given(plain["name"], plain["arrays"], plain["data"])


def open_inputs(
    inputs: Iterable[Path | Mapping[str, Any]], *, max_bytes: int | None = None
) -> tuple[Given, ...]:
    """Read files, and take mappings of arrays as they are; exit 3 for what is no input set."""
    found: list[Given] = []
    for item in inputs:
        if isinstance(item, Mapping):
            arrays: dict[str | int, Any] = {name: array for name, array in item.items()}
            found.append(Given(f"given {len(found) + 1}", arrays))
        elif item.is_dir():
            found += [_arrays(source) for source in read_input_set(item, max_bytes=max_bytes)]
        else:
            found += _file(item, max_bytes)
    return tuple(found)


def _file(path: Path, max_bytes: int | None) -> list[Given]:
    content = read(path, max_bytes=max_bytes)
    if sniff(content.data) not in ("torch", "pickle"):
        return [_arrays(source) for source in read_input_set(path, max_bytes=max_bytes)]
    require_data(content, "save tensors, numbers and strings in tuples, lists and dicts only")
    return [Given(path.stem, data=content.data)]


def _arrays(source: InputSource) -> Given:
    """Keep names; a test_data_set goes by position."""
    arrays: dict[str | int, Any] = dict(source.arrays)
    if source.ordered:
        arrays = dict(enumerate(source.arrays.values()))
    return Given(source.name, arrays)
