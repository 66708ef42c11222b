"""Lay out the answer of `list-ops` as tables of cells, and those as aligned plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oprep.cli.escape import name, sentence
from oprep.cli.figures import count
from oprep.cli.report_text import rule_lines
from oprep.converters.report import ModelRecord, OpTable

FEW_GRAPHS = 3
KINDS = {
    "pt2": "PyTorch exported program",
    "torchscript": "TorchScript",
    "pickle": "pickled PyTorch module",
    "factory": "PyTorch module built by a factory",
    "object": "PyTorch module",
}
"""What a model is, by the format that its record has."""


@dataclass(frozen=True)
class Table:
    """Column heads and rows of escaped cells; `right` names the columns of numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()


def op_tables(table: OpTable) -> list[Table]:
    """Give the tables to show: the ops of the model, or the shipped opsets."""
    ops = [
        (name(op.op), str(op.count), _names(op.dtypes), _where(op.regions), _names(op.rules))
        for op in table.ops
    ]
    opsets = [
        (name(opset), name(op), sentence(meaning), _names(rules))
        for opset, op, meaning, rules in table.opsets
    ]
    tables = (
        _table(("op", "count", "dtypes", "where", "rules"), ops),
        _table(("opset", "op", "meaning", "rules"), opsets),
    )
    return [each for each in tables if each.rows]


def rule_text(table: OpTable) -> Iterator[str]:
    """Give the lines of what each rule would match and where it nearly does."""
    width = max((len(name(rule.rule)) for rule in table.rules), default=0)
    for rule in table.rules:
        wanted = "" if rule.met else f" (expected {rule.expect})"
        found = f"{len(rule.sites)} would match{wanted}"
        yield f"rule  {name(rule.rule):<{width}}  {found}  {name(rule.replacement)}"
        yield from (f"      {line}" for line in rule_lines(rule, sites=True, misses=True))


def model_line(model: ModelRecord) -> str:
    """Describe the model that was read in one line."""
    if model.format != "onnx":
        return f"{name(model.name)}: {count(model.nodes, 'node')}, {KINDS[model.format]}"
    versions = ", ".join(
        f"{name(domain or 'ai.onnx')} {version}" for domain, version in model.opsets
    )
    size = count(model.nodes, "node")
    return f"{name(model.name)}: {size}, opset {versions}, IR version {model.ir_version}"


def aligned(table: Table) -> str:
    """Give a table as plain text, columns aligned with blanks."""
    lines = [table.head, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ""
    for line in lines:
        cells = [
            cell.rjust(width) if head in table.right else cell.ljust(width)
            for head, cell, width in zip(table.head, line, widths, strict=True)
        ]
        text += "  ".join(cells).rstrip() + "\n"
    return text


def _where(regions: tuple[str, ...]) -> str:
    """Name up to three graphs; count them where there are more (`--json` has them all)."""
    if len(regions) <= FEW_GRAPHS:
        return _names(regions)
    nested = len(regions) - ("main" in regions)
    return f"main, {nested} other graphs" if "main" in regions else f"{nested} graphs"


def _names(words: tuple[str, ...]) -> str:
    return ", ".join(map(name, words))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    """Make a table of the columns in which at least one row says something."""
    kept = [index for index in range(len(head)) if any(row[index] for row in rows)]
    return Table(
        tuple(head[index] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in rows),
        right=("count",),
    )
