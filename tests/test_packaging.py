"""The wheel as a user gets it: built, installed into a fresh environment, run."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"cli": "oprep/cli", "converters": "oprep/converters", "opsets": "oprep/opsets"}


def run(*words: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in words], capture_output=True, text=True, timeout=300, **more
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, so that no stale `build/` takes part."""
    source = tmp_path_factory.mktemp("source")
    for name in ("oprep", *FOLDERS):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir")
    run(sys.executable, "-m", "pip", "wheel", *options, out, source)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a new environment that borrows the other packages of this one.

    A folder named in a `.pth` file has its own `.pth` files ignored, so the editable install of
    this checkout is not seen there.
    """
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", code).stdout.strip())
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    options = ("install", "--no-deps", "--no-index", "--quiet")
    run(sys.executable, "-m", "pip", "--python", python, *options, wheel)
    return folder


def test_the_wheel_holds_what_the_tree_holds(wheel):
    expected = {"oprep/__init__.py", "oprep/__main__.py", "oprep/py.typed"}
    for folder, target in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                expected.add(f"{target}/{path.relative_to(ROOT / folder).as_posix()}")
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected


def test_the_wheel_carries_licence_and_entry_point(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split(".dist-info/")[-1]: name for name in archive.namelist()}
        assert archive.read(names["licenses/LICENSE"]) == (ROOT / "LICENSE").read_bytes()
        assert "oprep = oprep.cli:main" in archive.read(names["entry_points.txt"]).decode()
        metadata = archive.read(names["METADATA"]).decode()
    assert "License-Expression: Apache-2.0" in metadata


def test_the_installed_program_runs_and_is_the_wheel(fresh, tmp_path):
    assert run(fresh / "bin" / "oprep", "--version").stdout.startswith("oprep ")
    code = "import oprep.cli, oprep.opsets; print(oprep.cli.__file__, oprep.opsets.__file__)"
    for path in run(fresh / "bin" / "python", "-c", code, cwd=tmp_path).stdout.split():
        assert fresh in Path(path).parents


def test_the_installed_program_lists_the_shipped_opsets(fresh):
    assert "activations" in run(fresh / "bin" / "oprep", "list-ops").stdout


def test_the_installed_program_converts_a_model(fresh, tmp_path):
    for name in ("encoder.onnx", "gelu.toml"):
        shutil.copy(ROOT / "sample_models" / name, tmp_path)
    words = ("convert", "encoder.onnx", "-r", "gelu.toml", "-o", "out.onnx")
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run(fresh / "bin" / "oprep", *words, cwd=tmp_path, env=env)
    assert (tmp_path / "out.onnx").stat().st_size


def test_constraints_pin_every_dependency_of_the_tests():
    from importlib.metadata import requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    names = {canonicalize_name(name) for name in pinned}
    wanted, seen = [("oprep", "test")], set()
    while wanted:
        package, extra = wanted.pop()
        for text in requires(package) or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(requirement.name)
            if name not in seen:
                seen.add(name)
                wanted.append((name, ""))
    assert seen <= names
    assert pinned["torch"] == "2.13.0"


def test_a_script_in_a_checkout_finds_the_sub_packages() -> None:
    """The folder `oprep/` comes first there, before any installed package."""
    code = "import oprep.opsets.errors as e, oprep.converters, oprep.cli; print(e.__file__)"
    words = [sys.executable, "-S", "-c", code]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert Path(ended.stdout.strip()) == ROOT / "opsets" / "errors.py"
