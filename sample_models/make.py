"""Build the sample models: each a few layers, its weights drawn from a seed, the same bytes always.

`python sample_models/make.py [FOLDER]` writes them into FOLDER, else beside itself. README.md says
what each is for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from building import drawn, from_text, weight
from encoder import encoder
from mlp import Mlp, build, example_inputs
from onnx import ModelProto, external_data_helper, numpy_helper
from safetensors.torch import save_file

GELU_CONSTANTS = "float half = {0.5}, float one = {1.0}, float root = {1.4142135}"


def branches() -> ModelProto:
    """Build an If in an If: GELU and Relu in every branch, on values from outside and inside.

    The outer branch is chosen by an input, the inner one by the sign of a sum. The branches read
    `x` and the constants of the main graph; the innermost one has constants of its own.
    """
    return from_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    branches (float[batch,8] x, bool flag) => (float[batch,8] y)
    <{GELU_CONSTANTS}> {{
        [project] h = MatMul (x, weight)
        [choose] chosen = If (flag) <
            then_branch = narrow () => (float[batch,8] t_out) {{
                [then_div] t_div = Div (h, root)
                [then_erf] t_erf = Erf (t_div)
                [then_add] t_add = Add (one, t_erf)
                [then_mul] t_mul = Mul (t_add, h)
                [then_half] t_gelu = Mul (half, t_mul)
                [then_relu] t_relu = Relu (x)
                [then_join] t_out = Sub (t_gelu, t_relu)
            }},
            else_branch = wide () => (float[batch,8] e_out) {{
                [else_relu] e_relu = Relu (h)
                [else_sum] e_sum = ReduceSum <keepdims: int = 0> (h)
                [else_zero] e_zero = Constant <value: tensor = float {{0.0}}> ()
                [else_positive] e_positive = Greater (e_sum, e_zero)
                [else_choose] e_inner = If (e_positive) <
                    then_branch = deep () => (float[batch,8] d_out) {{
                        [deep_root] d_root = Constant <value_float: float = 1.4142135> ()
                        [deep_one] d_one = Constant <value: tensor = float[1] {{1.0}}> ()
                        [deep_half] d_half = Constant <value_floats: floats = [0.5]> ()
                        [deep_div] d_div = Div (e_relu, d_root)
                        [deep_erf] d_erf = Erf (d_div)
                        [deep_add] d_add = Add (d_erf, d_one)
                        [deep_half_x] d_half_x = Mul (e_relu, d_half)
                        [deep_mul] d_out = Mul (d_half_x, d_add)
                    }},
                    else_branch = shallow () => (float[batch,8] s_out) {{
                        [shallow_neg] s_neg = Neg (h)
                        [shallow_relu] s_out = Relu (s_neg)
                    }}
                >
                [else_join] e_out = Add (e_inner, e_relu)
            }}
        >
        [finish] y = Add (chosen, x)
    }}""",
        weight("weight", 8, 8),
    )


