"""Input sets given by the user: `.npz`, `.safetensors` or an ONNX test_data_set folder."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from oprep.converters import archives
from oprep.converters.formats import ADVICE, WORDS, sniff
from oprep.converters.output import Output
from oprep.converters.reading import Content, read
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

INPUT_FILE = re.compile(r"input_(\d+)\.pb")
POSITIONAL = re.compile(r"arr_(\d+)")
ARRAY_KINDS = "biufcSU"
MAX_NPY_HEADER = 10_000
SAFE_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


class InputSource(NamedTuple):
    """One input set: arrays by input name, or by position where the file has no names.

    A test_data_set is in order of its file numbers, whatever names its tensors carry.
    """

    name: str
    arrays: dict[str | int, Array]
    path: Path = Path()
    ordered: bool = False

    def bind(self, names: Sequence[str]) -> dict[str, Array]:
        """Give the arrays by the model's input names; exit 3 where they cannot be told apart.

        Inputs without an array are left out: whether one is needed is the model's affair.
        """
        if all(key in names for key in self.arrays):
            return {str(key): array for key, array in self.arrays.items()}
        places = [self._place(index, key) for index, key in enumerate(self.arrays)]
        if all(place is not None and place < len(names) for place in places):
            pairs = zip(places, self.arrays.values(), strict=True)
            return {names[place]: array for place, array in pairs if place is not None}
        unknown = [key for key in self.arrays if key not in names]
        raise OprepError(
            f"the model has no input `{unknown[0]}`",
            where=f"{self.path}, input set `{self.name}`",
            notes=(
                "the set has " + ", ".join(f"`{key}`" for key in self.arrays),
                "the model has " + ", ".join(f"`{name}`" for name in names),
            ),
            help="name the arrays as the model names its inputs",
            exit_code=ExitCode.MODEL,
        )

    def _place(self, index: int, key: str | int) -> int | None:
        if isinstance(key, int) or self.ordered:
            return key if isinstance(key, int) else index
        numbered = POSITIONAL.fullmatch(key)
        return int(numbered[1]) if numbered else None


def read_input_set(path: Path, *, max_bytes: int | None = None) -> list[InputSource]:
    """Read `.npz`, `.safetensors` or an ONNX test_data_set folder, told by content; else exit 3.

    A folder is one set (`input_0.pb`, …) or holds several of such folders.
    """
    if path.is_dir():
        return _read_folder(path, max_bytes)
    content = read(path, max_bytes=max_bytes)
    found = sniff(content.data)
    if found == "npz":
        return [InputSource(path.stem, _read_npz(content, max_bytes), path)]
    if found == "safetensors":
        return [InputSource(path.stem, _read_safetensors(content), path)]
    raise OprepError(
        f"`{path.name}` is {WORDS[found]}, not a set of inputs",
        where=str(path),
        help=ADVICE.get(found, "") if found in ("git-lfs", "html", "gzip") else HOW_TO_SAVE,
        exit_code=ExitCode.MODEL,
    )


HOW_TO_SAVE = "give `.npz`, `.safetensors` or a test_data_set folder"


def save_input_set(folder: Path, name: str, arrays: Mapping[str, Array]) -> Path:
    """Write one input set as a test_data_set folder `folder/name`, which `read_input_set` reads."""
    from onnx import numpy_helper

    target = folder / name
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OprepError(
            f"the folder `{target}` cannot be made",
            where=str(target),
            notes=(error.strerror or str(error),),
            exit_code=ExitCode.OUTPUT,
        ) from error
    for index, (key, array) in enumerate(arrays.items()):
        with Output(target / f"input_{index}.pb") as output:
            tensor = numpy_helper.from_array(array, key)
            output.write([tensor.SerializeToString(deterministic=True)])
            output.commit()
    return target


def _read_npz(content: Content, max_bytes: int | None) -> dict[str | int, Array]:
    arrays: dict[str | int, Array] = {}
    for name, data in archives.members(content, max_bytes):
        arrays[name.removesuffix(".npy")] = _read_npy(content, name, data)
    return arrays


def _read_npy(content: Content, name: str, data: bytes) -> Array:
    import numpy as np
    from numpy.lib import format as npy

    where = f"{content.path}, entry `{name}`"
    file = io.BytesIO(data)
    try:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = header(file, max_header_size=MAX_NPY_HEADER)
    except Exception as error:  # the header is parsed as Python text: anything may come of it
        raise _bad_array("is not readable", where, str(error)) from error
    if dtype.kind not in ARRAY_KINDS:
        note = "objects are pickled" if dtype.hasobject else "NumPy itself has no such dtype"
        raise _bad_array(f"has dtype `{dtype}`", where, note)
    if any(dim < 0 for dim in shape) or prod(shape) * dtype.itemsize != len(data) - file.tell():
        sizes = f"shape {list(shape)} of `{dtype}`, {len(data) - file.tell()} bytes"
        raise _bad_array("has not the bytes that it declares", where, sizes)
    flat = np.frombuffer(data, dtype, offset=file.tell()) if prod(shape) else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _read_safetensors(content: Content) -> dict[str | int, Array]:
    import ml_dtypes
    import numpy as np
    from safetensors import SafetensorError, deserialize

    try:
        tensors = deserialize(content.data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise _bad_array("is not readable", str(content.path), str(error)) from error
    arrays: dict[str | int, Array] = {}
    for name, tensor in sorted(tensors):
        dtype = SAFE_DTYPES.get(tensor["dtype"])
        if dtype is None:
            where = f"{content.path}, tensor `{name}`"
            raise _bad_array(f"has dtype `{tensor['dtype']}`", where, "it is not supported")
        scalar = np.dtype(getattr(ml_dtypes, dtype, dtype))
        flat = np.frombuffer(bytes(tensor["data"]), np.uint8).view(scalar)
        arrays[name] = flat.reshape(tensor["shape"])
    return arrays


def _read_folder(path: Path, max_bytes: int | None) -> list[InputSource]:
    folders = [path] if _input_files(path) else sorted(_subfolders(path), key=_natural)
    if not folders:
        raise OprepError(
            f"`{path.name}` holds no input set",
            where=str(path),
            notes=("neither `input_0.pb` nor a folder with one is in it",),
            help=HOW_TO_SAVE,
            exit_code=ExitCode.MODEL,
        )
    return [_read_set(folder, max_bytes) for folder in folders]


def _subfolders(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.is_dir() and _input_files(entry)]


def _natural(path: Path) -> tuple[str | int, ...]:
    parts = re.split(r"(\d+)", path.name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts))


def _input_files(folder: Path) -> list[tuple[int, Path]]:
    try:
        found = [(INPUT_FILE.fullmatch(entry.name), entry) for entry in folder.iterdir()]
    except OSError as error:
        raise OprepError(
            f"the folder `{folder}` cannot be read",
            where=str(folder),
            notes=(error.strerror or str(error),),
            exit_code=ExitCode.MODEL,
        ) from error
    return sorted((int(match[1]), entry) for match, entry in found if match)


def _read_set(folder: Path, max_bytes: int | None) -> InputSource:
    arrays: dict[str | int, Array] = {}
    for index, path in _input_files(folder):
        name, array = _read_tensor(read(path, max_bytes=max_bytes))
        key: str | int = name if name and name not in arrays else index
        arrays[key] = array
    return InputSource(folder.name, arrays, folder, ordered=True)


def _read_tensor(content: Content) -> tuple[str, Array]:
    import onnx
    from onnx import numpy_helper

    from oprep.converters.frontends.onnx_parse import parse_into
    from oprep.converters.frontends.onnx_sizes import tensor_fault

    tensor = onnx.TensorProto()
    parse_into(tensor, content.data, str(content.path), "a tensor")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        note = "its data lies in another file"
        raise _bad_array("is not a whole tensor", str(content.path), note)
    fault = tensor_fault(tensor)
    if fault:
        raise _bad_array("is not a whole tensor", str(content.path), fault)
    return tensor.name, numpy_helper.to_array(tensor)


def _bad_array(fact: str, where: str, note: str) -> OprepError:
    return OprepError(
        f"an input array {fact}", where=where, notes=(note,), exit_code=ExitCode.MODEL
    )
