"""What an exported program holds, told from its archive: ops, inputs, outputs, the ops it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oprep.converters.pt2.gate import Pt2
from oprep.converters.pt2.schema import DTYPES
from oprep.converters.pt2.targets import is_custom, op_of
from oprep.converters.report import ModelRecord

MAIN = "main"
TENSORS = ("as_tensor", "as_tensors", "as_optional_tensor", "as_optional_tensors")


@dataclass(frozen=True)
class Port:
    """One input or output of a program: a tensor, or a constant that has neither dtype nor shape.

    Dims are numbers, or expressions as torch writes them (`s77`).
    """

    name: str
    dtype: str = ""
    shape: tuple[int | str, ...] = ()
    constant: bool = False


def op_table(pt2: Pt2) -> dict[str, tuple[int, list[str], list[str]]]:
    """Count the ops of all graphs: op to count, dtypes of its first result, graphs; sorted."""
    found: dict[str, tuple[int, set[str], set[str]]] = {}
    for label, graph in graphs(pt2.program):
        for node in graph["nodes"]:
            op = op_of(node["target"]) or node["target"]
            count, dtypes, labels = found.get(op, (0, set(), set()))
            dtypes.update(_dtypes(node, graph))
            labels.add(label)
            found[op] = (count + 1, dtypes, labels)
    return {
        op: (count, sorted(dtypes), sorted(labels))
        for op, (count, dtypes, labels) in sorted(found.items())
    }


def record(pt2: Pt2) -> ModelRecord:
    """Describe the program for a report; its opsets are those that torch wrote, with the schema's.

    `ir_version` is the major version of the schema.
    """
    versions = pt2.program["opset_version"]
    nodes = sum(len(graph["nodes"]) for _, graph in graphs(pt2.program))
    return ModelRecord(
        pt2.path.name,
        "pt2",
        pt2.sha256,
        nodes,
        pt2.schema_version[0],
        tuple(sorted((str(name), int(version)) for name, version in versions.items())),
    )


def custom_ops(pt2: Pt2) -> tuple[str, ...]:
    """List the ops that torch does not register itself, sorted: they are needed to load it."""
    return tuple(op for op in op_table(pt2) if is_custom(op))


def inputs(pt2: Pt2) -> tuple[Port, ...]:
    """List what a caller gives, in the order of the flattened call."""
    module = pt2.program["graph_module"]
    found = []
    for spec in module["signature"]["input_specs"]:
        if "user_input" in spec:
            found.append(_port(spec["user_input"]["arg"], module["graph"]))
        elif "constant_input" in spec:
            found.append(Port(spec["constant_input"]["name"], constant=True))
    return tuple(found)


def outputs(pt2: Pt2) -> tuple[Port, ...]:
    """List what a caller gets, in the order of the flattened result."""
    module = pt2.program["graph_module"]
    specs = module["signature"]["output_specs"]
    kinds = ("user_output", "loss_output")
    arguments = [spec[kind]["arg"] for spec in specs for kind in kinds if kind in spec]
    return tuple(
        _port(each if "name" not in each else {"as_tensor": each}, module["graph"])
        for each in arguments
    )


def graphs(program: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give the main graph and all graphs inside it (branches, bodies, no_grad), with their names.

    A graph within a graph is `true_graph_0/submod_1`.
    """
    stack = [(MAIN, program["graph_module"]["graph"])]
    while stack:
        label, graph = stack.pop()
        yield label, graph
        inside = [
            (name if label == MAIN else f"{label}/{name}", inner)
            for node in graph["nodes"]
            for argument in node["inputs"]
            for name, inner in _graphs_of(argument["arg"])
        ]
        stack += reversed(inside)


def _graphs_of(argument: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "as_graph" in argument:
        yield argument["as_graph"]["name"], argument["as_graph"]["graph"]
    for inner in argument.get("as_string_to_argument", {}).values():
        yield from _graphs_of(inner)


def _dtypes(node: Mapping[str, Any], graph: Mapping[str, Any]) -> set[str]:
    """Give the dtype of the first tensor result, of the first tensor input where there is none."""
    given = [argument["arg"] for argument in node["inputs"]]
    for argument in (*node["outputs"], *given):
        for name in _tensor_names(argument):
            meta = graph["tensor_values"].get(name)
            return {DTYPES[meta["dtype"]]} if meta is not None else set()
    return set()


def _tensor_names(argument: Mapping[str, Any]) -> Iterator[str]:
    for kind in TENSORS:
        value = argument.get(kind)
        for each in value if isinstance(value, list) else [value]:
            inner = each.get("as_tensor", each) if isinstance(each, dict) else {}
            if isinstance(inner.get("name"), str):
                yield inner["name"]


def _port(argument: Mapping[str, Any], graph: Mapping[str, Any]) -> Port:
    if "as_tensor" in argument:
        name = argument["as_tensor"]["name"]
        meta = graph["tensor_values"].get(name)
        if meta is None:
            return Port(name)
        return Port(name, DTYPES[meta["dtype"]], _shape(meta["sizes"]))
    for kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        if "as_name" in argument.get(kind, {}):
            return Port(argument[kind]["as_name"])
    return Port("", constant=True)


def _shape(sizes: Sequence[Mapping[str, Any]]) -> tuple[int | str, ...]:
    return tuple(
        size["as_int"] if "as_int" in size else _printed(size["as_expr"]["expr_str"])
        for size in sizes
    )


def _printed(expression: str) -> str:
    """Print a bare symbol by its name; anything else as torch wrote it."""
    head = "Symbol('"
    if expression.startswith(head) and expression.count("(") == 1:
        return expression[len(head) :].partition("'")[0]
    return expression
