"""What the vocabulary writes, the same call as a pattern finds: each function, sample and opset."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest
from proofs.rows import array, build, names_of
from proofs.samples import SAMPLES, Sample

import oprep
from oprep.converters.frontends.onnx_schema import newest_opset
from oprep.opsets.load import load_opset
from oprep.opsets.vocabulary import vocabulary

OPSETS = (9, 11, 12, 13, 17, 18, 20, newest_opset())


def pattern_of(name: str, sample: Sample) -> str:
    """Write the call of a sample as a rule has it, each tensor a variable of its name."""
    tensors = [f"[{', '.join(t)}]" if isinstance(t, tuple) else t for t in sample.tensors]
    keywords = [f"{key}={value!r}" for key, value in sample.keywords.items()]
    if name in ("gather", "index_select"):
        tensors[1:] = [f"index={tensors[1]}"]
    call = f"{name}({', '.join([*tensors, *keywords])})"
    outputs = vocabulary()[name].outputs or len(sample.keywords["split_size_or_sections"])
    if outputs == 1:
        return call
    results = ", ".join(f"r{i}" for i in range(outputs))
    return f"{results} = {call}; return {results}"


def rules_for(name: str, sample: Sample) -> str:
    """Write a rule that replaces the call by an op of the same inputs and outputs."""
    inputs = names_of(sample)
    outputs = vocabulary()[name].outputs or len(sample.keywords["split_size_or_sections"])
    results = ", ".join(["Tensor"] * outputs)
    schema = f"({', '.join(f'Tensor {key}' for key in inputs)}) -> "
    schema += results if outputs == 1 else f"({results})"
    targets = ", ".join(f"r{i}" for i in range(outputs))
    call = f"acme::f({', '.join(inputs)})"
    replacement = call if outputs == 1 else f"{targets} = {call}; return {targets}"
    return f'''
format = 1
[[op]]
name = "acme::f"
schema = "{schema}"
ort_library = "libacme.so"
[[rule]]
replace = """{pattern_of(name, sample)}"""
with = "{replacement}"
expect = 1
'''


def models(name: str, sample: Sample) -> Iterator[tuple[int, onnx.ModelProto]]:
    feeds = {key: array(key, "float32") for key in names_of(sample)}
    for opset in OPSETS:
        written = build(vocabulary()[name], opset, sample, feeds)
        if written is not None:
            model = onnx.load_from_string(written)
            yield opset, typed(model)


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Declare the types of the outputs, which the matcher may ask for."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    assert all(item.type.HasField("tensor_type") for item in inferred.graph.output)
    for place, item in zip(model.graph.output, inferred.graph.output, strict=True):
        place.CopyFrom(item)
    del model.metadata_props[:]
    return model


# The matcher does not yet read parameters that only `when` mentions, nor `cat([x, y])`.
@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_call_is_found_in_what_it_is_written_as(name: str) -> None:
    missed = []
    for sample in SAMPLES[name]:
        rules = load_opset(rules_for(name, sample), "rules.toml")
        for opset, model in models(name, sample):
            try:
                report = oprep.convert(model, rules=[rules], verify=False, dry_run=True)
            except oprep.OprepError as error:
                missed.append(f"{pattern_of(name, sample)} opset {opset}: {error}")
                continue
            assert report.matches == 1
    assert not missed, "\n".join(missed[:5])