def loop() -> ModelProto:
    """Build a Loop with GELU on its carried state, then a Scan with Relu and GELU along an axis."""
    return from_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    loops (float[steps,8] x, float[8] start) => (float[steps,8] y, float[rounds,steps,8] trace)
    <{GELU_CONSTANTS}, int64 rounds_wanted = {{3}}, bool go = {{1}}> {{
        [loop] state, trace = Loop (rounds_wanted, go, x) <
            body = refine (int64 round, bool going, float[steps,8] carried)
                => (bool go_on, float[steps,8] carried_out, float[steps,8] seen) {{
                [loop_go] go_on = Identity (going)
                [loop_matmul] l_mixed = MatMul (carried, weight)
                [loop_div] l_div = Div (l_mixed, root)
                [loop_erf] l_erf = Erf (l_div)
                [loop_add] l_add = Add (l_erf, one)
                [loop_mul] l_mul = Mul (l_mixed, l_add)
                [loop_half] l_gelu = Mul (l_mul, half)
                [loop_residual] carried_out = Add (l_gelu, carried)
                [loop_seen] seen = Relu (l_mixed)
            }}
        >
        [scan] last, y = Scan <num_scan_inputs: int = 1,
            body = walk (float[8] s_state, float[8] s_row)
                => (float[8] s_next, float[8] s_out) {{
                [scan_half] s_faded = Mul (s_state, half)
                [scan_add] s_sum = Add (s_faded, s_row)
                [scan_relu] s_next = Relu (s_sum)
                [scan_div] s_div = Div (s_sum, root)
                [scan_erf] s_erf = Erf (s_div)
                [scan_one] s_one = Add (s_erf, one)
                [scan_scaled] s_scaled = Mul (s_one, half)
                [scan_mul] s_out = Mul (s_sum, s_scaled)
            }}
        > (start, state)
    }}""",
        weight("weight", 8, 8),
    )


def functions() -> ModelProto:
    """Build a model-local function with GELU, called twice with other shapes and through another.

    `custom.Block` calls `custom.FeedForward`, so that a call site lies inside a function too.
    """
    return from_text(
        """<ir_version: 9, opset_import: ["" : 18, "custom" : 1]>
    functions (float[batch,8] x) => (float[batch,4] y) {
        [first] wide = custom.FeedForward (x, weight_up, bias_up)
        [second] narrow = custom.Block (wide, weight_down, bias_down)
        [relu] y = Relu (narrow)
    }
    <domain: "custom", opset_import: ["" : 18]>
    FeedForward (f_x, f_weight, f_bias) => (f_out) {
        [f_matmul] f_product = MatMul (f_x, f_weight)
        [f_bias_add] f_sum = Add (f_product, f_bias)
        [f_root] f_root = Constant <value: tensor = float {1.4142135}> ()
        [f_one] f_one = Constant <value: tensor = float {1.0}> ()
        [f_half] f_half = Constant <value: tensor = float {0.5}> ()
        [f_div] f_div = Div (f_sum, f_root)
        [f_erf] f_erf = Erf (f_div)
        [f_add] f_add = Add (f_erf, f_one)
        [f_mul] f_mul = Mul (f_sum, f_add)
        [f_scale] f_out = Mul (f_mul, f_half)
    }
    <domain: "custom", opset_import: ["" : 18, "custom" : 1]>
    Block (b_x, b_weight, b_bias) => (b_out) {
        [b_call] b_wide = custom.FeedForward (b_x, b_weight, b_bias)
        [b_relu] b_out = Relu (b_wide)
    }""",
        weight("weight_up", 8, 16),
        weight("bias_up", 16, scale=0.1),
        weight("weight_down", 16, 4),
        weight("bias_down", 4, scale=0.1),
    )


def conv() -> ModelProto:
    """Build a mobile image classifier at opset 13: hard-swish written out, ReLU6, a gate."""
    return from_text(
        """<ir_version: 7, opset_import: ["" : 13], doc_string: "a small image classifier">
    classifier (float[batch,3,16,16] image) => (float[batch,5] scores)
    <float three = {3.0}, float zero = {0.0}, float six = {6.0}> {
        ["stem/Conv"] stem = Conv <strides: ints = [2, 2], pads: ints = [1, 1, 1, 1]>
            (image, stem_weight, stem_bias)
        ["stem/act/Add"] stem_add = Add (stem, three)
        ["stem/act/Clip"] stem_clip = Clip (stem_add, zero, six)
        ["stem/act/Mul"] stem_mul = Mul (stem, stem_clip)
        ["stem/act/Div"] stem_act = Div (stem_mul, six)
        ["block/expand/Conv"] wide = Conv (stem_act, expand_weight)
        ["block/expand/bn"] wide_bn = BatchNormalization (wide, bn_scale, bn_bias, bn_mean, bn_var)
        ["block/expand/relu6"] wide_act = Clip (wide_bn, zero, six)
        ["block/depthwise/Conv"] deep = Conv <group: int = 16, pads: ints = [1, 1, 1, 1]>
            (wide_act, depthwise_weight)
        ["block/depthwise/act/Add"] deep_add = Add (three, deep)
        ["block/depthwise/act/Clip"] deep_clip = Clip (deep_add, zero, six)
        ["block/depthwise/act/Div"] deep_div = Div (deep_clip, six)
        ["block/depthwise/act/Mul"] deep_act = Mul (deep_div, deep)
        ["block/gate/pool"] pooled = GlobalAveragePool (deep_act)
        ["block/gate/reduce"] squeezed = Conv (pooled, reduce_weight, reduce_bias)
        ["block/gate/relu"] squeezed_act = Relu (squeezed)
        ["block/gate/grow"] grown = Conv (squeezed_act, grow_weight, grow_bias)
        ["block/gate/hardsigmoid"] gate = HardSigmoid <alpha: float = 0.2, beta: float = 0.5>
            (grown)
        ["block/gate/Mul"] gated = Mul (gate, deep_act)
        ["block/project/Conv"] projected = Conv (gated, project_weight)
        ["block/Add"] block = Add (projected, stem_act)
        ["head/pool"] head = GlobalAveragePool (block)
        ["head/Flatten"] flat = Flatten (head)
        ["head/Gemm"] scores = Gemm <transB: int = 1> (flat, head_weight, head_bias)
    }""",
        weight("stem_weight", 8, 3, 3, 3),
        weight("stem_bias", 8, scale=1.0),
        weight("expand_weight", 16, 8, 1, 1, scale=1.0),
        weight("bn_scale", 16, scale=0.3, middle=1.0),
        weight("bn_bias", 16),
        weight("bn_mean", 16),
        weight("bn_var", 16, scale=0.3, middle=1.0),
        weight("depthwise_weight", 16, 1, 3, 3),
        weight("reduce_weight", 4, 16, 1, 1),
        weight("reduce_bias", 4),
        weight("grow_weight", 16, 4, 1, 1),
        weight("grow_bias", 16, scale=1.0),
        weight("project_weight", 8, 16, 1, 1),
        weight("head_weight", 5, 8),
        weight("head_bias", 5),
    )


def mlp(dtype: str = "float", numbers: type = np.float32) -> ModelProto:
    """Build two layers with GELU between them, in float32 or float16."""
    return from_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    mlp ({dtype}[batch,16] x) => ({dtype}[batch,4] y) {{
        ["/up/MatMul"] up = MatMul (x, up_weight)
        ["/up/Add"] wide = Add (up, up_bias)
        ["/act/Div"] div = Div (wide, root)
        ["/act/Erf"] erf = Erf (div)
        ["/act/Add"] add = Add (erf, one)
        ["/act/Mul"] mul = Mul (wide, add)
        ["/act/Mul_1"] act = Mul (mul, half)
        ["/down/MatMul"] y = MatMul (act, down_weight)
    }}""",
        weight("up_weight", 16, 64, scale=0.25, dtype=numbers),
        weight("up_bias", 64, scale=0.1, dtype=numbers),
        weight("down_weight", 64, 4, scale=0.125, dtype=numbers),
        numpy_helper.from_array(np.array(2**0.5, numbers), "root"),
        numpy_helper.from_array(np.array(1, numbers), "one"),
        numpy_helper.from_array(np.array(0.5, numbers), "half"),
    )


