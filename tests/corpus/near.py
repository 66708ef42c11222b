"""Models that miss a rule by one condition each, with what the report has to say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx
from onnx import parser

from tests.corpus import decoys

GELU = 'replace = "0.5 * x * (1 + erf(x / sqrt(2)))"\nwith = "acme::f(x)"'


@dataclass(frozen=True)
class Near:
    """A kind of condition, a model, the rule's own keys, and words that must stand in the miss.

    `site` is part of the name of the node that is nearest.
    """

    kind: str
    model: Callable[[], onnx.ModelProto]
    rule: str
    site: str
    says: tuple[str, ...]

    @property
    def text(self) -> str:
        """Give the rule file's text without its format line."""
        return (
            f'[[op]]\nname = "acme::f"\nbody = "relu(x)"\n\n'
            f'[[rule]]\nname = "near"\nexpect = ">=0"\n{self.rule}\n'
        )


def small(
    nodes: str, *, stored: str = "", x: str = "float[batch,4] x", opset: int = 18, more: str = ""
) -> Callable[[], onnx.ModelProto]:
    """Make a model of a few nodes between `x` (and `other`) and `y`."""

    def build() -> onnx.ModelProto:
        return parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : {opset}]>
            main ({x}, float[batch,4] other) => (float[batch,4] y {more})
            <{stored}> {{ {nodes} }}"""
        )

    return build


NEAR: tuple[Near, ...] = (
    Near(
        "constant",
        lambda: decoys.decoys(["1.5 for sqrt(2)"]),
        GELU,
        "decoy0",
        ("1.5", "1.4142"),
    ),
    Near(
        "attribute",
        small("[act] y = LeakyRelu <alpha: float = 0.25> (x)"),
        'replace = "leaky_relu(x, negative_slope=0.2)"\nwith = "acme::f(x)"',
        "act",
        ("0.25", "0.2"),
    ),
    Near(
        "attribute left at its default",
        small("[act] y = Softmax <axis: int = 0> (x)"),
        'replace = "Softmax(x)"\nwith = "acme::f(x)"',
        "act",
        ("axis", "0", "-1"),
    ),
    Near(
        "dtype",
        small("[act] y = Relu (x)"),
        'replace = "relu(x)"\nwith = "acme::f(x)"\nwhen = "dtype(x) == \'float16\'"',
        "act",
        ("float32", "float16"),
    ),
    Near(
        "rank unknown",
        small("[turn] z = Reshape (x, dims) [act] y = Relu (z)", x="float[k] x, int64[n] dims"),
        'replace = "relu(x)"\nwith = "acme::f(x)"\nwhen = "rank(x) == 2"',
        "act",
        ("rank", "unknown"),
    ),
    Near(
        "users",
        small(
            "[gate] s = Sigmoid (x) [act] y = Mul (x, s) [extra] z = Relu (s)",
            more=", float[batch,4] z",
        ),
        'replace = "s = sigmoid(x); x * s"\nwith = "acme::f(x)"\nwhen = "users(s) == 1"',
        "gate",
        ("users", "2", "1"),
    ),
    Near(
        "overridable",
        lambda: decoys.plain(also_inputs=(0,)),
        GELU,
        "gelu",
        ("overrid", "input"),
    ),
    Near(
        "scope",
        small("[act] y = Relu (x)"),
        'replace = "relu(x)"\nwith = "acme::f(x)"\nscope = "encoder.*"',
        "act",
        ("encoder.*", "act"),
    ),
    Near(
        "other variable",
        small("[gate] s = Sigmoid (other) [act] y = Mul (x, s)"),
        'replace = "x * sigmoid(x)"\nwith = "acme::f(x)"',
        "gate",
        ("other", "x"),
    ),
    Near(
        "arity",
        small("[act] y = Clip (x, low, high)", stored="float low = {0.0}, float high = {6.0}"),
        'replace = "Clip(x, 0)"\nwith = "acme::f(x)"',
        "act",
        ("max", "6"),
    ),
    Near(
        "opset that lacks the op",
        small("[act] y = Relu (x)"),
        'replace = "Gelu(x)"\nwith = "acme::f(x)"',
        "",
        ("Gelu", "20", "18"),
    ),
    Near(
        "opset where the op means something else",
        small("[act] y = Softmax <axis: int = 1> (x)", x="float[batch,4,4] x", opset=11),
        'replace = "softmax(x, dim=1)"\nwith = "acme::f(x)"',
        "act",
        ("Softmax", "opset", "11"),
    ),
    Near(
        "unused output in use",
        small(
            "[act] y, mask = Dropout (x) [use] z = Identity (mask)",
            more=", bool[batch,4] z",
        ),
        'replace = "Dropout(x)"\nwith = "acme::f(x)"',
        "act",
        ("mask",),
    ),
)
