"""Make an opset of the text of a rule file: TOML with a closed schema, each value with its line.

Text comes in, never a path: what is read, and from where, is the business of who calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oprep.opsets.calls import Known
from oprep.opsets.fields import Table, read_document
from oprep.opsets.read_op import check_body, read_op
from oprep.opsets.read_rule import read_rule
from oprep.opsets.rule import CustomOp, Opset

if TYPE_CHECKING:
    from oprep.opsets.vocabulary import Function

FORMAT = 1
"""The version of the rule language that this version reads."""


def load_opset(
    text: str | bytes,
    name: str,
    *,
    shipped: bool = False,
    file: str | None = None,
    functions: Mapping[str, Function] | None = None,
) -> Opset:
    """Read a rule file; raise OprepError (exit RULES) with the line of the first mistake.

    `name` is the opset's, `file` what messages call the file (else `name`). In a `shipped` opset
    a rule may match nothing. `functions` stands in for the vocabulary.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    document = read_document(data, file or name)
    _check_format(document)
    document.close("format", "op", "rule")
    tables, rule_tables = document.tables("op"), document.tables("rule")
    if not tables and not rule_tables:
        message = "the rule file has neither an op nor a rule"
        raise document.error(message, "write a table `[[rule]]`")
    ops = [read_op(table) for table in tables]
    _check_twice(tables, [op.name for op in ops], "the name")
    _check_twice(tables, [f"{op.onnx.domain}::{op.onnx.type}" for op in ops], "the ONNX name")
    known = Known(_vocabulary() if functions is None else functions, _by_name(ops))
    for table, op in zip(tables, ops, strict=True):
        check_body(table, op, known)
    rules = [
        read_rule(table, number, known, shipped) for number, table in enumerate(rule_tables, 1)
    ]
    _check_twice(rule_tables, [rule.name for rule in rules], "the name")
    digest = hashlib.sha256(data).hexdigest()
    return Opset(name, tuple(ops), tuple(rules), shipped, digest, data, file or name)


def _vocabulary() -> Mapping[str, Function]:
    # the vocabulary reads its own equations: imported here, it may import what this module does
    from oprep.opsets.vocabulary import vocabulary

    return vocabulary()


def _check_format(document: Table) -> None:
    if not document.has("format"):
        message = "the rule file does not say its format"
        raise document.error(message, f"write `format = {FORMAT}` in its first line")
    number = document.take("format", int, "an integer")
    if number != FORMAT:
        message = f"format {number} is not known, only format {FORMAT}"
        raise document.error(message, f"write `format = {FORMAT}`, or update oprep", "format")


def _by_name(ops: list[CustomOp]) -> dict[str, CustomOp]:
    """Give the ops by the name that equations call them by."""
    return {op.name or f"{op.onnx.domain}::{op.onnx.type}": op for op in ops}


def _check_twice(tables: list[Table], names: Sequence[str | None], what: str) -> None:
    first: dict[str, Table] = {}
    for table, name in zip(tables, names, strict=True):
        if name is None:
            continue
        if name in first:
            place = first[name].source
            message = f"{what} `{name}` is given twice"
            notes = (f"the first is in line {place.line}",)
            key = ("name",) if table.has("name") else ()
            raise table.error(message, "rename one of them", *key, notes=notes)
        first[name] = table
