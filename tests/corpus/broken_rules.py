"""Rule files with one mistake each, and words of which one has to stand in the message."""

from __future__ import annotations

RULE = """
[[rule]]
name    = "r"
replace = "relu(x)"
with    = "Tanh(x)"
"""
OP = """
[[op]]
name = "acme::f"
body = "relu(x)"
"""


def rule(**keys: str) -> str:
    """Write a rule with the given keys, as TOML; None of the others stay away."""
    given = {"name": '"r"', "replace": '"relu(x)"', "with": '"Tanh(x)"'} | keys
    lines = [f"{key} = {value}" for key, value in given.items() if value]
    return "\n".join(["format = 1", "[[rule]]", *lines, ""])


def equation(pattern: str, replacement: str = "Tanh(x)", **keys: str) -> str:
    """Write a rule with a pattern and a replacement."""
    return rule(replace=f"'''{pattern}'''", **{"with": f"'''{replacement}'''"}, **keys)


BROKEN: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("format",)),
    "no format": (RULE, ("format",)),
    "format of the future": (f"format = 2\n{RULE}", ("2",)),
    "format as text": (f'format = "1"\n{RULE}', ("format",)),
    "no TOML": ("rules: [a, b]\n", ()),
    "not UTF-8": (b"format = 1\n# \xff\xfe\n", ("UTF-8", "utf-8")),
    "bytes of a model": (b"\x08\x08\x12\x00" * 20, ()),
    "unknown key of the file": (f"format = 1\nrulez = 1\n{RULE}", ("rulez",)),
    "unknown key of a rule": (rule(tolerence="1"), ("tolerence",)),
    "unknown key of an op": (f"format = 1\n{OP}bodi = 1\n", ("bodi",)),
    "unknown key of a tolerance": (rule(tolerance="{ rtol = 1e-3, atoll = 0 }"), ("atoll",)),
    "key twice": (f'format = 1\n{RULE}name = "again"\n', ("name",)),
    "name twice": (f"format = 1\n{RULE}{RULE}", ("`r`",)),
    "op twice": (f"format = 1\n{OP}{OP}{RULE}", ("acme::f",)),
    "rule is a table": ('format = 1\n[rule]\nname = "r"\n', ("rule",)),
    "replace missing": (rule(replace=""), ("replace",)),
    "with missing": (rule(**{"with": ""}), ("with",)),
    "replace is a number": (rule(replace="3"), ("replace",)),
    "replace is an empty list": (rule(replace="[]"), ("replace",)),
    "name is a number": (rule(name="3"), ("name",)),
    "exact is text": (rule(exact='"yes"'), ("exact",)),
    "scope is a number": (rule(scope="1"), ("scope",)),
    "gradient unknown": (rule(gradient='"mine"'), ("gradient",)),
    "expect is no comparison": (rule(expect='"many"'), ("many",)),
    "expect below zero": (rule(expect="-1"), ("-1",)),
    "expect is a fraction": (rule(expect="1.5"), ("1.5", "expect")),
    "tolerance is NaN": (rule(tolerance="{ rtol = nan, atol = 0 }"), ("nan",)),
    "tolerance is infinite": (rule(tolerance="{ rtol = 1e-3, atol = inf }"), ("inf",)),
    "tolerance below zero": (rule(tolerance="{ rtol = -1e-3, atol = 0 }"), ("-0.001", "-1e-3")),
    "tolerance is text": (rule(tolerance='{ rtol = "1e-3", atol = 0 }'), ("rtol",)),
    "equation not closed": (equation("relu(x"), ("^",)),
    "equation with a stray sign": (equation("relu(x) +"), ("^",)),
    "equation with an attribute": (equation("relu(x.data)"), ("^",)),
    "equation with an index": (equation("relu(x[0])"), ("^",)),
    "equation with a character of its own": (equation("relu(x) § 2"), ("^",)),
    "equation is empty": (equation(""), ("replace",)),
    "equation nested 70 deep": (equation("(" * 70 + "relu(x)" + ")" * 70), ("64",)),
    "equation nested 100,000 deep": (equation("(" * 100_000 + "x"), ("64",)),
    "unknown function": (equation("rellu(x)"), ("rellu",)),
    "unknown keyword": (equation("relu(x, slope=2)"), ("slope",)),
    "too many arguments": (equation("relu(x, y)"), ("relu",)),
    "too few arguments": (equation("relu()"), ("relu",)),
    "variable not bound": (equation("relu(x)", "Add(x, y)"), ("`y`",)),
    "variable of when not bound": (equation("relu(x)", when='"rank(y) == 2"'), ("`y`",)),
    "when is no expression": (equation("relu(x)", when='"rank(x) =="'), ("^",)),
    "when with an unknown function": (equation("relu(x)", when='"size(x) == 2"'), ("size",)),
    "two free variables in a product": (equation("relu(x) * a * b", "Tanh(x)"), ("`a`", "`b`")),
    "variable called pi": (equation("pi = relu(x); pi * x"), ("pi",)),
    "alternatives bind differently": (
        rule(replace='["relu(x)", "sigmoid(y)"]'),
        ("`x`", "`y`"),
    ),
    "body not closed": (f'format = 1\n[[op]]\nname = "a::f"\nbody = "relu(x"\n{RULE}', ("^",)),
    "schema wrong": (
        f'format = 1\n[[op]]\nname = "a::f"\nschema = "Tensor x"\nbody = "relu(x)"\n{RULE}',
        ("schema",),
    ),
    "op without domain": (f'format = 1\n[[op]]\nname = "f"\nbody = "relu(x)"\n{RULE}', ("`f`",)),
    "op version below one": (
        'format = 1\n[[op]]\nname = "a::f"\nbody = "relu(x)"\n'
        f'onnx = {{ domain = "a", type = "F", version = 0 }}\n{RULE}',
        ("version",),
    ),
    "key of 20,000 parts": ("format = 1\n" + ".".join(["a"] * 20_000) + " = 1\n", ("64",)),
    "brackets 10,000 deep": ("format = 1\na = " + "[" * 10_000 + "\n", ("32",)),
    "name that would write to the terminal": (
        'format = 1\n"\\u001b[31m\\n::error::" = 1\n',
        ("::error::",),
    ),
}
