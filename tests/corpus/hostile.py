"""Model files that are broken or meant to harm: each is made in a folder and has to be refused."""

from __future__ import annotations

import os
import pickle
import socket
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper, parser

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"


@dataclass(frozen=True)
class Hostile:
    """A file to refuse: `make` writes it into a folder and gives its path.

    One of the words of `says` has to stand in the message, to show that it names the cause.
    """

    name: str
    make: Callable[[Path], Path]
    says: tuple[str, ...]
    exit_code: int = 3


def raw(data: bytes | Callable[[], bytes], name: str = "model.onnx") -> Callable[[Path], Path]:
    """Write bytes."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data() if callable(data) else data)
        return path

    return make


def text(body: str) -> Callable[[Path], Path]:
    """Write a model given in ONNX's text syntax, whatever is wrong with it."""
    return raw(lambda: parser.parse_model(body).SerializeToString())


def graph(nodes: str, *, opset: int = 18, more: str = "") -> Callable[[Path], Path]:
    """Write a model with one input `x` and one output `y`."""
    return text(
        f"""<ir_version: 8, opset_import: ["" : {opset}, "f" : 1]>
        main (float[2] x) => (float[2] y) {{ {nodes} }} {more}"""
    )


def changed(change: Callable[[onnx.ModelProto], object]) -> Callable[[Path], Path]:
    """Write a sound little model after `change` has damaged it."""

    def build() -> bytes:
        model = parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 18]>
            main (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> {
                [mul] a = Mul (x, w)
                [relu] y = Relu (a)
            }"""
        )
        change(model)
        return bytes(model.SerializeToString())

    return raw(build)


def weight(**fields: object) -> Callable[[Path], Path]:
    """Write a model whose only weight has other fields than its bytes bear out."""

    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        for key, value in fields.items():
            if isinstance(value, list):
                tensor.ClearField(key)
                getattr(tensor, key).extend(value)
            else:
                setattr(tensor, key, value)

    return changed(change)


def nested(depth: int) -> Callable[[Path], Path]:
    """Write Ifs within each other, as bytes: the library refuses to build so deep a message."""

    def part(number: int, data: bytes) -> bytes:
        size, length = len(data), bytearray()
        while size >= 128:
            length.append(size & 127 | 128)
            size >>= 7
        return bytes([number << 3 | 2, *length, size]) + data

    def build() -> bytes:
        graph = part(2, b"inner")
        for _ in range(depth):
            branch = part(1, b"then_branch") + part(6, graph) + b"\xa0\x01\x05"
            graph = part(1, part(4, b"If") + part(5, branch)) + part(2, b"outer")
        return b"\x08\x08" + part(7, graph) + part(8, b"\x10\x12")

    return raw(build)


def archive(folder: Path) -> Path:
    """Write a zip archive under the name of a model."""
    path = folder / "model.onnx"
    with zipfile.ZipFile(path, "w") as stored:
        stored.writestr("archive/version", "3")
    return path


def fifo(folder: Path) -> Path:
    """Make a named pipe that nobody writes to."""
    path = folder / "model.onnx"
    os.mkfifo(path)
    return path


def unix_socket(folder: Path) -> Path:
    """Make a socket file; bound by a short relative name, for the length of a path is limited."""
    path, before = folder / "model.onnx", Path.cwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)
    return path


def directory(folder: Path) -> Path:
    """Make a folder under the name of a model."""
    path = folder / "model.onnx"
    path.mkdir()
    return path


def encoder(cut: slice = slice(None)) -> Callable[[], bytes]:
    """Give part of a real model's bytes."""
    return lambda: (SAMPLES / "encoder.onnx").read_bytes()[cut]


def legacy() -> bytes:
    """Give the bytes of the model of the oldest kind."""
    return (SAMPLES / "legacy.onnx").read_bytes()


def set_op_type(model: onnx.ModelProto, name: str) -> None:
    model.graph.node[1].op_type = name


READING: Sequence[Hostile] = (
    Hostile("missing file", lambda folder: folder / "model.onnx", ("there is no file",)),
    Hostile("folder", directory, ("folder", "directory", "regular")),
    Hostile("pipe", fifo, ("regular",)),
    Hostile("socket", unix_socket, ("regular",)),
    Hostile("device", lambda folder: Path("/dev/zero"), ("regular",)),
    Hostile("empty file", raw(b""), ("empty", "format")),
    Hostile("random bytes", raw(bytes(range(256)) * 64), ("format", "onnx")),
    Hostile("text", raw(b"hello world\n"), ("format", "onnx", "text")),
    Hostile("zip archive", archive, ("zip", "archive", "format")),
    Hostile("half a model", raw(encoder(slice(50_000))), ("cut", "truncated", "parse", "read")),
    Hostile("a model without its end", raw(encoder(slice(-1))), ("cut", "truncated", "parse")),
    Hostile("a model twice over with noise", raw(lambda: encoder()() + b"\xff\xff"), ()),
    Hostile(
        "a tensor instead of a model",
        raw(helper.make_tensor("t", TensorProto.FLOAT, [2], [1, 2]).SerializeToString()),
        (),
    ),
    Hostile("branches 130 deep", nested(130), ()),
)

GRAPHS: Sequence[Hostile] = (
    Hostile("cycle", graph("[p] a = Add (x, b) [q] b = Relu (a) [r] y = Relu (b)"), ("p", "b")),
    Hostile("node reads itself", graph("[p] y = Add (x, y)"), ("y",)),
    Hostile("unsorted", graph("[late] y = Relu (a) [early] a = Relu (x)"), ("late",)),
    Hostile("undefined input", graph("[p] y = Add (x, nowhere)"), ("nowhere",)),
    Hostile("undefined output", graph("[p] z = Relu (x)"), ("`y`",)),
    Hostile("value made twice", graph("[p] y = Relu (x) [q] y = Tanh (x)"), ("`y`",)),
    Hostile("input made again", graph("[p] x = Relu (x) [q] y = Tanh (x)"), ("`x`",)),
    Hostile(
        "function that calls itself",
        graph(
            "[p] y = f.g (x)",
            more='<domain: "f", opset_import: ["" : 18, "f" : 1]> g (a) => (b) {b = f.g (a)}',
        ),
        ("f::g", "itself"),
    ),
    Hostile(
        "functions that call each other",
        graph(
            "[p] y = f.g (x)",
            more="""<domain: "f", opset_import: ["" : 18, "f" : 1]> g (a) => (b) {b = f.h (a)}
            <domain: "f", opset_import: ["" : 18, "f" : 1]> h (a) => (b) {b = f.g (a)}""",
        ),
        ("f::g", "f::h"),
    ),
    Hostile(
        "function twice",
        graph(
            "[p] y = f.g (x)",
            more="""<domain: "f", opset_import: ["" : 18]> g (a) => (b) {b = Relu (a)}
            <domain: "f", opset_import: ["" : 18]> g (a) => (b) {b = Tanh (a)}""",
        ),
        ("f::g",),
    ),
    Hostile("opset of the future", graph("[p] y = Relu (x)", opset=99999), ("99999",)),
    Hostile("opset too old", graph("[p] y = Relu (x)", opset=6), ("6",)),
    Hostile("no opset", changed(lambda m: m.ClearField("opset_import")), ("import",)),
    Hostile("ir version of the future", changed(lambda m: setattr(m, "ir_version", 99999)), ()),
    Hostile("no ir version", changed(lambda m: m.ClearField("ir_version")), ("ir",)),
    Hostile("no graph", changed(lambda m: m.ClearField("graph")), ("graph",)),
    Hostile("node without op", changed(lambda m: set_op_type(m, "")), ("relu", "op")),
)

SIZES: Sequence[Hostile] = (
    Hostile("dims beyond the bytes", weight(dims=[2**40]), ("`w`",)),
    Hostile("dims that overflow", weight(dims=[2**40, 2**40]), ("`w`",)),
    Hostile("dims that overflow to the right size", weight(dims=[2**63 - 1, 2**62]), ("`w`",)),
    Hostile("negative dim", weight(dims=[-2]), ("`w`",)),
    Hostile("bytes beyond the dims", weight(dims=[1]), ("`w`",)),
    Hostile("raw data of odd length", weight(float_data=[], raw_data=b"1234567"), ("`w`",)),
    Hostile("dtype unknown", weight(data_type=250), ("`w`", "250")),
    Hostile("no dtype", weight(data_type=0), ("`w`",)),
    Hostile("strings for floats", weight(data_type=8), ("`w`",)),
)

NAMES: Sequence[Hostile] = (
    Hostile(
        "names that would write to the terminal",
        changed(lambda m: m.graph.node[1].input.__setitem__(0, "\x1b[31m\n::error::owned\r")),
        ("::error::owned",),
    ),
    Hostile(
        "name of a megabyte",
        changed(lambda m: m.graph.node[1].input.__setitem__(0, "n" * 1_000_000)),
        ("nnn",),
    ),
    Hostile(
        "name that is no UTF-8",
        raw(lambda: legacy().replace(b"product", b"pr\xff\xfe\xffct")),
        (),
    ),
)

PICKLE = Hostile(
    "pickle",
    raw(pickle.dumps({"x": os.getcwd})),
    ("pickle", "code", "getcwd"),
    exit_code=7,
)

ONE_FILE: Sequence[Hostile] = (*READING, *GRAPHS, *SIZES, *NAMES, PICKLE)
