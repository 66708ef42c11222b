"""Calls of the vocabulary as rules, and models in which one attribute of a node is another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from onnx import helper
from proofs.rows import Case, arguments, names_of, results_of, torch_answer
from proofs.running import close
from proofs.samples import Sample

from oprep.converters.frontends.onnx_conversion import Conversion
from oprep.converters.frontends.onnx_model import OnnxModel
from oprep.converters.frontends.onnx_schema import schema
from oprep.opsets.load import load_opset
from oprep.opsets.rule import Opset
from oprep.opsets.syntax import Name
from oprep.opsets.vocabulary import vocabulary

WORDS: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "auto_pad": ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    "coordinate_transformation_mode": (
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
    ),
    "direction": ("LEFT", "RIGHT", "forward", "reverse"),
    "mode": (
        "constant", "reflect", "edge", "wrap", "nearest", "linear", "cubic", "bilinear", "bicubic",
        "DCR", "CRD",
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "padding_mode": ("zeros", "border", "reflection"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "reduction": ("none", "add", "mul", "min", "max"),
}  # fmt: skip
"""The values of attributes that are words."""


def pattern_of(name: str, sample: Sample) -> str:
    """Write the call of a sample as a rule has it, each tensor a variable of its name."""
    call = f"{name}({written(name, sample)})"
    outputs = results_of(vocabulary()[name], sample)
    if outputs == 1:
        return call
    results = ", ".join(f"r{i}" for i in range(outputs))
    return f"{results} = {call}; return {results}"


def written(name: str, sample: Sample) -> str:
    """Write the arguments of a sample."""
    parts = []
    for key, value in arguments(vocabulary()[name], sample).items():
        if isinstance(value, tuple):
            parts.append(f"[{', '.join(item.name for item in value)}]")
        else:
            parts.append(f"{key}={value.name if isinstance(value, Name) else repr(value)}")
    first = next((i for i, part in enumerate(parts) if part.startswith("[")), 0)
    return ", ".join([*(part.partition("=")[2] for part in parts[:first]), *parts[first:]])


def rule_for(name: str, sample: Sample, op: str = "") -> Opset:
    """Make a rule that replaces the call by an op of the same inputs and outputs.

    `op` is one that is registered in torch and takes any number of tensors.
    """
    inputs = list(dict.fromkeys(names_of(sample)))
    outputs = results_of(vocabulary()[name], sample)
    results = ", ".join(["Tensor"] * outputs)
    schema = f"({', '.join(f'Tensor {key}' for key in inputs)}) -> "
    schema += results if outputs == 1 else f"({results})"
    targets = ", ".join(f"r{i}" for i in range(outputs))
    call = f"{op or 'acme::f'}({', '.join(inputs)})"
    replacement = call if outputs == 1 else f"{targets} = {call}; return {targets}"
    declared = f'''
[[op]]
name = "acme::f"
schema = "{schema}"
ort_library = "libacme.so"
'''
    text = f'''
format = 1
{"" if op else declared}
[[rule]]
replace = """{pattern_of(name, sample)}"""
with = "{replacement}"
expect = ">=0"
'''
    return load_opset(text, "rules.toml")


def found(rule: Opset, model: onnx.ModelProto) -> tuple[list[dict[str, str]], str]:
    """Give the matches of a rule that are the whole model; beside it the nearest miss.

    A match is the input that each variable stands for.
    """
    plan = Conversion(OnnxModel(model, None, b"", ""), [rule]).plan(explain=True)
    inputs = {item.name for item in model.graph.input}
    results = {item.name for item in model.graph.output}
    whole = [
        {name: value for name, value in match.bound.items() if name in inputs}
        for match in plan.matches
        if results.issuperset(match.roots)
        and all(match.bound.get(name, name) in inputs for name in inputs)
    ]
    return whole, "; ".join(miss.reason for miss in plan.outcomes[0].misses[:2])


def same_call(case: Case, sample: Sample, match: dict[str, str]) -> bool:
    """Tell whether a call as it was matched gives what the model of a case gives."""
    feeds = {name: case.feeds[match.get(name, name)] for name in case.feeds}
    answer = torch_answer(case.function, sample, feeds)
    return answer is not None and not any(
        close(one, other, 8.0) for one, other in zip(answer, case.expected, strict=True)
    )


def typed(model: bytes) -> onnx.ModelProto:
    """Read a model and declare the types of its outputs, which the matcher may ask for."""
    made = onnx.load_from_string(model)
    inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True)
    for place, item in zip(made.graph.output, inferred.graph.output, strict=True):
        if item.type.HasField("tensor_type"):
            place.CopyFrom(item)
    del made.metadata_props[:]
    return made


def altered(case: Case) -> Iterator[tuple[str, bytes]]:
    """Give the model of a case with one attribute of one node changed, for each of them."""
    model = onnx.load_from_string(case.model)
    for index, node in enumerate(model.graph.node):
        if node.op_type == "Constant":
            continue
        formal = schema(node.domain, node.op_type, case.opset)
        for name, info in formal.attributes.items() if formal is not None else ():
            held = next((item for item in node.attribute if item.name == name), None)
            value = info.default if held is None else helper.get_attribute_value(held)
            value = value.decode() if isinstance(value, bytes) else value
            for other in _others(name, info.kind, value):
                changed = onnx.load_from_string(case.model)
                place = changed.graph.node[index]
                kept = [item for item in place.attribute if item.name != name]
                del place.attribute[:]
                place.attribute.extend([*kept, helper.make_attribute(name, other)])
                label = f"{node.op_type}.{name} = {other!r} for {value!r}"
                yield label, bytes(changed.SerializeToString())


def _others(name: str, kind: str, value: Any) -> list[Any]:
    if kind == "STRING":
        return [word for word in WORDS.get(name, ()) if word != value]
    if kind == "INT":
        return [other for other in (0, 1, 2, -1) if other != value][:3]
    if kind == "FLOAT":
        return [(value or 0.0) + 0.5]
    if kind == "INTS":
        if not value:
            return [[count] * length for count in (1, 2) for length in (1, 2, 4)]
        return [[item + 1 for item in value], [*value[:-1], value[-1] + 1]]
    return []
