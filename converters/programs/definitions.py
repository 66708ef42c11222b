"""What a custom op is, as plain data that travels in an artifact: enough to make it again.

An op with a body is made of the data alone. One of Python code or of a library names the file and
its sha256; the bytes lie beside the artifact or are given, and are never taken unchecked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from oprep.converters.programs.bodies import schema_of
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import format_equation, parse_equation
from oprep.opsets.rule import CustomOp, OnnxId, Source
from oprep.opsets.signature import parse_signature
from oprep.opsets.tokens import Text

FORMAT = 1
KINDS = ("body", "python", "library", "registered")
MAX_OPS = 10_000
OF_PYTORCH = ("aten", "prim", "prims")
"""Namespaces in which nothing is defined, as in rule files."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One custom op. `kind` says what computes it: `body`, `python`, `library`, or `registered`
    where it was there already and only its name and schema are known.

    `schema` is torch's without the name; `file` and `cls` name the code, `sha256` is that of the
    file's bytes, or of the definition where that is all there is.
    """

    name: str
    kind: str
    schema: str
    onnx: str
    body: str = ""
    file: str = ""
    cls: str = ""
    sha256: str = ""

    def shown(self) -> str:
        """Write the definition for a message that sets two of them side by side."""
        if self.kind == "body":
            return f"{self.schema}: {self.body}"
        code = f"{self.file}:{self.cls}" if self.cls else self.file
        return f"{self.schema}: {code or self.kind} {self.sha256[:16]}"

    def text(self) -> str:
        """Write everything that makes the op what it is, for hashes."""
        return json.dumps([self.name, self.kind, self.schema, self.body, self.cls])


def of_body(op: CustomOp) -> Definition:
    """Describe an op by its body."""
    assert op.name is not None
    assert op.body is not None
    schema, body = schema_of(op), format_equation(op.body)
    return _hashed(Definition(op.name, "body", schema, _onnx(op), body))


def _hashed(definition: Definition) -> Definition:
    digest = hashlib.sha256(definition.text().encode()).hexdigest()
    return Definition(**{**asdict(definition), "sha256": digest})


def _onnx(op: CustomOp) -> str:
    return f"{op.onnx}@{op.onnx.version}"


def of_code(
    op: CustomOp, kind: str, schema: str, file: str = "", cls: str = "", sha256: str = ""
) -> Definition:
    """Describe an op by what makes it beside its body."""
    assert op.name is not None
    body = format_equation(op.body) if op.body is not None else ""
    made = Definition(op.name, kind, schema, _onnx(op), body, file, cls, sha256)
    return made if sha256 else _hashed(made)


def write(definitions: Iterable[Definition]) -> bytes:
    """Give the definitions as an artifact carries them: JSON, the same for the same ops."""
    ops = [
        {key: value for key, value in asdict(item).items() if value}
        for item in sorted(definitions, key=lambda item: item.name)
    ]
    return json.dumps({"format": FORMAT, "ops": ops}, indent=1, sort_keys=True).encode()


def read(data: bytes, where: str) -> tuple[Definition, ...]:
    """Read what an artifact carries; raise OprepError (exit MODEL) for anything else."""
    try:
        held = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _wrong("it is no JSON", where) from error
    if not isinstance(held, Mapping) or held.get("format") != FORMAT:
        raise _wrong(f"it does not have `format` {FORMAT}", where)
    ops = held.get("ops")
    if not isinstance(ops, list) or len(ops) > MAX_OPS:
        raise _wrong("it has no list of ops", where)
    found = tuple(_read_op(item, where) for item in ops)
    if len({item.name for item in found}) != len(found):
        raise _wrong("it defines an op twice", where)
    return found


def _read_op(item: Any, where: str) -> Definition:
    names = {field.name for field in fields(Definition)}
    if not isinstance(item, Mapping) or not set(item) <= names:
        raise _wrong("an op has keys that are not known", where)
    if not all(isinstance(value, str) for value in item.values()):
        raise _wrong("an op has values that are no text", where)
    if not {"name", "kind", "schema", "onnx", "sha256"} <= set(item):
        raise _wrong("an op lacks its name, kind, schema, ONNX name or hash", where)
    found = Definition(**item)
    space, colons, name = found.name.partition("::")
    if found.kind not in KINDS or not (space.isidentifier() and colons and name.isidentifier()):
        raise _wrong(f"`{found.name}` is no op that can be defined", where)
    if space in OF_PYTORCH:
        raise _wrong(f"`{found.name}` lies in a namespace of PyTorch", where)
    if found.kind == "body" and _hashed(found).sha256 != found.sha256:
        raise _wrong(f"`{found.name}` does not have the hash of its body", where)
    return found


def _wrong(reason: str, where: str) -> OprepError:
    return OprepError(
        "the definitions of custom ops in the model cannot be read",
        where,
        (reason,),
        "convert the model again",
        ExitCode.MODEL,
    )


def body_op(definition: Definition) -> CustomOp:
    """Make the op whose definition is a body; exit MODEL where its texts cannot be read."""
    source = Source(definition.name, 1)
    try:
        signature = parse_signature(Text(definition.schema, source))
        body = parse_equation(definition.body, source)
    except OprepError as error:
        raise _wrong(error.message, definition.name) from error
    return replace(
        code_op(definition),
        parameters=signature.parameters,
        outputs=signature.outputs,
        body=body,
        source=source,
    )


def code_op(definition: Definition) -> CustomOp:
    """Make the op that code defines; what it takes is known once the code has run."""
    domain, _, rest = definition.onnx.rpartition("::")
    kind, _, version = rest.partition("@")
    return CustomOp(
        name=definition.name,
        onnx=OnnxId(domain, kind, int(version) if version.isdecimal() else 1),
        parameters=(),
        outputs=1,
        body=None,
        python=None,
        kernel=None,
        torch_library=None,
        ort_library=None,
        sha256=(),
        flags=(),
        source=Source(definition.file or definition.name, 1),
    )
