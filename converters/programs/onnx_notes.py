"""What a program does that its ONNX model does not: said once, never silent."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Node

from oprep.converters.programs.onnx_translation import modules

MOST = 3


def export_notes(exported: ExportedProgram, decomposed: ExportedProgram) -> tuple[str, ...]:
    """Give a sentence for each kind of thing that the model leaves out.

    The signature of the decomposed program alone says what the program changes.
    """
    return tuple(
        (*_state(decomposed), *_training(exported), *_fixed(exported), *_complex(exported))
    )


def _state(decomposed: ExportedProgram) -> Iterator[str]:
    specs = decomposed.graph_signature.output_specs
    buffers = [spec.target or "" for spec in specs if spec.kind == OutputKind.BUFFER_MUTATION]
    inputs = [spec.target or "" for spec in specs if spec.kind == OutputKind.USER_INPUT_MUTATION]
    if buffers:
        yield f"the program updates {_listed(buffers)}; the ONNX model keeps no state between runs"
    if inputs:
        yield f"the program changes its input {_listed(inputs)} in place; the ONNX model does not"


def _training(exported: ExportedProgram) -> Iterator[str]:
    """Torch's exporter writes batch normalisation by running statistics, whatever the mode."""
    target = torch.ops.aten.batch_norm.default
    nodes = [
        node
        for module in modules(exported)
        for node in module.graph.find_nodes(op="call_function", target=target)
    ]
    names = [node.name for node in nodes if _argument(node, "training") is True]
    if names:
        yield (
            f"{_listed(names)} in training mode: torch's exporter writes the form for inference, "
            "so put the module in eval mode"
        )


def _argument(node: Node, name: str) -> object:
    names = [item.name for item in node.target._schema.arguments]  # type: ignore[union-attr]
    return (dict(zip(names, node.args, strict=False)) | node.kwargs).get(name)


def _fixed(exported: ExportedProgram) -> Iterator[str]:
    signature = exported.graph_signature
    for spec in signature.input_specs:
        if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument):
            if spec.arg.value is not None:
                yield f"the argument `{spec.arg.name}` is fixed to {spec.arg.value!r:.40}"
    for number, item in enumerate(
        spec for spec in signature.output_specs if spec.kind == OutputKind.USER_OUTPUT
    ):
        if isinstance(item.arg, ConstantArgument):
            fixed = f"{item.arg.value!r:.40}"
            yield f"output {number} is always {fixed}, and no output of the ONNX model"


def _complex(exported: ExportedProgram) -> Iterator[str]:
    names = [node.name for node in exported.graph.nodes
             if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
             and node.meta["val"].dtype.is_complex]  # fmt: skip
    if names:
        yield f"complex {_listed(names)} are written as real tensors with a last dim of 2"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(f"`{name}`" for name in names[:MOST]) + more
