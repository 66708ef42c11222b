"""Real and sample models, each with rules and the number of sites those have to find in it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
RULES = SAMPLES / "rules"


def packaged(package: str) -> Path:
    """Find the one ONNX file inside an installed package, without importing it."""
    spec = find_spec(package)
    assert spec is not None, f"`{package}` of the test extra is not installed"
    assert spec.submodule_search_locations
    (path,) = sorted(Path(spec.submodule_search_locations[0]).rglob("*.onnx"))
    return path


SAMPLE_CASES: list[tuple[str, str, dict[str, int]]] = [
    ("encoder.onnx", "../gelu.toml", {"gelu-erf": 4}),
    ("encoder.onnx", "region.toml", {"first-activation": 1}),
    ("branches.onnx", "gelu.toml", {"gelu-erf": 2}),
    ("branches.onnx", "relu.toml", {"relu": 3}),
    ("loop.onnx", "gelu.toml", {"gelu-erf": 2}),
    ("loop.onnx", "relu.toml", {"relu": 2}),
    ("functions.onnx", "gelu.toml", {"gelu-erf": 1}),
    ("functions.onnx", "relu.toml", {"relu": 2}),
    ("conv.onnx", "hardswish.toml", {"hardswish": 2, "gate": 1}),
    ("conv.onnx", "relu6.toml", {"relu6": 3}),
    ("conv.onnx", "relu.toml", {"relu": 1}),
    ("conv.onnx", "decompose.toml", {"hardsigmoid-to-clip": 1}),
    ("half.onnx", "gelu.toml", {"gelu-erf": 1}),
    ("legacy.onnx", "silu.toml", {"silu": 1}),
    ("legacy.onnx", "relu.toml", {"relu": 1}),
    ("legacy.onnx", "relu6.toml", {"relu6": 1}),
    ("external/model.onnx", "gelu.toml", {"gelu-erf": 1}),
]
"""Sample model, rule file, sites by rule."""

REAL_CASES: list[tuple[str, str, dict[str, int]]] = [
    ("swift_f0", "relu.toml", {"relu": 15}),
    ("magika", "gelu_tanh.toml", {"gelu-tanh": 2}),
]
"""Package that holds a model, rule file, sites by rule."""


def every_case() -> list[tuple[str, Path, Path, dict[str, int]]]:
    """Give a name, the model, the rule file and the sites by rule, samples first."""
    samples = [
        (f"{model} {rules}", SAMPLES / model, (RULES / rules).resolve(), count)
        for model, rules, count in SAMPLE_CASES
    ]
    return samples + [
        (package, packaged(package), RULES / rules, count) for package, rules, count in REAL_CASES
    ]
