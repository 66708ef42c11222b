"""Code beside an artifact: placed before it, removed when unused, never written elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from oprep import ExitCode, OprepError
from oprep.converters.bundles import bundled_name
from oprep.converters.files import Output, check_target


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def written(path: Path, *files: tuple[str, bytes], model: bytes = b"model") -> list[str]:
    with Output(path) as output:
        output.write([model])
        places = [output.write_bundled(name, data, sha(data)) for name, data in files]
        output.commit()
    return places


def names(path: Path) -> list[str]:
    return sorted(item.name for item in path.iterdir())


def test_a_bundle_has_each_file_under_its_hash_and_name(tmp_path):
    place, *_ = written(tmp_path / "m.pt2", ("code/ops.py", b"1"), ("other/ops.py", b"2"))
    assert place == f"m.pt2.oplib/{sha(b'1')[:32]}-ops.py"
    assert (tmp_path / place).read_bytes() == b"1"
    assert len(names(tmp_path / "m.pt2.oplib")) == 2
    assert names(tmp_path) == ["m.pt2", "m.pt2.oplib"]


def test_what_a_new_artifact_does_not_need_is_removed_and_nothing_else(tmp_path):
    written(tmp_path / "m.pt2", ("ops.py", b"1"), ("more.py", b"2"))
    own = tmp_path / "m.pt2.oplib" / "notes.txt"
    own.write_text("mine")
    written(tmp_path / "other.pt2", ("ops.py", b"1"))
    written(tmp_path / "m.pt2", ("more.py", b"2"), ("new.py", b"3"))
    assert names(tmp_path / "m.pt2.oplib") == sorted(
        ["notes.txt", bundled_name("more.py", sha(b"2")), bundled_name("new.py", sha(b"3"))]
    )
    written(tmp_path / "m.pt2")
    assert names(tmp_path / "m.pt2.oplib") == ["notes.txt"]
    written(tmp_path / "other.pt2")
    assert not (tmp_path / "other.pt2.oplib").exists()


def test_the_old_bundle_stays_until_the_new_artifact_is_there(tmp_path):
    written(tmp_path / "m.pt2", ("ops.py", b"1"))
    with Output(tmp_path / "m.pt2") as output:
        output.write([b"new"])
        output.write_bundled("ops.py", b"2", sha(b"2"))
    assert names(tmp_path / "m.pt2.oplib") == [bundled_name("ops.py", sha(b"1"))]
    assert (tmp_path / "m.pt2").read_bytes() == b"model"


def test_a_commit_that_fails_takes_its_new_code_back(tmp_path):
    written(tmp_path / "m.pt2", ("ops.py", b"1"))
    with Output(tmp_path / "m.pt2") as output:
        output.write([b"new"])
        output.write_bundled("ops.py", b"2", sha(b"2"))
        output._main.rename = lambda name: (_ for _ in ()).throw(OSError(5, "planted"))
        with pytest.raises(OprepError):
            output.commit()
    assert names(tmp_path / "m.pt2.oplib") == [bundled_name("ops.py", sha(b"1"))]


def test_the_code_that_is_bundled_may_come_from_the_bundle(tmp_path):
    written(tmp_path / "m.pt2", ("ops.py", b"1"))
    written(tmp_path / "m.pt2", (bundled_name("ops.py", sha(b"1")), b"1"))
    assert names(tmp_path / "m.pt2.oplib") == [bundled_name("ops.py", sha(b"1"))]


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_a_bundle_that_is_no_folder_is_refused_before_any_work(kind, tmp_path):
    place, elsewhere = tmp_path / "m.pt2.oplib", tmp_path / "elsewhere"
    if kind == "file":
        place.write_text("mine")
    else:
        if kind == "link":
            elsewhere.mkdir()
        place.symlink_to(elsewhere)
    with pytest.raises(OprepError) as caught:
        check_target(tmp_path / "m.pt2", bundle=True)
    assert caught.value.exit_code is ExitCode.OUTPUT
    assert "`m.pt2.oplib` is no folder" in caught.value.message
    check_target(tmp_path / "m.pt2")
    assert not elsewhere.exists() or not list(elsewhere.iterdir())


def test_links_in_a_bundle_are_neither_followed_nor_removed(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("mine")
    written(tmp_path / "m.pt2", ("ops.py", b"1"))
    link = tmp_path / "m.pt2.oplib" / bundled_name("mine.py", sha(b"mine"))
    link.symlink_to(mine)
    written(tmp_path / "m.pt2", ("ops.py", b"2"))
    assert mine.read_text() == "mine"
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["../../ops.py", "/etc/ops.py", "a/b/ops.py", "x" * 400 + ".py"])
def test_no_name_of_a_file_leads_out_of_the_bundle(name, tmp_path):
    (place,) = written(tmp_path / "m.pt2", (name, b"1"))
    assert Path(place).parts[0] == "m.pt2.oplib"
    assert len(Path(place).parts) == 2
    assert place.endswith(".py")
    assert (tmp_path / place).is_file()
