"""A program compiled by AOTInductor: a package that runs without its Python code.

Compiling takes a C++ compiler and half a minute; it belongs into a child with a time limit. What a
package computes is checked where the ops are registered, in another fresh process.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor.exc import InvalidCxxCompiler
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from oprep.converters.programs.copying import Copied
from oprep.converters.programs.running import named_outputs
from oprep.opsets.errors import ExitCode, OprepError

PACKAGE = "package.pt2"
CONFIGURATION = {"aot_inductor.precompile_headers": False}
"""Headers precompiled in a child's own folder serve one compilation, and take longer than it."""

BUILT = (
    "an AOTInductor package is built for this machine: its bytes differ from build to build, and"
    " it names the folders of the build"
)


def compile_package(exported: ExportedProgram, folder: Path, name: str = "program") -> Path:
    """Compile a program into a package in `folder`; the program stays as it is.

    The package carries no stack traces of the program. Raise OprepError (exit 8) where there is no
    C++ compiler, or Inductor cannot compile the program.
    """
    bare = without_traces(exported)
    target = folder / PACKAGE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = torch._inductor.aoti_compile_and_package(
                bare, package_path=str(target), inductor_configs=CONFIGURATION
            )
        except InvalidCxxCompiler as error:
            raise OprepError(
                f"`{name}` cannot be compiled: there is no C++ compiler",
                name,
                help="install `g++`, or write a `.pt2`",
                exit_code=ExitCode.OUTPUT,
            ) from error
        except Exception as error:
            raise _failed(error, name) from error
    return Path(made)


def without_traces(exported: ExportedProgram) -> ExportedProgram:
    """Copy a program's graphs without the stack traces of the user's source."""
    copied = Copied(exported)
    for graph in copied.graphs.values():
        for node in graph.nodes:
            node.meta.pop("stack_trace", None)
    return copied.finish()


def run_package(package: Path, leaves: Sequence[Any]) -> Mapping[str, Any]:
    """Run a package that was just built on flat inputs; give its outputs by name.

    Loading a package runs its machine code: only what this run has built is loaded.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch._inductor.aoti_load_package(str(package))
        in_spec = pytree.treespec_loads(loaded.loader.get_call_spec()[0])
        args, kwargs = pytree.tree_unflatten(list(leaves), in_spec)
        return named_outputs(loaded(*args, **kwargs))


def _failed(error: Exception, name: str) -> OprepError:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = next((line for line in str(cause).splitlines() if line.strip()), "")
    return OprepError(
        f"`{name}` cannot be compiled by AOTInductor",
        name,
        (f"torch says: {type(cause).__name__}: {json.dumps(text)[1:200]}",),
        "write a `.pt2`",
        ExitCode.OUTPUT,
    )
