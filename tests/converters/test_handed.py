"""A child reads the very file that its parent looked at, and can do nothing else to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oprep.converters import handed
from oprep.converters.files import Content, OpenFile, holding
from oprep.converters.runner import Child

HERE = Path(__file__).parent
REFUSED = "changed while it was being read"
pytestmark = pytest.mark.timeout(60)


def held(tmp_path: Path, name: str = "model.pt2", data: bytes = b"what was looked at") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def read(child: Child, file: OpenFile):
    return child.call("child_tasks:read_handed", {"file": handed.plain(file)})


def test_p12_a_child_reads_through_the_descriptor_of_its_parent_and_only_reads(tmp_path):
    with holding(held(tmp_path)) as file, Child(import_from=(HERE,)) as child:
        child.hand(file)
        held(tmp_path, "new").replace(file.path)  # another file has the name now
        ended = read(child, file)
        assert ended.outcome == "ok", ended.error
        assert ended.value["data"] == b"what was looked at"
        assert not ended.value["inherited"]
        allowed = set() if ended.sandboxed else {"open", "open again"}
        assert {"open", "write", "cut", "open again"} - set(ended.value["refused"]) == allowed
    assert file.path.read_bytes() == b"what was looked at"


def test_a_child_gets_files_at_any_time_and_a_new_one_all_of_them(tmp_path):
    with (
        holding(held(tmp_path, "a", b"first")) as first,
        holding(held(tmp_path, "b", b"second")) as second,
        Child(import_from=(HERE,)) as child,
    ):
        assert REFUSED in read(child, first).error
        child.hand(first)
        child.hand(second)
        assert read(child, second).value["data"] == b"second"
        assert read(child, first).value["data"] == b"first"
        assert child.call("child_tasks:exit_quietly", {}).outcome == "crashed"
        assert read(child, first).value["data"] == b"first"


@pytest.mark.parametrize("change", ["written", "longer", "touched"])
def test_p12_a_file_that_was_written_to_after_the_gate_is_refused(tmp_path, change):
    path = held(tmp_path)
    with holding(path) as file, Child(import_from=(HERE,)) as child:
        child.hand(file)
        if change == "touched":
            os.utime(path)
        else:
            with path.open("r+b" if change == "written" else "ab") as open_file:
                open_file.write(b"something else now")
        ended = read(child, file)
        assert ended.outcome == "error"
        assert REFUSED in ended.error


def test_another_file_of_the_parent_is_not_found(tmp_path):
    with (
        holding(held(tmp_path, "a")) as given,
        holding(held(tmp_path, "b")) as kept,
        Child(import_from=(HERE,)) as child,
    ):
        child.hand(given)
        assert REFUSED in read(child, kept).error


def test_bytes_travel_as_they_are():
    content = Content(Path("m.pt2"), b"data", "hash")
    found = handed.received(handed.plain(content))
    assert (found.path, found.read_at(0, 4)) == (Path("m.pt2"), b"data")
    assert handed.received(content) is content
