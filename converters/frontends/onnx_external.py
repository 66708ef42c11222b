"""External data of an ONNX model: the gate before any byte is read, and the move to other names.

Tensors lie in initializers, sparse initializers, attributes, functions and nested graphs; all of
them are found by what fields hold, not by what an attribute's type claims.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from oprep.converters.files import ExternalFile, Identity, identify, stream
from oprep.converters.frontends.onnx_fault import refused
from oprep.converters.frontends.onnx_sizes import STRING, needed_bytes, tensor_fault

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

EXTERNAL = 1
KEYS = frozenset({"location", "offset", "length", "checksum"})
IN_MEMORY = "_ORT_MEM"
"""ONNX Runtime reads such a location as a pointer into the process."""
MAX_DIGITS = 20
MAX_SMALL = 1 << 20
MAX_OFFSET = (1 << 63) - 1
WIDEN = "pass `--external-data-root DIR` if the files of a folder around it may be read"


@dataclass(frozen=True)
class _Range:
    """What one tensor claims of a data file."""

    tensor: str
    location: str
    offset: int
    length: int


def external_files(
    model: ModelProto, folder: Path, root: Path | None = None
) -> tuple[ExternalFile, ...]:
    """Give the data files of a linted model, sorted by location, after checking every claim (P7).

    `folder` is the model's; `root` widens what symbolic links may lead to (caches of model hubs).
    Exit 3: a location that is absolute or leads out, a file that is missing, no regular file, or
    has a second name, unknown keys, an offset and length that its bytes do not back or that differ
    from what dims and data type need.
    """
    where = str(folder)
    claims: dict[str, list[_Range]] = {}
    for tensor in tensors(model):
        if tensor.data_location == EXTERNAL or tensor.external_data:
            claim = _claim(tensor, where)
            claims.setdefault(claim.location, []).append(claim)
    return tuple(_gate(folder, root, name, claims[name]) for name in sorted(claims))


def relocate(model: ModelProto, names: Mapping[str, str]) -> None:
    """Change locations as `names` says, in place, and nothing else."""
    for tensor in tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names.get(entry.value, entry.value)


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Give every tensor of a model, wherever it lies; nesting is bounded by the parser."""
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)
        yield from _of_attributes(function.attribute_proto)
    for training in model.training_info:
        yield from _of_graph(training.initialization)
        yield from _of_graph(training.algorithm)


def _of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        if node.attribute:
            yield from _of_attributes(node.attribute)


def _of_attributes(attributes: Iterable[AttributeProto]) -> Iterator[TensorProto]:
    for attribute in attributes:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
        for tensor in (*sparse, *attribute.sparse_tensors):
            yield tensor.values
            yield tensor.indices
        if attribute.HasField("g"):
            yield from _of_graph(attribute.g)
        for graph in attribute.graphs:
            yield from _of_graph(graph)


def small_tensor(files: Sequence[ExternalFile]) -> Callable[[TensorProto], bytes | None]:
    """Give a reader of single tensors that passed the gate; None for one above 1 MiB."""
    known = {file.location: file for file in files}

    def read(tensor: TensorProto) -> bytes | None:
        given = {entry.key: entry.value for entry in tensor.external_data}
        file = known.get(given.get("location", ""))
        needed = needed_bytes(tensor.data_type, tuple(tensor.dims))
        if file is None or needed > MAX_SMALL:
            return None
        offset = int(given.get("offset", "0"))
        return b"".join(stream(file.path, offset, needed, expected=file.identity))

    return read


