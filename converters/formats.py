"""What a file is, told by its content and never by its name."""

from __future__ import annotations

import io
import re
import zipfile
from typing import IO

from oprep.converters.reading import Content, Readable, as_stream
from oprep.opsets.errors import ExitCode, OprepError

WORDS = {
    "onnx": "an ONNX model",
    "pt2": "a PyTorch exported program (`.pt2`)",
    "old-pt2": "an exported program in the format of PyTorch before 2.8",
    "aoti": "an AOTInductor package (compiled code in a `.pt2`)",
    "torchscript": "a TorchScript archive",
    "torch": "a file of torch.save (a pickle in a zip archive)",
    "npz": "a NumPy archive (`.npz`)",
    "npy": "a NumPy array (`.npy`)",
    "zip": "a zip archive",
    "pickle": "a Python pickle",
    "safetensors": "a safetensors file",
    "tflite": "a TensorFlow Lite model",
    "gguf": "a GGUF file",
    "hdf5": "an HDF5 file",
    "gzip": "a gzip-compressed file",
    "elf": "a compiled library or program",
    "git-lfs": "a Git LFS pointer, not the file it stands for",
    "html": "a web page",
    "json": "JSON text",
    "text": "text",
    "empty": "empty",
    "unknown": "of no format known here",
}
ADVICE = {
    "git-lfs": "run `git lfs pull` to fetch the file itself",
    "html": "download the file itself; a web page was saved in its place",
    "old-pt2": "load it with the PyTorch that saved it, and export the model again",
    "aoti": "name the exported program that it was made from",
    "torchscript": "give it to `oprep convert`, with `--trust-model` if the file is yours",
    "torch": "name what builds its model: `oprep convert model.py:build --weights FILE`",
    "pickle": "name what builds its model: `oprep convert model.py:build --weights FILE`",
    "gzip": "unpack it first",
}
MAGIC = (
    (b"version https://git-lfs.github.com/spec/", "git-lfs"),
    (b"\x93NUMPY", "npy"),
    (b"GGUF", "gguf"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
    (b"\x1f\x8b", "gzip"),
    (b"\x7fELF", "elf"),
)
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
BROKEN = (*(zipfile.BadZipFile, ValueError, NotImplementedError, OSError, EOFError, OprepError),)
MAX_HEAD = 1 << 20
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
MODEL_FIELDS = {
    1: VARINT,
    2: LENGTH,
    3: LENGTH,
    4: LENGTH,
    5: VARINT,
    6: LENGTH,
    7: LENGTH,
    8: LENGTH,
    14: LENGTH,
    20: LENGTH,
    25: LENGTH,
    26: LENGTH,
}
TELLING = frozenset({1, 7, 8})
MAX_FIELD = 1000
MAX_WALKED = 100_000
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
MAX_TEXT = 1 << 16


def sniff(data: bytes) -> str:
    """Tell the format by content; the answer is a key of `WORDS`."""
    if not data:
        return "empty"
    for magic, name in MAGIC:
        if data.startswith(magic):
            return name
    if data.startswith(ZIP):
        return _zip_kind(io.BytesIO(data))
    if data[4:8] == b"TFL3":
        return "tflite"
    if data[0] == 0x80 and len(data) > 1 and 2 <= data[1] <= 5:
        return "pickle"
    if _is_safetensors(data, len(data)):
        return "safetensors"
    if _is_onnx(data):
        return "onnx"
    return _text_kind(data)


def sniff_file(source: Readable) -> str:
    """Tell the format of a file that may be too large to be read whole; as `sniff` does."""
    if isinstance(source, Content):
        return sniff(source.data)
    head = source.read_at(0, min(source.size, MAX_HEAD))
    if head.startswith(ZIP):
        return _zip_kind(as_stream(source, 0, source.size))
    if source.size > len(head) and _is_safetensors(head, source.size):
        return "safetensors"
    return sniff(head)


def require_onnx(content: Content) -> None:
    """Refuse (exit 3) a model file that is no ONNX protobuf, saying what it is instead."""
    found = sniff(content.data)
    if found != "onnx":
        raise OprepError(
            f"`{content.path.name}` is {WORDS[found]}"
            + ("" if found in ("empty", "unknown") else ", not an ONNX model"),
            where=str(content.path),
            notes=(f"{len(content.data)} bytes, told by content",),
            help=ADVICE.get(found, ""),
            exit_code=ExitCode.MODEL,
        )


def _zip_kind(file: IO[bytes]) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except BROKEN:
        return "zip"
    inner = {name.partition("/")[2] for name in names}
    if any(name.startswith("models/") for name in inner):
        return "pt2"
    if any(name.startswith("data/aotinductor/") for name in inner):
        return "aoti"
    if "serialized_exported_program.json" in names:
        return "old-pt2"
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        return "torchscript"
    if "data.pkl" in inner:
        return "torch"
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    return "zip"


def _is_safetensors(data: bytes, size: int) -> bool:
    length = int.from_bytes(data[:8], "little")
    return size >= 10 and data[8:9] == b"{" and 2 <= length <= size - 8


def _is_onnx(data: bytes) -> bool:
    """Walk the top-level fields as a ModelProto has them; a file cut short still counts."""
    at, seen = 0, set()
    for _ in range(MAX_WALKED):
        if at >= len(data):
            break
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= MAX_FIELD or MODEL_FIELDS.get(number, kind) != kind:
            return False
        seen.add(number)
        if kind == VARINT:
            _, at = _varint(data, at)
        elif kind == LENGTH:
            size, at = _varint(data, at)
            at += size
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        else:
            return False
    return bool(seen & TELLING)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at


def _text_kind(data: bytes) -> str:
    head = data[:MAX_TEXT]
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return "unknown"
    if CONTROL.search(head):
        return "unknown"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "html"
    return "json" if start.startswith((b"{", b"[")) else "text"
