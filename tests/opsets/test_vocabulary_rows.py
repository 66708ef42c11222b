"""Each row of the vocabulary: the torch function against the ONNX nodes, run by a runtime."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import resources

import pytest
from proofs.rows import DTYPES, Case, boundaries, cases, torch_answer, writes
from proofs.running import Ran, close, run_all
from proofs.samples import FIXED, REFUSED, SAMPLES, VALUES, Sample

from oprep.converters.frontends.onnx_schema import newest_opset
from oprep.opsets.vocabulary import Function, read_function, vocabulary

# One change of a row each that makes it wrong: a text of the row, and what stands there instead.
MUTANTS = [
    ("gt", 'op = "Greater"', 'op = "Less"'),
    ("sub", 'op = "Sub"', 'op = "Add"'),
    ("sub", "input - alpha", "input + alpha"),
    ("div", ', dtypes = ["float"]', ""),
    ("div", '== \'trunc\'", dtypes = ["int"]', "== 'trunc'\""),
    ("floor_divide", "Div(Sub(input, Mod(input, other)), other)", "Div(input, other)"),
    ("remainder", 'dtypes = ["int"]', 'dtypes = ["int"], attributes = { fmod = 1 }'),
    ("fmod", ", attributes = { fmod = 1 }", ""),
    ("relu6", "max = 6.0", "max = 5.0"),
    ("relu6", "0, 6]", "0, 7]"),
    ("hardtanh", 'min = "min_val", max = "max_val"', 'min = "min_val"'),
    ("hardtanh", '["input", "min_val", "max_val"]', '["input", "max_val", "min_val"]'),
    ("clamp", 'min = "min", max = "max"', 'min = "max", max = "min"'),
    ("leaky_relu", ', attributes = { alpha = "negative_slope" }', ""),
    ("prelu", 'when = "rank(input) == 2 or', 'when = "rank(input) == 4 or'),
    ("celu", "alpha == 1", "alpha > 0"),
    ("gelu", "== 'tanh'", "== 'none'"),
    ("gelu", "0.044715", "0.44715"),
    ("hardsigmoid", "0.16666666666666666", "0.2"),
    ("hardswish", "alpha=1 / 6, ", ""),
    ("softplus", "threshold >= 20", "threshold >= 2"),
    ("softplus", "beta == 1 and threshold >= 20", "beta < 1 or threshold >= 20"),
    ("softmax", ', when = "dim == -1 or dim == rank(input) - 1"', ""),
    ("softmax", '13, attributes = { axis = "dim" }', "13"),
    ("log_softmax", ', when = "dim == -1 or dim == rank(input) - 1"', ""),
    ("ge", 'since = 9, dtypes = ["int"]', "since = 9"),
    ("le", "Or(Less(input, other), Equal(input, other))", "Less(input, other)"),
    ("logical_or", 'op = "Or"', 'op = "Xor"'),
    ("where", 'op = "Where"', 'op = "Where", inputs = ["condition", "other", "input"]'),
    ("sum", ', dtypes = ["float", "int64"]', ""),
    ("mean", "ReduceMean", "ReduceMax"),
    ("prod", ', attributes = { keepdims = "keepdim" }', ""),
    ("amax", 'keepdims = "keepdim"', "keepdims = 1"),
    ("amin", '["input", "dim"]', '["input", 0]'),
    ("argmax", ', keepdims = "keepdim"', ""),
    ("cumsum", 'inputs = ["input", "dim"]', 'inputs = ["input", 0]'),
    ("topk", ', largest = "largest"', ""),
    ("topk", 'axis = "dim"', "axis = 0"),
    ("cast", 'to = "dtype"', "to = 1"),
    ("reshape", ', when = "0 not in shape"', ""),
    ("flatten", "start_dim == 1 and ", ""),
    ("permute", 'perm = "dims"', "perm = [2, 1, 0]"),
    ("prod", "many = true", "many = false"),
    ("cat", 'axis = "dim"', "axis = 0"),
    ("split", 'axis = "dim"', "axis = 1"),
    ("gather", 'op = "GatherElements"', 'op = "Gather"'),
    ("index_select", 'axis = "dim"', "axis = 0"),
    ("embedding", '["weight", "input"]', '["input", "weight"]'),
    ("addmm", 'beta = "beta"', 'beta = "alpha"'),
    ("linear", "transB = 1", "transB = 0"),
    ("einsum", 'dtypes = ["float", "int64"]', 'dtypes = ["float", "int"]'),
    ("log2", "log(2)", "log(10)"),
    ("trunc", "Floor(Abs(input))", "Ceil(Abs(input))"),
    ("threshold", 'when = "value == 0"', 'when = "value >= 0"'),
    ("hardshrink", "bias = 0.0", 'bias = "lambd"'),
    ("softshrink", 'bias = "lambd"', "bias = 0.0"),
    ("glu", "a * Sigmoid(b)", "b * Sigmoid(a)"),
    ("bitwise_left_shift", '"LEFT"', '"RIGHT"'),
    ("var", 'when = "correction == 0"', 'when = "correction <= 1"'),
    ("vector_norm", 'when = "ord == 2"', 'when = "ord >= 1"'),
    ("sort", 'largest = "descending"', "largest = 1"),
    ("conv1d", 'dilations = "dilation"', "dilations = [1]"),
    ("conv2d", '"padding + padding"', '"padding + fill(0, 2)"'),
    ("conv2d", '"SAME_UPPER"', '"SAME_LOWER"'),
    ("conv_transpose2d", 'output_padding = "output_padding", ', ""),
    ("max_pool2d", 'ceil_mode = "ceil_mode"', "ceil_mode = 0"),
    ("max_pool2d", "window(stride, kernel_size, 2)", "fill(1, 2)"),
    ("avg_pool2d", 'count_include_pad = "count_include_pad"', "count_include_pad = 0"),
    ("adaptive_avg_pool2d", "output_size == [1, 1]", "output_size != [1, 2]"),
    ("lp_pool2d", '"int(norm_type)"', '"1"'),
    ("batch_norm", '"running_mean", "running_var"', '"running_var", "running_mean"'),
    ("layer_norm", 'epsilon = "eps"', "epsilon = 0.5"),
    ("layer_norm", "0 - len(normalized_shape)", "0 - 1"),
    ("rms_norm", "if eps == None", "if eps == 1"),
    ("group_norm", 'num_groups = "num_groups"', 'num_groups = { value = "num_groups // 2" }'),
    ("normalize", "min=eps", "min=1e-12"),
    ("local_response_norm", 'bias = "k"', "bias = 1.0"),
    ("transpose", "swapped(rank(input), dim0, dim1)", "mirrored(rank(input))"),
    ("slice", '"[step]"', '"[1]"'),
    ("select", '["input", "index"]', '["input", 0]'),
    ("scatter_add", '"add"', '"mul"'),
    ("scatter_reduce", "['add', 'mul', 'max', 'min']", "['add', 'mul', 'min', 'max']"),
    ("stack", "unsqueeze(item, dim)", "item"),
    ("pad", "'edge']", "'reflect']"),
    ("pad", '{ value = "value" }', '{ value = "value + value" }'),
    ("roll", "start=0 - item(shifts, 0)", "start=item(shifts, 0)"),
    ("flip", "-9223372036854775807", "0"),
    ("tril", "upper = 0", "upper = 1"),
    ("one_hot", "[0, 1]", "[1, 0]"),
    ("pixel_shuffle", '"CRD"', '"DCR"'),
    ("interpolate", '"asymmetric"', '"half_pixel"'),
    ("interpolate", '"half_pixel"', '"pytorch_half_pixel"'),
    ("interpolate", "cubic_coeff_a = -0.75", "cubic_coeff_a = -0.5"),
    ("grid_sample", 'align_corners = "align_corners"', "align_corners = 0"),
    ("affine_grid", 'align_corners = "align_corners"', "align_corners = 0"),
    ("scaled_dot_product_attention", 'scale = "scale"', "scale = 1.0"),
    ("scaled_dot_product_attention", "query * scale", "query * scale * 2"),
]


OPSETS = range(7, newest_opset() + 1)

# The first opset that can say a function, by sample where samples differ; 7 if not said.
FIRST: dict[str, int | dict[int, int]] = {
    "fmod": 10, "sign": 9, "erf": 9, "sinh": 9, "cosh": 9, "round": 11, "isnan": 9, "isinf": 10,
    "ge": 9, "le": 9, "eq": 11, "ne": 11, "where": 9, "cumsum": 11, "expand": 8, "gather": 11,
    "div": {2: 9}, "maximum": {1: 8}, "minimum": {1: 8}, "celu": {1: 8}, "gelu": {0: 9},
    "softplus": {1: 9, 2: 9}, "softmax": {2: 13, 3: 13}, "log_softmax": {2: 13, 3: 13},
    "dropout": {1: 12}, "topk": {2: 11}, "reshape": {2: 14}, "unsqueeze": {2: 11},
    **dict.fromkeys(("asinh", "acosh", "atanh", "erfc", "trunc", "frac", "threshold"), 9),
    **dict.fromkeys(("hardshrink", "softshrink", "masked_fill"), 9),
    "max_pool1d": {2: 10, 3: 10}, "max_pool2d": {2: 10, 3: 10, 4: 10},
    "avg_pool1d": {3: 10}, "avg_pool2d": {3: 10, 4: 10, 5: 10},
    "expand_as": 8, "slice": {4: 10}, "select": {2: 11}, "scatter": 9, "scatter_add": 16,
    "scatter_reduce": {0: 16, 1: 16, 2: 18, 3: 18}, "stack": {2: 11}, "pad": {6: 19}, "flip": 10,
    "tril": 14, "triu": 14, "one_hot": 9, "nonzero": 9, "pixel_shuffle": 11, "interpolate": 11,
    "grid_sample": 16, "affine_grid": 20, "scaled_dot_product_attention": {3: 23},
    "isfinite": 10, "softmin": {1: 13}, "det": 11, "sort": 11, "einsum": 12,
    "bitwise_left_shift": 11, "bitwise_right_shift": 11, "bitwise_not": {1: 18, 2: 18},
    **{key: {1: 18, 2: 18} for key in ("bitwise_and", "bitwise_or", "bitwise_xor")},
}  # fmt: skip


def rows() -> dict[str, str]:
    text = resources.files("oprep.opsets").joinpath("vocabulary.toml").read_text()
    parts = [f"[function.{part}" for part in text.split("\n[function.")[1:]]
    return {next(iter(tomllib.loads(part)["function"])): part for part in parts}


def run(
    functions: Iterable[Function], dtypes: Sequence[str] = DTYPES, *, few: bool = False
) -> list[list[tuple[Case, Ran]]]:
    made = [list(cases(function, dtypes, few=few)) for function in functions]
    jobs = [(case.model, case.feeds) for group in made for case in group]
    results = iter(run_all(jobs))
    return [[(case, next(results)) for case in group] for group in made]


@pytest.fixture(scope="module")
def proofs() -> list[tuple[Case, Ran]]:
    return [proof for group in run(vocabulary().values()) for proof in group]


# Ops that onnx's evaluator, which stands in where ONNX Runtime has no kernel, gets wrong.
MISTAKEN = {"MaxPool", "GlobalMaxPool", "LRN", "Resize", "GridSample"}
# Functions whose weights the runtime computes in float32, or in another order than torch.
SLACK = {"interpolate": 8.0, "grid_sample": 32.0}


def faults(proofs: list[tuple[Case, Ran]]) -> list[str]:
    found = []
    for case, ran in proofs:
        form = vocabulary()[case.function].onnx[case.form]
        by_evaluator = ran.by == "reference" or "ONNXRuntimeError" not in str(ran.outputs)
        if form.op in MISTAKEN and ran.by != "onnxruntime" and by_evaluator:
            continue
        if ran.by == "failed":
            found.append(f"{case}: {ran.outputs[:300]}")
            continue
        for candidate, reference in zip(ran.outputs, case.expected, strict=True):
            if problem := close(candidate, reference, SLACK.get(case.function, 1.0)):
                found.append(f"{case}: {problem} ({ran.by})")
    return found


def test_every_function_has_samples() -> None:
    assert set(SAMPLES) == set(vocabulary())


def test_every_row_means_what_the_torch_function_means(proofs: list[tuple[Case, Ran]]) -> None:
    found = faults(proofs)
    assert not found, f"{len(found)} faults\n" + "\n".join(found[:40])


def test_every_form_is_tried_at_every_opset_where_it_or_its_op_changes(
    proofs: list[tuple[Case, Ran]],
) -> None:
    tried = defaultdict(set)
    for case, _ in proofs:
        tried[case.function, case.form].add(case.opset)
    missing = {
        (name, number): sorted(set(boundaries(form)) - tried[name, number])
        for name, function in vocabulary().items()
        for number, form in enumerate(function.onnx)
    }
    assert not {key: opsets for key, opsets in missing.items() if opsets}


def test_every_form_is_run_by_onnx_runtime(proofs: list[tuple[Case, Ran]]) -> None:
    runtimes = defaultdict(set)
    for case, ran in proofs:
        runtimes[case.function, case.form].add(ran.by)
    assert not {key for key, names in runtimes.items() if "onnxruntime" not in names}


def test_a_call_that_onnx_cannot_say_is_written_in_no_opset() -> None:
    for name, samples in REFUSED.items():
        for sample in samples:
            able = [opset for opset in OPSETS if writes(vocabulary()[name], opset, sample)]
            assert not able, (name, str(sample))


def untaken(name: str, group: Iterable[tuple[Case, Ran]]) -> set[str]:
    return {str(sample) for sample in SAMPLES[name]} - {str(case.sample) for case, _ in group}


def test_every_sample_is_one_that_torch_and_a_form_take(proofs: list[tuple[Case, Ran]]) -> None:
    for name in SAMPLES:
        assert not untaken(name, [proof for proof in proofs if proof[0].function == name]), name


def test_each_call_can_be_written_from_its_first_opset_on() -> None:
    wrong = {}
    for name, function in vocabulary().items():
        for number, sample in enumerate(SAMPLES[name]):
            first = FIRST.get(name, 7)
            first = first.get(number, 7) if isinstance(first, dict) else first
            asked = {
                opset: opset >= first
                for opset in (7, first - 1, first, newest_opset())
                if opset in OPSETS
            }
            able = {opset: writes(function, opset, sample) for opset in asked}
            if able != asked:
                wrong[name, number] = able
    assert not wrong


def test_a_function_that_gives_floats_gives_nothing_else(proofs: list[tuple[Case, Ran]]) -> None:
    given = defaultdict(set)
    for case, _ in proofs:
        given[case.function] |= {result.dtype.kind for result in case.expected}
    assert {name for name, row in vocabulary().items() if row.floats} <= {
        name for name, kinds in given.items() if kinds == {"f"}
    }


def test_operands_commute_exactly_where_the_row_says_so() -> None:
    pairs = [("x", "y"), ("mask", "other_mask")]
    for name, function in vocabulary().items():
        for left, right in pairs:
            if Sample((left, right)) in SAMPLES[name]:
                feeds = {key: {**VALUES, **FIXED}[key] for key in (left, right)}
                one = torch_answer(name, Sample((left, right)), feeds)
                other = torch_answer(name, Sample((right, left)), feeds)
                assert one is not None
                assert other is not None
                same = not close(one[0], other[0])
                assert same == function.commutative, name


def test_a_wrong_row_is_found() -> None:
    texts = rows()
    made = []
    for name, right, wrong in MUTANTS:
        assert right in texts[name], (name, right)
        row = tomllib.loads(texts[name].replace(right, wrong))["function"][name]
        made.append(read_function(name, row))
    groups = zip(MUTANTS, run(made, ("float32", "int32"), few=True), strict=True)
    alive = [
        mutant for mutant, group in groups if not faults(group) and not untaken(mutant[0], group)
    ]
    assert not alive, "\n".join(map(str, alive))
