"""The rules of the house: who may import whom, read, write, print and start children."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("opsets", "converters", "cli")
HEAVY = {"numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "safetensors", "torch"}

CHILD_ONLY = {"converters/sessions.py"}
"""Modules that run in a child alone and may import a framework at the top."""

TORCH = ("converters/programs/", "opsets/rp/")
"""Packages that are made of torch: they import it at the top, others import them in functions."""

FILES = {
    f"converters/{name}.py"
    for name in (
        *("files", "arrays", "folders", "formats", "leftovers", "output", "reading", "staging"),
        *("runner", "child", "sandbox"),
    )
}
CHILDREN = {"converters/runner.py", "converters/child.py", "converters/sandbox.py"}
PRINTER = {"cli/render.py"}
WEIGHTS = {"converters/programs/weights.py", "converters/programs/pickles.py"}
"""Bytes that were read and judged before are unpickled here, in a child: tensors, or what the user
trusts."""

LIBRARIES = {"converters/libraries.py"}
"""Loads op libraries, after a child has: registering into this process is what a caller asks."""

PACKAGE_DATA = {"converters/rules.py"}
"""Modules that read data of the package itself, through importlib.resources."""

FORBIDDEN: dict[str, set[str]] = {
    "print": PRINTER,
    "sys.stdout": PRINTER | CHILDREN,
    "sys.stderr": PRINTER | CHILDREN,
    "typer.echo": PRINTER,
    "open": FILES,
    "io.open": FILES,
    "os.open": FILES | PRINTER,
    "os.fdopen": FILES,
    ".read_bytes": FILES | PACKAGE_DATA,
    ".write_bytes": FILES,
    ".write_text": FILES,
    ".tofile": FILES,
    "numpy.load": FILES,
    "numpy.save": FILES,
    "np.load": FILES,
    "np.save": FILES,
    "onnx.load": FILES,
    "onnx.load_model": FILES,
    "onnx.save": FILES,
    "onnx.save_model": FILES,
    "torch.load": FILES | WEIGHTS,
    "torch.save": FILES,
    "subprocess": CHILDREN,
    "multiprocessing": CHILDREN,
    "os.system": CHILDREN,
    "os.popen": CHILDREN,
    "os.fork": CHILDREN,
    "os.execv": CHILDREN,
    "os.posix_spawn": CHILDREN,
    ".load_library": CHILDREN | LIBRARIES,
    ".register_custom_ops_library": CHILDREN | CHILD_ONLY,
    "ctypes": CHILDREN,
    "eval": set(),
    "exec": set(),
    "pickle": set(),
    "marshal": set(),
}
"""What may be named only in the files at the right; a leading dot is a method of anything."""


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "__pycache__" not in path.parts]


def product() -> list[Path]:
    return sources(*LAYERS, "oprep")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk all nodes but those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(tree):
        if is_for_types(child):
            continue
        yield child
        yield from at_run_time(child)


def at_import_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs when the module is imported: no function bodies, nothing for types."""
    for child in ast.iter_child_nodes(tree):
        if is_for_types(child) or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield child
        yield from at_import_time(child)


def heavy_imports(text: str, *, anywhere: bool) -> set[str]:
    walk = at_run_time if anywhere else at_import_time
    names = {name for node in walk(ast.parse(text)) for name in imported(node)}
    return {name.split(".")[0] for name in names} & HEAVY


def torch_packages(text: str) -> set[str]:
    """Give what a module imports of the packages made of torch when it is imported itself."""
    homes = tuple("oprep." + folder.rstrip("/").replace("/", ".") for folder in TORCH)
    names = {name for node in at_import_time(ast.parse(text)) for name in imported(node)}
    return {name for name in names if name.startswith(homes)}


def wrong_directions(layer: str, text: str) -> set[str]:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    names = {name for node in ast.walk(ast.parse(text)) for name in imported(node)}
    return {name for name in names if name.startswith(tuple(f"oprep.{layer}" for layer in above))}


def named(text: str) -> set[str]:
    """Give what a module names: imports, `a.b` of plain names, `.method`, calls of builtins."""
    found: set[str] = set()
    for node in at_run_time(ast.parse(text)):
        for name in imported(node):
            found |= {name, name.split(".")[0]}
        if isinstance(node, ast.Attribute):
            found.add(f".{node.attr}")
            if isinstance(node.value, ast.Name):
                found.add(f"{node.value.id}.{node.attr}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
    return found


def breaches(where: str, text: str) -> set[str]:
    names = named(text)
    return {name for name, allowed in FORBIDDEN.items() if name in names and where not in allowed}


@pytest.mark.parametrize("path", product(), ids=relative)
def test_only_the_choke_points_read_write_print_and_start_children(path):
    assert breaches(relative(path), path.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("print('x')", "print"),
        ("import sys\nsys.stderr.write('x')", "sys.stderr"),
        ("from sys import stdout", "sys.stdout"),
        ("with open(p, 'w') as f: pass", "open"),
        ("import os\nos.open(p, os.O_WRONLY)", "os.open"),
        ("Path(p).write_text('x')", ".write_text"),
        ("def f():\n    import onnx\n    onnx.load(p)", "onnx.load"),
        ("from onnx import save", "onnx.save"),
        ("import torch\ntorch.load(p)", "torch.load"),
        ("torch.ops.load_library(p)", ".load_library"),
        ("import subprocess", "subprocess"),
        ("from subprocess import run", "subprocess"),
        ("import os\nos.system('x')", "os.system"),
        ("eval('1')", "eval"),
        ("import pickle", "pickle"),
    ],
)
def test_a_planted_breach_is_seen(text, name):
    assert name in breaches("converters/match.py", text)


