"""How inputs and outputs nest, as a program says it: JSON in which torch looks up modules.

A `defaultdict` names its factory and an enum its class, both imported by name when the program is
loaded; keys of dicts are written into code when it is run. So all three are held to plain forms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from oprep.converters.pt2.expressions import Unparsable, Unsafe, bare

FACTORIES = {"list", "dict", "set", "tuple", "int", "float", "str", "bool"}
NODE_KEYS = {"type", "context", "children_spec"}
MAX_DEPTH = 64


def check_treespec(text: str) -> None:
    """Check one `in_spec` or `out_spec`."""
    try:
        protocol, tree = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise Unparsable(text) from error
    if protocol != 1 or not isinstance(tree, dict):
        raise Unparsable(text)
    _node(tree, 0)
    for key in _keyword_names(tree):
        if not key.isidentifier():
            raise Unsafe(f"keyword `{key}`")


def _node(tree: Any, depth: int) -> None:
    if not isinstance(tree, dict) or set(tree) != NODE_KEYS or depth > MAX_DEPTH:
        raise Unparsable(json.dumps(tree)[:200])
    kind, context, children = tree["type"], tree["context"], tree["children_spec"]
    if not isinstance(kind, str | None) or not isinstance(children, list):
        raise Unparsable(json.dumps(tree)[:200])
    _context(kind, context)
    for child in children:
        _node(child, depth + 1)


def _context(kind: str | None, context: Any) -> None:
    if kind == "collections.defaultdict":
        _factory(context)
        return
    if isinstance(context, str) and kind != "collections.namedtuple":
        try:
            context = json.loads(context)
        except (ValueError, RecursionError) as error:
            raise Unparsable(context) from error
    for part in _parts(context):
        if isinstance(part, dict) and "__enum__" in part:
            raise Unsafe(f"enum {part.get('fqn')}")
        if isinstance(part, str) and not bare(part):
            raise Unsafe(f"key {part}")


def _factory(context: Any) -> None:
    if not isinstance(context, dict):
        raise Unparsable(json.dumps(context)[:200])
    module, name = context.get("default_factory_module"), context.get("default_factory_name")
    if module != "builtins" or name not in FACTORIES:
        raise Unsafe(f"factory {module}.{name}")
    for part in _parts(context.get("dict_context")):
        if isinstance(part, str) and not bare(part):
            raise Unsafe(f"key {part}")


def _parts(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        part = stack.pop()
        yield part
        if isinstance(part, dict):
            stack += [*part, *part.values()]
        elif isinstance(part, list):
            stack += part


def _keyword_names(tree: Any) -> list[str]:
    """Give the names of keyword arguments of a program's call: torch writes them into code."""
    children = tree["children_spec"]
    if tree["type"] != "builtins.tuple" or len(children) != 2:
        return []
    last = children[1]
    if last["type"] != "builtins.dict" or children[0]["type"] != "builtins.tuple":
        return []
    return [str(key) for key in json.loads(last["context"])]
