"""What README and the guide pages say is run and compared with the program."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PYTORCH = ROOT / "docs" / "pytorch.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def blocks(kind: str, page: Path = README) -> list[str]:
    """Give the fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def commands(kind: str, page: Path = README) -> Iterator[list[str]]:
    """Give the words of every `oprep …` in the blocks of one kind."""
    for line in "".join(blocks(kind, page)).splitlines():
        for part in line.split(" && "):
            program, *words = shlex.split(part) or [""]
            if program.split("/")[-1] == "oprep":
                yield words


@pytest.fixture
def same(request: pytest.FixtureRequest) -> Callable[[int, str], None]:
    """Compare a text with the n-th text block of README, or write that block anew."""

    def compare(number: int, text: str) -> None:
        before = blocks("text")[number]
        if request.config.getoption("--refresh-golden") and masked(before) != masked(text):
            first, *rest = README.read_text(encoding="utf-8").split("```text\n")
            rest[number] = text + rest[number].removeprefix(before)
            README.write_text("```text\n".join([first, *rest]), encoding="utf-8")
        assert masked(blocks("text")[number]) == masked(text)

    return compare


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a working folder that holds the sample models, as a checkout does."""
    shutil.copytree(ROOT / "sample_models", tmp_path / "sample_models")
    return tmp_path


def oprep(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "80"}
    env.pop("GITHUB_STEP_SUMMARY", None)
    return subprocess.run(
        [sys.executable, "-m", "oprep", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def masked(text: str) -> str:
    """Hide what depends on the processor: measured errors, and hashes over library versions."""
    text = re.sub(r"\d\.\de[-+]\d\d", "N", text)
    text = re.sub(r"(no difference|worst N \(allowed N\))(, noise floor N)?", "W", text)
    return re.sub(r"sha256 [0-9a-f]+", "sha256 H", text)


def test_both_set_up_commands_are_one_line_each_as_the_ci_script_expects_them():
    lines = [line for line in README.read_text().splitlines() if line.startswith("python3 -m venv")]
    install, test = lines
    assert " oprep convert " in install.replace(".venv/bin/oprep", "oprep")
    assert test.endswith(".venv/bin/pytest -n auto")
    assert all("pip install -c constraints.txt" in line for line in lines)
    assert "command_of_readme convert" in (ROOT / ".ci" / "run").read_text()


def test_the_first_example_is_true(folder, same):
    words = next(commands("sh"))
    done = oprep(folder, *words)
    assert (done.returncode, done.stdout) == (0, "")
    same(0, done.stderr)
    assert (folder / "encoder.acme.onnx").is_file()


@pytest.fixture(scope="module")
def pytorch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the page on PyTorch from its first block to its last; give what its commands printed."""
    folder = tmp_path_factory.mktemp("pytorch")
    shutil.copytree(ROOT / "sample_models", folder / "sample_models")
    printed = {}
    text = PYTORCH.read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.M | re.S):
        for line in block.splitlines() if kind == "sh" else [""]:
            words = shlex.split(line)[1:]
            done = oprep(folder, *words) if words else python(folder, block)
            assert done.returncode == 0, f"{line or block}\n{done.stderr}"
            printed[line] = done.stderr
    return printed


def test_the_page_on_pytorch_is_true(pytorch):
    assert len(pytorch) > 3


def test_the_pytorch_example_is_true(pytorch, same):
    _, words = commands("sh")
    same(1, pytorch[shlex.join(["oprep", *words])])


def test_the_rule_file_of_the_page_on_pytorch_is_the_sample():
    sample = (ROOT / "sample_models" / "rules" / "swish.toml").read_text()
    assert blocks("toml", PYTORCH)[0] == sample.split("\n", 1)[1]


def test_the_first_rule_file_is_the_sample():
    assert blocks("toml")[0].strip() == (ROOT / "sample_models" / "gelu.toml").read_text().strip()


def test_the_help_text_is_that_of_the_program(folder, same):
    same(2, oprep(folder, "convert", "--help").stdout)


def test_the_pipeline_step_runs(folder):
    steps = list(commands("yaml"))
    assert [words[0] for words in steps] == ["convert", "verify"]
    assert all({"--max-rtol", "--max-atol"} <= set(words) for words in steps)
    for words in steps:
        done = oprep(folder, *words)
        assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.glob("oprep.*")} == {"oprep.xml", "oprep.json"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != PYTORCH], ids=lambda page: page.name
)
def test_python_examples_are_true(page, folder):
    for code in blocks("python", page):
        done = python(folder, code)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rule_files_in_a_page_are_accepted(page, folder):
    for number, text in enumerate(blocks("toml", page)):
        (folder / f"{number}.toml").write_text(text, encoding="utf-8")
        words = ("list-ops", "sample_models/conv.onnx", "-r", f"{number}.toml")
        done = oprep(folder, *words)
        assert done.returncode == 0, done.stderr


def test_the_python_page_lists_the_public_names():
    import oprep

    page = (ROOT / "docs" / "python.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.M)) == sorted(oprep.__all__)


def test_the_rules_page_lists_the_functions():
    from oprep.opsets.vocabulary import vocabulary

    listed = (ROOT / "docs" / "rules.md").read_text().split("## Functions")[1]
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(vocabulary())


def test_the_verifying_page_lists_the_verdicts():
    from oprep.converters.report import Verdict

    table = (ROOT / "docs" / "verifying.md").read_text().split("## Tolerances")[0]
    rows = [row for row in re.findall(r"^\| (`.*?) \|", table, re.M)]
    listed = [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(Verdict)


def test_the_exit_codes_are_those_of_the_program():
    from oprep.opsets.errors import ExitCode

    rows = re.findall(r"^\| ([\d, ]+) \|", README.read_text(), re.M)
    assert [int(code) for row in rows for code in row.split(",")] == sorted(ExitCode)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_that_a_page_names_is_one_of_the_program(page, folder):
    helps = "".join(
        oprep(folder, *name, "--help").stdout
        for name in ([], ["convert"], ["verify"], ["list-ops"])
    )
    known = set(re.findall(r"--[a-z][a-z-]+", helps))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text()))
    assert named <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert not [link for link in links if not (page.parent / link).is_file()]
