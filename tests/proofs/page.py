"""The page of the vocabulary, written from its table."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from typing import Any

HEAD = """# The vocabulary

Written from `opsets/vocabulary.toml` by `tests/opsets/test_vocabulary_page.py`, which also compares
the two. {count} functions, each tried by the tests in ONNX Runtime and in torch.

A function has the signature and the defaults of the torch function of its name. It stands for the
overloads of torch that are listed, with their in-place and `out=` forms, and for the ONNX forms,
each in the opsets that stand before it. `when` is part of the meaning: where it does not hold, or
is unknown, the form is not that function. `read` marks forms that are found but never written,
`written` those that are written but never found. Where a parameter is not the same as an attribute
(`padding` is half of `pads`), the table says how it is computed; arguments that may be written in
several ways (`stride=2` and `stride=[2, 2]`) are compared by what they mean.

Recurrent layers are no functions: torch and ONNX order their weights differently, which no row can
say; name them exactly (`LSTM(…)`, `aten::lstm.input(…)`).
"""


def page() -> str:
    """Write the whole page."""
    text = resources.files("oprep.opsets").joinpath("vocabulary.toml").read_text(encoding="utf-8")
    parts = re.split(r"^# --- (.*?) -+$", text, flags=re.M)
    rows = sum(part.count("\n[function.") for part in parts)
    written = [HEAD.format(count=rows)]
    for title, part in zip(parts[1::2], parts[2::2], strict=True):
        written.append(f"## {title[0].upper()}{title[1:]}\n")
        functions = tomllib.loads(part)["function"]
        written += [_function(name, row) for name, row in functions.items()]
    return "\n".join(written)


def _function(name: str, row: dict[str, Any]) -> str:
    lines = [f"### {name}\n", f"`{name}({row['signature']})`\n"]
    if row["aten"]:
        lines.append(f"- torch: {', '.join(f'`{item}`' for item in row['aten'])}")
    lines += [f"- torch: {_form(form)}" for form in row.get("torch", ())]
    if not row["aten"] and "torch" not in row:
        lines.append("- torch: no op, and no equation that holds for every shape")
    lines += [f"- ONNX {_opsets(form)}: {_form(form)}" for form in row["onnx"]]
    return "\n".join(lines) + "\n"


def _opsets(form: dict[str, Any]) -> str:
    since, until = form.get("since", 7), form.get("until")
    if until is None:
        return f"{since}+"
    return str(since) if since == until else f"{since} to {until}"


def _form(form: dict[str, Any]) -> str:
    text = f"`{form['equation']}`" if "equation" in form else f"`{_node(form)}`"
    when = " and ".join(form[key] for key in ("when", "writes_when") if key in form)
    text += f", when `{when}`" if when else ""
    text += f", on {', '.join(form['dtypes'])}" if "dtypes" in form else ""
    text += " (read)" if not form.get("emit", True) else ""
    return text + (" (written)" if not form.get("read", True) else "")


def _node(form: dict[str, Any]) -> str:
    attributes = [f"{key}={_slot(item)}" for key, item in form.get("attributes", {}).items()]
    inputs = [_slot(item) for item in form.get("inputs", ["…"])]
    return f"{form['op']}({', '.join([*inputs, *attributes])})"


def _slot(item: Any) -> str:
    if isinstance(item, dict):
        if "literal" in item:
            return repr(item["literal"])
        return str(item.get("value", item.get("parameter")))
    return str(item)
