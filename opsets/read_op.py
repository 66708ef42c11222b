"""Make a custom op of a table `[[op]]`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oprep.opsets.calls import Known, check_equation, counted
from oprep.opsets.fields import Table, near
from oprep.opsets.parser import parse_equation, walk
from oprep.opsets.rule import REQUIRED, CustomOp, OnnxId, Parameter
from oprep.opsets.scope import variables
from oprep.opsets.signature import Signature, parse_signature
from oprep.opsets.syntax import Call, Equation, Maybe, Rest

KEYS = (
    "name", "onnx", "schema", "body", "python", "kernel", "torch_library", "ort_library",
    "sha256", "flags",
)  # fmt: skip
FLAGS = re.compile(
    r"-O(?:[0-3gsz]|fast)?|-D[A-Za-z_]\w*(?:=\S*)?|-std=(?:c|gnu)\+\+\w+|-m(?!llvm)[\w.,+=-]+"
)
"""Compiler flags that change what code is made, never what is run or read to make it."""

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*", re.ASCII)
_DOMAIN = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_TYPE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_FILES = ("python", "kernel", "torch_library", "ort_library")


def read_op(table: Table) -> CustomOp:
    """Read the table, but not what its body calls: that takes all ops, see `check_body`."""
    table.close(*KEYS)
    name = _name(table)
    onnx = _onnx(table, name)
    body_text = table.written("body") if table.has("body") else None
    body = (
        parse_equation(body_text.text, body_text.where, spans_lines=body_text.spans_lines)
        if body_text
        else None
    )
    if table.has("schema"):
        signature = parse_signature(table.written("schema"))
    else:
        signature = Signature(*_from_body(body)) if body else Signature((), 1)
    _check_files(table)
    return CustomOp(
        name=name,
        onnx=onnx,
        parameters=signature.parameters,
        outputs=signature.outputs,
        body=body,
        python=_path(table, "python"),
        kernel=_path(table, "kernel"),
        torch_library=_path(table, "torch_library"),
        ort_library=_path(table, "ort_library"),
        sha256=_hashes(table),
        flags=_flags(table),
        source=table.source,
        sources=table.sources(),
    )


def check_body(table: Table, op: CustomOp, known: Known) -> None:
    """Check a body against the op's signature, and the functions that it calls."""
    if op.body is None:
        return
    text = table.written("body")
    formal = {parameter.name: parameter for parameter in op.parameters}
    for root in (*(statement.value for statement in op.body.statements), *op.body.results):
        for part in walk(root):
            called = f"{part.domain}::{part.function}" if isinstance(part, Call) else ""
            if called in (op.name, str(op.onnx)):
                help = "write what it computes with other functions"
                raise text.error(f"the body of `{called}` calls itself", part.at, help)
            name = getattr(part, "name", None)
            if not isinstance(name, str) or name in ("_", *_targets(op.body)):
                continue
            if name not in formal:
                message = f"`{name}` is no parameter of `{table.data.get('name', op.onnx)}`"
                help = f"write {near(name, [*formal])}" if formal else "give it a parameter"
                raise text.error(message, part.at, help)
            if isinstance(part, Rest) and formal[name].kind != "tensors":
                message = f"`{name}` is one value, not a `Tensor[]`"
                raise text.error(message, part.at, f"write `{name}`")
    if len(op.body.results) != op.outputs:
        have = counted(len(op.body.results), "result")
        message = f"the body gives {have}, the schema {op.outputs}"
        raise table.error(message, "make the two agree", "body")
    check_equation(text, op.body, known, "body")


def _targets(body: Equation) -> Iterator[str]:
    for statement in body.statements:
        yield from statement.targets


def _name(table: Table) -> str | None:
    if not table.has("name"):
        return None
    name = table.word("name")
    if not _NAME.fullmatch(name):
        message = f"`{name}` is no name of an op"
        raise table.error(message, "write `namespace::op`", "name")
    if name.startswith(("aten::", "prim::", "prims::")):
        message = f"`{name}` lies in a namespace of PyTorch"
        raise table.error(message, "choose a namespace of your own", "name")
    return name


