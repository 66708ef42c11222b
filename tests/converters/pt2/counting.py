"""Count the calls of a program where torch is, to compare with what its archive says."""

from __future__ import annotations

from collections import Counter
from typing import Any


def count(name: str) -> dict[str, int]:
    """Count the targets of all graphs of a model, as torch names them in archives."""
    import operator

    import torch
    from corpus.pt2_models import BUILDERS
    from torch._export.serde.serialize import GraphModuleSerializer

    program: Any = BUILDERS[name]()
    writer = GraphModuleSerializer(program.graph_signature, program.module_call_graph)
    found: Counter[str] = Counter()
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and node.target is not operator.getitem:
                    found[writer.serialize_operator(node.target)] += 1
    return dict(found)
