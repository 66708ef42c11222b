"""Run a test in a warm child with a time limit: `@in_child()` above a test that needs torch.

The decorated function may take parametrised plain values (`str`, numbers, lists); it is called in
the child, where its module is imported anew. One child serves all tests of a worker; after a
death the next test starts another one.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from oprep.converters.runner import Child, Limits

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
Test = TypeVar("Test", bound=Callable[..., None])

_children: dict[str, Child] = {}
_inside = False


def in_child(seconds: float = 120.0, *, fresh: bool = False) -> Callable[[Test], Test]:
    """Make a test run in the warm child, or with `fresh` in a child of its own."""

    def decorate(test: Test) -> Test:
        if _inside:
            return test

        @functools.wraps(test)
        def run(**values: Any) -> None:
            call(test.__code__.co_filename, test.__name__, values, seconds, fresh=fresh)

        return run  # type: ignore[return-value]

    return decorate


def call(
    file: str, name: str, values: dict[str, Any], seconds: float, *, fresh: bool = False
) -> Any:
    """Call a function of a test module in a child; fail the test where it raises or dies."""
    child = start() if fresh else _children.setdefault("warm", start())
    payload = {"file": file, "name": name, "values": values}
    ended = child.call("torch_child:task", payload, Limits(seconds))
    if fresh:
        child.close()
    if ended.outcome == "ok" and isinstance(ended.value, dict) and "skip" in ended.value:
        pytest.skip(ended.value["skip"])
    if ended.outcome != "ok":
        told = "\n".join(
            text for text in (ended.trace, ended.stdout, ended.stderr, ended.error) if text
        )
        pytest.fail(f"{name} {ended.outcome}: {told}", pytrace=False)
    return ended.value


def start() -> Child:
    """Give a child that may read this checkout; it starts with its first call."""
    child = Child(readable=(ROOT,), import_from=(TESTS,))
    atexit.register(child.close)
    return child


def task(payload: dict[str, Any], say: Callable[[str], None]) -> Any:
    """Import a test module from its file and call one function of it; runs in the child."""
    global _inside
    _inside = True
    path = Path(payload["file"])
    module = sys.modules.get(path.stem)
    if module is None or getattr(module, "__file__", None) != str(path):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    say(payload["name"])
    try:
        return getattr(module, payload["name"])(**payload["values"])
    except pytest.skip.Exception as skipped:
        return {"skip": str(skipped)}