def _claim(tensor: TensorProto, where: str) -> _Range:
    """Read where the data of a tensor should lie; its size must be what dims and type need."""
    entries = [(entry.key, entry.value) for entry in tensor.external_data]
    given = dict(entries)
    location = given.get("location", "")
    what = f"external data `{location}` of tensor `{tensor.name}`"
    unknown = sorted(set(given) - KEYS)
    if unknown:
        raise refused(f"{what} has the unknown key `{unknown[0]}`", where)
    if len(given) != len(entries):
        raise refused(f"{what} gives a key twice", where)
    if tensor.data_location != EXTERNAL:
        raise refused(f"{what} is there, but the tensor is not marked as external", where)
    if tensor.HasField("raw_data"):
        raise refused(f"{what} is not its only data: bytes lie in the model too", where)
    if not location:
        raise refused(f"{what} has no location", where)
    if tensor.data_type == STRING:
        raise refused(f"{what} holds strings, which cannot be external", where)
    fault = tensor_fault(tensor)
    if fault:
        raise refused(f"{what} cannot be measured", where, fault)
    needed = needed_bytes(tensor.data_type, tuple(tensor.dims))
    offset = _number(given.get("offset", "0"), "offset", what, where)
    length = _number(given["length"], "length", what, where) if "length" in given else needed
    if length != needed:
        note = f"its dims {list(tensor.dims)} need {needed} bytes, its length is {length}"
        raise refused(f"{what} has the wrong length", where, note)
    return _Range(tensor.name, location, offset, length)


def _number(text: str, key: str, what: str, where: str) -> int:
    """Read digits and nothing else: a sign, a space or 30 digits would wrap around elsewhere."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else -1
    if not 0 <= value <= MAX_OFFSET:
        note = f"it is `{text[:40]}`; digits up to {MAX_OFFSET} are allowed"
        raise refused(f"{what} has no usable {key}", where, note)
    return value


def _gate(folder: Path, root: Path | None, location: str, claims: list[_Range]) -> ExternalFile:
    """Open a data file once, judge what was opened, and compare every range with its size."""
    path = _within(folder, root, location, claims[0].tensor)
    identity = _judge(path, location, str(folder))
    for claim in claims:
        if claim.offset + claim.length > identity.size:
            note = (
                f"tensor `{claim.tensor}` needs {claim.length} bytes from {claim.offset} on, "
                f"the file has {identity.size}"
            )
            raise refused(f"external data `{location}` is too short", str(path), note)
    return ExternalFile(location, path, identity.size, identity)


def _within(folder: Path, root: Path | None, location: str, tensor: str) -> Path:
    """Give the canonical path of a location; refuse one that leads out of the allowed folder."""
    where = str(folder)
    pure = PurePosixPath(location)
    parts = location.replace("\\", "/").split("/")
    if IN_MEMORY in location:
        fact = f"external data `{location}` stands for an address in memory"
        raise refused(fact, where, f"tensor `{tensor}` names it")
    if pure.is_absolute() or ".." in parts or "\0" in location or ":" in parts[0]:
        note = f"tensor `{tensor}` names it; locations are relative to the model's folder"
        raise refused(f"external data `{location}` leads out of the model's folder", where, note)
    inside = folder.resolve()
    try:
        path = (inside / location).resolve(strict=True)
    except FileNotFoundError as error:
        note = f"tensor `{tensor}` has its data there"
        fact = f"external data `{location}` is missing"
        raise refused(fact, where, note, "put it beside the model") from error
    except (OSError, RuntimeError) as error:
        raise refused(f"external data `{location}` cannot be opened", where, str(error)) from error
    allowed = [inside] if root is None else [inside, root.resolve()]
    if not any(path.is_relative_to(place) for place in allowed):
        fact = f"external data `{location}` is a symbolic link out of the model's folder"
        raise refused(fact, where, f"it leads to `{path}`", WIDEN)
    return path


def _judge(path: Path, location: str, where: str) -> Identity:
    """Look at the file itself through a descriptor: regular, one name, still where it was."""
    state, real = identify(path)
    if stat.S_ISREG(state.st_mode) and state.st_nlink != 1:
        note = f"it has {state.st_nlink} names; one of them may lie outside of the folder"
        action = "copy it to a file of its own"
        raise refused(f"external data `{location}` is a hard link", where, note, action)
    if real is not None and real != os.fspath(path):
        raise refused(f"external data `{location}` moved while it was opened", where)
    return Identity.of(state)
