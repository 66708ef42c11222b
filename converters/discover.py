"""Find the parts that a folder contributes: every module of `checks/` exports one `CHECK`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oprep.converters.checks.subject import Check


def constants(package: str, name: str) -> list[Any]:
    """Give the constant `name` of every module of a package that has it, by module name."""
    folder = importlib.import_module(package)
    modules = sorted(item.name for item in pkgutil.iter_modules(folder.__path__))
    found = (importlib.import_module(f"{package}.{module}") for module in modules)
    return [getattr(module, name) for module in found if hasattr(module, name)]


def checks() -> tuple[Check, ...]:
    """Give all checks in the order in which they run: the cheap ones and the sites first."""
    found: list[Check] = constants("oprep.converters.checks", "CHECK")
    return tuple(sorted(found, key=lambda check: (check.order, check.name)))
