"""The committed sample models are what make.py builds, they are small, and README lists them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[1] / "sample_models"


FORMS = ("*.onnx", "*.onnx.data", "*.pt2", "*.safetensors")


def files(folder: Path) -> dict[str, bytes]:
    found = [path for form in FORMS for path in sorted(folder.rglob(form))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_committed_models_equal_what_make_builds(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SAMPLES / "make.py", tmp_path], check=True, timeout=60)
    assert files(tmp_path) == files(SAMPLES)


def test_the_sample_models_are_small() -> None:
    assert sum(len(data) for data in files(SAMPLES).values()) < 200_000


def test_readme_names_every_model_and_rule_file() -> None:
    readme = (SAMPLES / "README.md").read_text()
    forms = ("*.onnx", "*.toml", "*.pt2", "*.safetensors", "mlp.py", "swish.py")
    paths = [path for form in forms for path in SAMPLES.rglob(form)]
    missing = [
        path.name for path in paths if f"`{path.relative_to(SAMPLES).as_posix()}`" not in readme
    ]
    assert not missing
