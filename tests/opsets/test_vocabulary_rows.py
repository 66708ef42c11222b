"""Each row of the vocabulary: the torch function against the ONNX nodes, run by a runtime."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import resources

import pytest
from proofs.rows import DTYPES, Case, boundaries, cases, torch_answer, writes
from proofs.running import Ran, close, run_all
from proofs.samples import FIXED, SAMPLES, VALUES, Sample

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
]


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
    "isfinite": 10, "softmin": {1: 13}, "det": 11, "sort": 11, "einsum": 12,
    "bitwise_left_shift": 11, "bitwise_right_shift": 11, "bitwise_not": {1: 18, 2: 18},
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), {1: 18, 2: 18}),
}  # fmt: skip


def rows() -> dict[str, str]:
    text = resources.files("oprep.opsets").joinpath("vocabulary.toml").read_text()
    parts = [f"[function.{part}" for part in text.split("\n[function.")[1:]]
    return {next(iter(tomllib.loads(part)["function"])): part for part in parts}


def run(
    functions: Iterable[Function], dtypes: Sequence[str] = DTYPES
) -> list[list[tuple[Case, Ran]]]:
    made = [list(cases(function, dtypes)) for function in functions]
    jobs = [(case.model, case.feeds) for group in made for case in group]
    results = iter(run_all(jobs))
    return [[(case, next(results)) for case in group] for group in made]


@pytest.fixture(scope="module")
def proofs() -> list[tuple[Case, Ran]]:
    return [proof for group in run(vocabulary().values()) for proof in group]


# Ops that onnx's evaluator, which stands in where ONNX Runtime has no kernel, gets wrong.
MISTAKEN = {"MaxPool", "GlobalMaxPool", "LRN"}


def faults(proofs: list[tuple[Case, Ran]]) -> list[str]:
    found = []
    for case, ran in proofs:
        form = vocabulary()[case.function].onnx[case.form]
        if form.op in MISTAKEN and (ran.by == "reference" or "IndexError" in str(ran.outputs)):
            continue
        if ran.by == "failed":
            found.append(f"{case}: {ran.outputs[:300]}")
            continue
        for candidate, reference in zip(ran.outputs, case.expected, strict=True):
            if problem := close(candidate, reference):
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


def untaken(name: str, group: Iterable[tuple[Case, Ran]]) -> set[str]:
    return {str(sample) for sample in SAMPLES[name]} - {str(case.sample) for case, _ in group}


def test_every_sample_is_one_that_torch_and_a_form_take(proofs: list[tuple[Case, Ran]]) -> None:
    for name in SAMPLES:
        assert not untaken(name, [proof for proof in proofs if proof[0].function == name]), name


def test_each_call_can_be_written_from_its_first_opset_on() -> None:
    opsets, wrong = range(7, newest_opset() + 1), {}
    for name, function in vocabulary().items():
        for number, sample in enumerate(SAMPLES[name]):
            first = FIRST.get(name, 7)
            first = first.get(number, 7) if isinstance(first, dict) else first
            able = [opset for opset in opsets if writes(function, opset, sample)]
            if able != [opset for opset in opsets if opset >= first]:
                wrong[name, number] = able[:1]
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
    groups = zip(MUTANTS, run(made, ("float32", "int32")), strict=True)
    alive = [
        mutant for mutant, group in groups if not faults(group) and not untaken(mutant[0], group)
    ]
    assert not alive, "\n".join(map(str, alive))
