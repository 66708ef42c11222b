"""Replace operators in saved deep-learning models and prove the result.

Every name is imported on first use (PEP 562), so that `import oprep` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oprep.converters.libraries import load_library
    from oprep.converters.listing import list_ops
    from oprep.converters.pipeline import convert, verify
    from oprep.converters.programs.loading import load
    from oprep.converters.report import OpTable, Report, Verdict
    from oprep.opsets.errors import ExitCode, OprepError
    from oprep.opsets.rp import Rp, ops, register_autograd, register_composite, replace_standard
    from oprep.opsets.rule import Tolerance

    __version__: str

__all__ = [
    "ExitCode",
    "OpTable",
    "OprepError",
    "Report",
    "Rp",
    "Tolerance",
    "Verdict",
    "__version__",
    "convert",
    "list_ops",
    "load",
    "load_library",
    "ops",
    "register_autograd",
    "register_composite",
    "replace_standard",
    "verify",
]

_HOME = {
    "ExitCode": "oprep.opsets.errors",
    "OpTable": "oprep.converters.report",
    "OprepError": "oprep.opsets.errors",
    "Report": "oprep.converters.report",
    "Rp": "oprep.opsets.rp",
    "Tolerance": "oprep.opsets.rule",
    "Verdict": "oprep.converters.report",
    "convert": "oprep.converters.pipeline",
    "list_ops": "oprep.converters.listing",
    "load": "oprep.converters.programs.loading",
    "load_library": "oprep.converters.libraries",
    "ops": "oprep.opsets.rp",
    "register_autograd": "oprep.opsets.rp",
    "register_composite": "oprep.opsets.rp",
    "replace_standard": "oprep.opsets.rp",
    "verify": "oprep.converters.pipeline",
}


def _beside() -> list[str]:
    """Give the checkout's root where this is the source folder: the sub-packages lie in it.

    A script that runs in a checkout finds this folder before an installed package.
    """
    from os.path import dirname, isdir, join

    here = dirname(__file__)
    root = dirname(here)
    return [root] if not isdir(join(here, "cli")) and isdir(join(root, "converters")) else []


__path__ += _beside()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("oprep")
    elif name in _HOME:
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'oprep' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
