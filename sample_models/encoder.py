"""A small transformer encoder, with GELU and layer normalisation written out in primitive ops."""

from __future__ import annotations

from building import Nodes
from onnx import ModelProto

WORDS, HIDDEN, HEADS, INNER, LAYERS = 50, 16, 2, 32, 4

HEADER = f"""<
    ir_version: 10, opset_import: ["" : 18], doc_string: "a small text encoder",
    metadata_props: ["task" : "feature-extraction"]
> encoder (int64[batch,sequence] input_ids)
    => (float[batch,sequence,{HIDDEN}] last_hidden_state, float[batch,{HIDDEN}] pooler_output)
<
    float half = {{0.5}}, float one = {{1.0}}, float root = {{1.4142135}}, float two = {{2.0}},
    float epsilon = {{0.00001}}, float head_scale = {{2.828427}},
    int64[1] last_axis = {{-1}}, int64 first = {{0}},
    int64[4] split_heads = {{0, 0, {HEADS}, {HIDDEN // HEADS}}},
    int64[3] join_heads = {{0, 0, {HIDDEN}}}
> {{ }}"""


def gelu(g: Nodes, x: str, path: str) -> str:
    """Add GELU as the exporter writes it: x * (erf(x / sqrt(2)) + 1) * 0.5."""
    erf = g.add(f"{path}/Erf", "Erf", g.add(f"{path}/Div", "Div", x, "root"))
    product = g.add(f"{path}/Mul", "Mul", x, g.add(f"{path}/Add", "Add", erf, "one"))
    return g.add(f"{path}/Mul_1", "Mul", product, "half")


def layer_norm(g: Nodes, x: str, path: str) -> str:
    """Add a layer normalisation over the last axis, from two means."""
    mean = g.add(f"{path}/ReduceMean", "ReduceMean", x, "last_axis")
    centred = g.add(f"{path}/Sub", "Sub", x, mean)
    square = g.add(f"{path}/Pow", "Pow", centred, "two")
    variance = g.add(f"{path}/ReduceMean_1", "ReduceMean", square, "last_axis")
    spread = g.add(f"{path}/Sqrt", "Sqrt", g.add(f"{path}/Add", "Add", variance, "epsilon"))
    normal = g.add(f"{path}/Div", "Div", centred, spread)
    scale = g.weight(f"{path}/weight", HIDDEN, scale=0.2, middle=1.0)
    bias = g.weight(f"{path}/bias", HIDDEN, scale=0.1)
    return g.add(f"{path}/Add_1", "Add", g.add(f"{path}/Mul", "Mul", normal, scale), bias)


def heads(g: Nodes, x: str, path: str, order: list[int]) -> str:
    """Add a projection, split by head and turned into `order`."""
    flat = g.linear(x, path, HIDDEN, HIDDEN)
    split = g.add(f"{path}/Reshape", "Reshape", flat, "split_heads")
    return g.add(f"{path}/Transpose", "Transpose", split, perm=order)


def attention(g: Nodes, x: str, path: str) -> str:
    """Add self attention with its output projection, residual and normalisation."""
    inner = f"{path}/self"
    query = heads(g, x, f"{inner}/query", [0, 2, 1, 3])
    key = heads(g, x, f"{inner}/key", [0, 2, 3, 1])
    value = heads(g, x, f"{inner}/value", [0, 2, 1, 3])
    scores = g.add(f"{inner}/MatMul", "MatMul", query, key)
    scores = g.add(f"{inner}/Div", "Div", scores, "head_scale")
    shares = g.add(f"{inner}/Softmax", "Softmax", scores, axis=-1)
    mixed = g.add(f"{inner}/MatMul_1", "MatMul", shares, value)
    turned = g.add(f"{inner}/Transpose", "Transpose", mixed, perm=[0, 2, 1, 3])
    joined = g.add(f"{inner}/Reshape", "Reshape", turned, "join_heads")
    dense = g.linear(joined, f"{path}/output/dense", HIDDEN, HIDDEN)
    residual = g.add(f"{path}/output/Add", "Add", dense, x)
    return layer_norm(g, residual, f"{path}/output/LayerNorm")


def layer(g: Nodes, x: str, path: str) -> str:
    """Add attention and a feed-forward part with GELU."""
    attended = attention(g, x, f"{path}/attention")
    wide = g.linear(attended, f"{path}/intermediate/dense", HIDDEN, INNER)
    active = gelu(g, wide, f"{path}/intermediate/intermediate_act_fn")
    narrow = g.linear(active, f"{path}/output/dense", INNER, HIDDEN)
    residual = g.add(f"{path}/output/Add", "Add", narrow, attended)
    return layer_norm(g, residual, f"{path}/output/LayerNorm")


def encoder() -> ModelProto:
    """Build the encoder: embeddings, the layers, and a pooler on the first token."""
    g = Nodes()
    table = g.weight("/embeddings/weight", WORDS, HIDDEN, scale=1.0)
    hidden = g.add("/embeddings/Gather", "Gather", table, "input_ids")
    for index in range(LAYERS):
        hidden = layer(g, hidden, f"/encoder/layer.{index}")
    last = g.add("/encoder/Identity", "Identity", hidden, to="last_hidden_state")
    token = g.add("/pooler/Gather", "Gather", last, "first", axis=1)
    pooled = g.linear(token, "/pooler/dense", HIDDEN, HIDDEN)
    g.add("/pooler/activation/Tanh", "Tanh", pooled, to="pooler_output")
    return g.into(HEADER)