def _onnx(table: Table, name: str | None) -> OnnxId:
    space, _, op = (name or "").partition("::")
    if not table.has("onnx"):
        if name is None:
            message = f"{table.title} has neither `name` nor `onnx`"
            raise table.error(message, 'write `name = "namespace::op"`')
        return OnnxId(space, op)
    onnx = table.table("onnx")
    onnx.close("domain", "type", "version")
    for key in ("domain", "type"):
        if name is None and not onnx.has(key):
            message = f"`onnx` of {table.title} lacks `{key}`"
            raise table.error(message, f"write `{key}`, or give the op a `name`", "onnx")
    domain = onnx.word("domain") if onnx.has("domain") else space
    kind = onnx.word("type") if onnx.has("type") else op
    if not _DOMAIN.fullmatch(domain):
        message = f"`{domain}` is no name of a domain"
        raise onnx.error(message, "write it like `com.acme`", "domain")
    if domain == "ai.onnx" or domain.startswith("ai.onnx."):
        message = f"`{domain}` is a domain of ONNX itself"
        raise onnx.error(message, "choose a domain of your own", "domain")
    if not _TYPE.fullmatch(kind):
        raise onnx.error(f"`{kind}` is no name of an op", "write it like `Gelu`", "type")
    version = onnx.take("version", int, "an integer") if onnx.has("version") else 1
    if not 1 <= version < 2**31:
        raise onnx.error(f"version {version} is no version", "write at least 1", "version")
    return OnnxId(domain, kind, version)


def _from_body(body: Equation) -> tuple[tuple[Parameter, ...], int]:
    """Make tensors of a body's variables, in order of first appearance."""
    kinds: dict[str, str] = {}
    for root in (*(statement.value for statement in body.statements), *body.results):
        for part in walk(root):
            if isinstance(part, Maybe | Rest):
                kinds[part.name] = "tensors" if isinstance(part, Rest) else "optional"
    parameters = tuple(
        Parameter(name, kinds.get(name, "tensor"), _default(kinds.get(name)))
        for name in variables(body)
    )
    return parameters, len(body.results)


def _default(kind: str | None) -> object:
    return None if kind == "optional" else REQUIRED


def _path(table: Table, key: str) -> str | None:
    if not table.has(key):
        return None
    written = table.word(key)
    file = written
    if key == "python" and ":" in written:
        file, _, name = written.rpartition(":")
        if not _TYPE.fullmatch(name):
            message = f"`{name}` is no name of a class"
            raise table.error(message, 'write `python = "ops.py:Gelu"`', key)
    check_path(table, key, file)
    return written


def check_path(table: Table, key: str, file: str) -> None:
    """Refuse a path that does not stay below the folder of its rule file."""
    reason = ""
    if not file or file.startswith("/") or re.match("[A-Za-z]:", file):
        reason = "is not relative"
    elif ".." in file.split("/"):
        reason = "leaves the folder of the rule file"
    elif "\\" in file:
        reason = "has a backslash"
    elif "$" in file or "~" in file:
        reason = "has `$` or `~`, which are not expanded"
    if reason:
        message = f"the path `{file}` in `{key}` of {table.title} {reason}"
        raise table.error(message, "name a file below the folder of the rule file", key)


def _hashes(table: Table) -> tuple[tuple[str, str], ...]:
    if not table.has("sha256"):
        return ()
    hashes = table.table("sha256")
    named = [str(table.data[key]) for key in _FILES if table.has(key)]
    named = [file.rpartition(":")[0] or file for file in named]
    for file in hashes.data:
        if file not in named:
            message = f"`{file}` in `sha256` is no file that {table.title} names"
            help = f"write {near(file, named)}" if named else "remove it"
            raise hashes.error(message, help, file)
        if not _HASH.fullmatch(hashes.word(file)):
            message = f"the sha256 of `{file}` is not 64 hexadecimal digits"
            raise hashes.error(message, "write what `sha256sum` prints", file)
    return tuple((file, str(value).lower()) for file, value in hashes.data.items())


def _flags(table: Table) -> tuple[str, ...]:
    if not table.has("flags"):
        return ()
    flags = table.words("flags")
    for index, flag in enumerate(flags):
        if flag.startswith("-I"):
            check_path(table, "flags", flag[2:])
        elif not FLAGS.fullmatch(flag):
            message = f"the compiler flag `{flag}` is not allowed"
            help = "use `-O`, `-D`, `-I` below the rule file, `-std` and `-m`"
            raise table.error(message, help, "flags", index)
    return flags


def _check_files(table: Table) -> None:
    if table.has("flags") and not table.has("kernel"):
        message = f"{table.title} has `flags`, but no `kernel` that they are for"
        raise table.error(message, "remove them", "flags")
