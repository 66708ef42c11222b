"""What a node of a program may call: registered ops and the few functions that torch writes.

A target is looked up attribute by attribute when a program is loaded, so it is held to the forms
that name an op. Whether that op is registered is known where torch is loaded.
"""

from __future__ import annotations

import re

OP = re.compile(r"torch\.ops\.(?P<ns>[A-Za-z]\w*|_[a-z]\w*)\.(?P<name>\w+)\.(?P<overload>\w+)")
HIGHER = re.compile(r"torch\.ops\.higher_order\.(?P<name>\w+)")
PLAIN = re.compile(
    r"(?P<module>_operator|math|torch|torch\._functorch\.predispatch)\.(?P<name>\w+)"
)
NO_NAMESPACE = {"higher_order", "load_library", "loaded_libraries", "import_module"}

HIGHER_ORDER = {
    *("cond", "while_loop", "while_loop_stack_output", "map_impl", "scan", "associative_scan"),
    *("wrap", "wrap_with_autocast", "wrap_with_set_grad_enabled", "strict_mode", "out_dtype"),
    *("tag_activation_checkpoint", "wrap_activation_checkpoint", "invoke_subgraph", "with_effects"),
    *("auto_functionalized", "auto_functionalized_v2", "flex_attention", "hints_wrapper"),
    *("flex_attention_backward", "foreach_map", "run_const_graph", "run_with_rng_state"),
    *("run_and_save_rng_state", "graphsafe_run_with_rng_state", "_export_tracepoint"),
    *("autograd_function_apply", "custom_function_call", "local_map_hop", "invoke_quant", "print"),
}
"""Higher-order ops that run graphs of the program alone; the others run code, or a library."""

FUNCTIONS = {
    "_operator": {
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "eq"),
        *("ne", "lt", "le", "gt", "ge", "and_", "or_", "not_", "lshift", "rshift", "getitem"),
    },
    "math": {"ceil", "floor", "trunc"},
    "torch": {"sym_not", "sym_int", "sym_float", "sym_ite", "sym_max", "sym_min", "sym_sqrt"}
    | {"sym_sum", "sym_fresh_size"}
    | {f"_sym_{name}" for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh")}
    | {f"_sym_{name}" for name in ("asin", "acos", "atan", "log2")},
    "torch._functorch.predispatch": {
        *("_add_batch_dim", "_remove_batch_dim", "_vmap_increment_nesting"),
        *("_vmap_decrement_nesting", "lazy_load_decompositions"),
    },
}

TOUCHES_FILES = {"aten::from_file", "aten::save", "debugprims::load_tensor"}
"""Ops of torch that read or write a file that the program names."""

NAMESPACES = {
    *("aten", "prim", "prims", "higher_order", "python", "_operator", "math", "torch", "inductor"),
    *("quantized", "_quantized", "quantization", "quantized_decomposed", "sparse", "mkldnn", "mkl"),
    *("mkldnn_prepacked", "onednn", "profiler", "export", "rngprims", "debugprims", "c10d"),
    *("_c10d_functional", "_c10d_functional_autograd", "symm_mem", "inductor_prims", "fsdp"),
    *("_dtensor", "static_runtime", "_native", "debug_mode_ops", "torch_attn", "streams"),
}
"""Namespaces that torch registers itself; an op of any other one has to be registered first."""


def op_of(target: str) -> str | None:
    """Print a target as an op (`aten::gelu`, `aten::add.Tensor`); None if it is not allowed.

    The overload `default` is left out, as in rules.
    """
    if (found := HIGHER.fullmatch(target)) is not None:
        return f"higher_order::{found['name']}" if found["name"] in HIGHER_ORDER else None
    if (found := OP.fullmatch(target)) is not None:
        if found["ns"] in NO_NAMESPACE or found["overload"].startswith("__"):
            return None
        overload = "" if found["overload"] == "default" else f".{found['overload']}"
        return f"{found['ns']}::{found['name']}{overload}"
    if (found := PLAIN.fullmatch(target)) is not None:
        module, name = found["module"], found["name"]
        if name in FUNCTIONS[module]:
            return f"{module.rpartition('.')[2]}::{name}"
    return None


def touches_files(op: str) -> bool:
    """Tell whether an op reads or writes a file."""
    return op.partition(".")[0] in TOUCHES_FILES


def is_custom(op: str) -> bool:
    """Tell whether an op is none that torch registers itself."""
    return op.partition("::")[0] not in NAMESPACES | {"predispatch"}