@pytest.mark.parametrize("layer", LAYERS)
def test_dependencies_point_downwards(layer):
    for path in sources(layer):
        assert wrong_directions(layer, path.read_text(encoding="utf-8")) == set(), relative(path)


def test_a_planted_import_upwards_is_seen():
    assert wrong_directions("opsets", "def f():\n    import oprep.cli.app")
    assert wrong_directions("converters", "from oprep.cli import render")
    assert not wrong_directions("converters", "from oprep.opsets import errors")


@pytest.mark.parametrize("path", product(), ids=relative)
def test_no_module_imports_a_framework_when_it_is_imported(path):
    where, text = relative(path), path.read_text(encoding="utf-8")
    if where.startswith(TORCH):
        return
    if where not in CHILD_ONLY:
        assert heavy_imports(text, anywhere=False) == set()
    assert torch_packages(text) == set()


@pytest.mark.parametrize("path", sources("cli"), ids=relative)
def test_the_command_line_imports_no_framework_at_all(path):
    assert heavy_imports(path.read_text(encoding="utf-8"), anywhere=True) == set()


def test_a_planted_framework_import_is_seen():
    assert heavy_imports("import torch.nn", anywhere=False) == {"torch"}
    assert heavy_imports("class A:\n    from onnx import helper", anywhere=False) == {"onnx"}
    inside = "def f():\n    import numpy as np"
    assert heavy_imports(inside, anywhere=False) == set()
    assert heavy_imports(inside, anywhere=True) == {"numpy"}
    for_types = "if TYPE_CHECKING:\n    import onnx"
    assert heavy_imports(for_types, anywhere=True) == set()
    assert torch_packages("from oprep.opsets.rp import Rp") == {"oprep.opsets.rp.Rp"}
    assert not torch_packages("def f():\n    from oprep.opsets.rp import Rp")


def loaded_by(code: str) -> set[str]:
    """Run code in a fresh interpreter; give the heavy modules that it loaded."""
    tail = "\nimport sys\nsys.__stdout__.write('\\n@@' + ' '.join(sys.modules))"
    words = [sys.executable, "-c", code + tail]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stdout.split("@@")[1].split()} & HEAVY


@pytest.mark.parametrize(
    "code",
    [
        "import oprep",
        "import oprep.cli.app",
        "from oprep.cli.app import run\nassert run(['--help']) == 0",
        "from oprep.cli.app import run\nassert run(['convert', '--help']) == 0",
        "from oprep.cli.app import run\nassert run(['list-ops']) == 0",
        "import oprep\noprep.convert, oprep.verify, oprep.list_ops, oprep.Report, oprep.Tolerance",
        "import oprep\noprep.__version__, oprep.OprepError, oprep.ExitCode, oprep.Verdict",
    ],
)
def test_nothing_heavy_is_loaded(code):
    assert loaded_by(code) == set()


def test_listing_the_ops_of_a_model_loads_neither_torch_nor_a_runtime():
    model = ROOT / "sample_models" / "encoder.onnx"
    loaded = loaded_by(
        f"from oprep.cli.app import run\nassert run(['list-ops', {str(model)!r}]) == 0"
    )
    assert loaded <= {"onnx", "numpy"}


def test_every_public_name_is_there_and_an_unknown_one_is_not():
    import oprep

    for name in oprep.__all__:
        assert getattr(oprep, name) is not None
    assert set(oprep.__all__) <= set(dir(oprep))
    with pytest.raises(AttributeError):
        oprep.nothing  # noqa: B018


def test_the_tested_oprep_lies_in_this_checkout():
    import oprep
    import oprep.cli
    import oprep.converters
    import oprep.opsets

    for module in (oprep, oprep.cli, oprep.converters, oprep.opsets):
        assert ROOT in Path(str(module.__file__)).resolve().parents


def test_the_packages_of_the_wheel_are_the_folders_with_code():
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)["tool"]["setuptools"]
    folders = {path.parent.relative_to(ROOT) for path in product()}
    names = {".".join(folder.parts) for folder in folders}
    assert set(settings["packages"]) == {
        name if name == "oprep" else f"oprep.{name}" for name in names
    }


@pytest.mark.parametrize(
    "path", [*product(), *sources("tests", "docs", "sample_models")], ids=relative
)
def test_the_folders_are_imported_by_their_package_name_only(path):
    names = {name for node in ast.walk(ast.parse(path.read_text())) for name in imported(node)}
    assert not [name for name in names if name.split(".")[0] in LAYERS]


def tracked() -> list[Path]:
    words = ["git", "-C", str(ROOT), "ls-files", "-z"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_tracked_file_names_a_path_of_a_machine():
    home = re.compile(rb"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/")
    assert home.search(b"see /" + b"work/x")
    assert not [relative(path) for path in tracked() if home.search(path.read_bytes())]


def test_long_files_are_looked_at():
    """Only warn: whether a long file holds two ideas is for a person to say."""
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in product()}
    long = [f"{relative(path)} ({lines})" for path, lines in lengths.items() if lines > 300]
    if long:
        warnings.warn(f"over 300 lines: {', '.join(long)}", stacklevel=1)
