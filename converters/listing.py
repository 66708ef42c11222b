"""List what there is: the ops of a model, what rules would match in it, the shipped opsets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oprep.converters.applying import ONNX, TORCH, require_applying
from oprep.converters.arguments import a_folder, a_size, several
from oprep.converters.report import OpCount, OpTable, RuleOutcome
from oprep.opsets.rule import BareOp, CustomOp, Opset, Rule
from oprep.opsets.syntax import Call, Equation


def list_ops(
    model: Any = None,
    *,
    rules: Any = (),
    opset: str | Sequence[str] = (),
    max_bytes: int | None = None,
    external_data_root: str | Path | None = None,
    no_code: bool = False,
    weights: str | Path | None = None,
    trust_model: bool = False,
    capture: str = "auto",
    dynamic: str | Sequence[str] = (),
    inputs: Any = (),
    timeout: float = 120.0,
) -> OpTable:
    """List the ops of a model and what rules would match; without a model, opsets and their ops.

    The last six are for PyTorch models, as in `convert`; an archive (`.pt2`) is listed from its
    JSON, without torch, where no rules are given.
    """
    rules, opset = several(rules, "rules"), several(opset, "opset")
    max_bytes = a_size(max_bytes, "max_bytes")
    external_data_root = a_folder(external_data_root, "external_data_root")
    if model is None:
        from oprep.converters.rules import load_rules, shipped, shipped_names

        opsets = load_rules(rules, opset, no_code=no_code)[0] if rules or opset else [
            shipped(name) for name in shipped_names()
        ]  # fmt: skip
        return OpTable(opsets=tuple(_rows(opsets)))
    from oprep.converters.model_kind import is_program

    if is_program(model):
        require_applying(TORCH, model, external_data_root=external_data_root)
        from oprep.converters.program_job import listing_job
        from oprep.converters.program_listing import list_program_ops

        return list_program_ops(listing_job(
            model, rules, opset, inputs, timeout, max_bytes, no_code, weights, trust_model,
            capture, dynamic,
        ))  # fmt: skip
    require_applying(ONNX, model, weights=weights, trust_model=trust_model, capture=capture,
                     dynamic=dynamic, inputs=several(inputs, "inputs"))  # fmt: skip
    from oprep.converters.frontends import onnx_model

    source = onnx_model.open_model(model, max_bytes, external_data_root)
    outcomes: tuple[RuleOutcome, ...] = ()
    by_op: dict[str, list[str]] = {}
    if rules or opset:
        from oprep.converters.frontends.onnx_conversion import Conversion
        from oprep.converters.rules import load_rules

        opsets, _ = load_rules(rules, opset, no_code=no_code)
        conversion = Conversion(source, opsets)
        planned = conversion.plan(explain=True)
        outcomes = planned.outcomes
        for match in planned.matches:
            for node in match.nodes:
                by_op.setdefault(match.view.region.ops[node], []).append(match.rule.name)
    counts = tuple(
        OpCount(op, count, tuple(dtypes), tuple(regions), tuple(sorted(set(by_op.get(op, ())))))
        for op, (count, dtypes, regions) in onnx_model.op_table(source).items()
    )
    return OpTable(source.record(), counts, outcomes)


def _rows(opsets: Sequence[Opset]) -> list[tuple[str, str, str, tuple[str, ...]]]:
    from oprep.opsets.expression import format_equation

    rows = []
    for opset in opsets:
        for op in opset.ops:
            meaning = format_equation(op.body) if op.body is not None else "no body"
            using = tuple(rule.name for rule in opset.rules if _uses(rule, op))
            rows.append((opset.name, str(op.onnx), meaning, using))
    return rows


def _uses(rule: Rule, op: CustomOp) -> bool:
    target = rule.replacement
    names = {op.name, str(op.onnx)}
    if isinstance(target, BareOp):
        return f"{target.domain}::{target.name}" in names
    return any(f"{call.domain}::{call.function}" in names for call in _calls(target))


def _calls(equation: Equation) -> list[Call]:
    from oprep.opsets.expression import walk

    parts = [*(statement.value for statement in equation.statements), *equation.results]
    return [item for part in parts for item in walk(part) if isinstance(item, Call)]