def half() -> ModelProto:
    """Build the two layers in float16."""
    return mlp("float16", np.float16)


def external() -> ModelProto:
    """Build the two layers in float32; their weights go to a file beside the model."""
    built = mlp()
    external_data_helper.convert_model_to_external_data(
        built, location="model.onnx.data", size_threshold=256
    )
    return built


def legacy() -> ModelProto:
    """Build a model of IR version 3, opset 7: every weight is listed as an input too.

    It holds SiLU written out, Relu, and Clip with its bounds as attributes.
    """
    return from_text(
        """<ir_version: 3, opset_import: ["" : 7]>
    legacy (float[batch,8] x, float[8,8] weight, float[8] bias) => (float[batch,8] y) {
        [product] product = MatMul (x, weight)
        [sum] sum = Add (product, bias)
        [gate] gate = Sigmoid (sum)
        [silu] silu = Mul (sum, gate)
        [relu] relu = Relu (product)
        [clip] clip = Clip <max: float = 6.0, min: float = 0.0> (relu)
        [y] y = Add (silu, clip)
    }""",
        weight("weight", 8, 8),
        weight("bias", 8),
    )


def torch_mlp() -> Mlp:
    """Build the PyTorch model of mlp.py with weights that no version of torch changes."""
    module = build()
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(torch.from_numpy(drawn(name, *value.shape, scale=value.shape[-1] ** -0.5)))
    return module


def exported(module: Mlp) -> torch.export.ExportedProgram:
    """Export it with a free batch size; where a line of code lies is left out."""
    batch = torch.export.Dim("batch", min=1, max=1024)
    program = torch.export.export(module, example_inputs(), dynamic_shapes={"x": {0: batch}})
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


MODELS = {
    "encoder.onnx": encoder,
    "branches.onnx": branches,
    "loop.onnx": loop,
    "functions.onnx": functions,
    "conv.onnx": conv,
    "half.onnx": half,
    "legacy.onnx": legacy,
    "external/model.onnx": external,
}


def main(folder: Path) -> None:
    """Write every sample model below `folder`, and the weights of the PyTorch one."""
    for name, built in MODELS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / f"{path.name}.data").unlink(missing_ok=True)
        onnx.save(built(), path)
    module = torch_mlp()
    save_file(module.state_dict(), folder / "mlp.safetensors")
    torch.export.save(exported(module), folder / "mlp.pt2")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
