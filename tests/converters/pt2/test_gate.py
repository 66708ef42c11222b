"""The gate of `.pt2`: what torch writes passes, what would run code or is broken does not."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from corpus.hostile_pt2 import BROKEN, FIRES, MODEL, QUIET, SAMPLES, Attack, unpacked, zipped
from corpus.pt2_models import NAMES
from hypothesis import given
from hypothesis import strategies as st
from torch_child import in_child

from oprep.converters.pt2.gate import Pt2, read_pt2
from oprep.converters.reading import Content, holding
from oprep.opsets.errors import ExitCode, OprepError

pytestmark = pytest.mark.timeout(120)


def gated(data: bytes, **options: bool) -> Pt2:
    return read_pt2(Content(Path("m.pt2"), data, ""), **options)


def attacked(archives: Mapping[str, bytes], attack: Attack) -> bytes:
    files = unpacked(archives[attack.base])
    attack.change(files)
    return zipped(files)


def refusal(data: bytes, **options: bool) -> OprepError:
    with pytest.raises(OprepError) as refused:
        gated(data, **options)
    return refused.value


@pytest.mark.parametrize("name", NAMES)
def test_what_torch_exports_passes(name, archives, tmp_path):
    pt2 = gated(archives[name])
    assert pt2.code == ()
    assert pt2.schema_version == (8, 20)
    assert pt2.torch_version.startswith("2.")
    path = tmp_path / "m.pt2"
    path.write_bytes(archives[name])
    with holding(path) as file:
        held = read_pt2(file)
    assert held.sha256 == pt2.sha256
    assert held.program == pt2.program
    assert held.entries == pt2.entries


@pytest.mark.parametrize("attack", FIRES, ids=lambda attack: attack.name)
def test_p04_what_runs_code_in_torch_is_refused(attack, archives):
    refused = refusal(attacked(archives, attack))
    assert refused.exit_code == ExitCode.UNTRUSTED
    assert f"entry `{attack.entry}`" in refused.where
    assert refused.help == "pass `--trust-model` if the file is yours"
    assert "can only be loaded by running code stored in it" in refused.message


@pytest.mark.parametrize("attack", QUIET, ids=lambda attack: attack.name)
def test_p04_what_could_run_code_or_touch_files_is_refused(attack, archives):
    refused = refusal(attacked(archives, attack))
    assert refused.exit_code == ExitCode.UNTRUSTED
    assert f"entry `{attack.entry}`" in refused.where


@pytest.mark.parametrize("index", range(len(FIRES)))
@in_child()
def test_the_attacks_do_run_code_in_torch(index):
    """Without this the tests above would hold for harmless files too."""
    import contextlib
    import io
    import logging
    import sys

    import torch
    from corpus.hostile_pt2 import CANARY
    from corpus.pt2_models import BUILDERS
    from torch.utils import _pytree as pytree

    attack = FIRES[index]
    buffer = io.BytesIO()
    torch.export.save(BUILDERS[attack.base](), buffer)
    files = unpacked(buffer.getvalue())
    attack.change(files)
    os.environ.pop(CANARY, None)
    sys.modules.pop("this", None)
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            program = torch.export.load(io.BytesIO(zipped(files)))
            module = program.module()
            leaves = pytree.tree_leaves(program.example_inputs or ()) or [torch.ones(3, 4)]
            args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
            module(*args, **kwargs)
    finally:
        logging.disable(logging.NOTSET)
    assert CANARY in os.environ or "this" in sys.modules


@pytest.mark.parametrize("attack", [*FIRES, *QUIET], ids=lambda attack: attack.name)
def test_p01_a_trusted_file_goes_on_and_says_what_is_in_it(attack, archives):
    pt2 = gated(attacked(archives, attack), trusted=True)
    assert any(f"entry `{attack.entry}`" in text for text in pt2.code)


@pytest.mark.parametrize("attack", BROKEN, ids=lambda attack: attack.name)
def test_p05_a_broken_file_is_refused_as_such_and_trust_is_not_advised(attack, archives):
    data = attacked(archives, attack)
    for options in ({}, {"trusted": True}):
        refused = refusal(data, **options)
        assert refused.exit_code == ExitCode.MODEL
        assert refused.message.startswith("`m.pt2` is refused: ")
        assert "trust" not in str(refused)
        assert "weights_only" not in str(refused)
        assert len(str(refused)) < 4096


@pytest.mark.parametrize("attack", BROKEN, ids=lambda attack: attack.name)
def test_a_file_that_is_broken_and_runs_code_is_broken(attack, archives):
    files = unpacked(archives[attack.base])
    FIRES[3].change(files)
    attack.change(files)
    if attack.entry == SAMPLES or attack.name == "no " + MODEL:
        files.setdefault("data/aotinductor/model/x.so", b"")
    refused = refusal(zipped(files))
    assert refused.exit_code == ExitCode.MODEL
    assert "--trust-model" not in str(refused)


@pytest.mark.parametrize(
    "name", ["sizes beyond the bytes", "sizes that overflow", "steps beyond the bytes",
             "offset beyond the bytes", "wider dtype", "no bytes for a weight"],
)  # fmt: skip
def test_p08_a_tensor_larger_than_its_bytes_is_refused_with_both_numbers(name, archives):
    (attack,) = [each for each in BROKEN if each.name == name]
    message = refusal(attacked(archives, attack)).message
    assert re.search(r"needs \d+ bytes, entry `data/weights/weight_0` has \d+$", message)


def test_an_aotinductor_package_is_told_apart(archives):
    files = unpacked(archives["plain"])
    del files[MODEL]
    files["data/aotinductor/model/x.so"] = b"\x7fELF"
    refused = refusal(zipped(files))
    assert refused.exit_code == ExitCode.MODEL
    assert "AOTInductor package" in refused.message


def test_p03_an_archive_over_max_bytes_is_not_read(archives):
    with pytest.raises(OprepError) as refused:
        read_pt2(Content(Path("m.pt2"), archives["rich"], ""), 1000)
    assert refused.value.exit_code == ExitCode.LIMIT
    assert "1000 are allowed" in refused.value.notes[0]


def test_p10_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "m.pt2")
    with pytest.raises(OprepError, match="named pipe"), holding(tmp_path / "m.pt2"):
        pass


def test_p12_a_file_that_is_written_to_meanwhile_is_refused(tmp_path, archives):
    path = tmp_path / "m.pt2"
    path.write_bytes(archives["plain"])
    with holding(path) as file:
        os.utime(path, ns=(1, 1))
        with pytest.raises(OprepError, match="changed"):
            read_pt2(file)


def test_p12_a_file_cut_after_it_was_opened_is_refused(tmp_path, archives):
    path = tmp_path / "m.pt2"
    path.write_bytes(archives["plain"])
    with holding(path) as file:
        os.truncate(path, 3000)
        with pytest.raises(OprepError) as refused:
            read_pt2(file)
    assert refused.value.exit_code == ExitCode.MODEL


def outcome(data: bytes) -> Pt2 | OprepError:
    try:
        return gated(data)
    except OprepError as error:
        return error


def survives(data: bytes) -> None:
    """Read it well, or refuse it by one error with a known exit code."""
    end = outcome(data)
    if isinstance(end, Pt2):
        assert end.code == ()
    else:
        assert end.exit_code in (ExitCode.MODEL, ExitCode.UNTRUSTED, ExitCode.LIMIT)
        assert len(str(end)) < 4096


@given(st.data())
def test_p11_flipped_bits_never_end_in_a_traceback(archives, data):
    name = data.draw(st.sampled_from(["plain", "relu", "dynamic"]))
    raw = bytearray(archives[name])
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    survives(bytes(raw))


@given(st.data())
def test_p02_a_flipped_bit_of_any_content_is_found(archives, data):
    """The CRC covers what lies in entries; what is left over is padding."""
    raw = bytearray(archives["plain"])
    pt2 = gated(bytes(raw))
    entry = data.draw(st.sampled_from(pt2.entries))
    at = data.draw(st.integers(entry.start, entry.start + entry.packed - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    assert refusal(bytes(raw)).exit_code == ExitCode.MODEL


@given(st.data())
def test_p11_an_archive_cut_anywhere_is_refused(archives, data):
    raw = archives[data.draw(st.sampled_from(["plain", "rich"]))]
    refused = refusal(raw[: data.draw(st.integers(0, len(raw) - 1))])
    assert refused.exit_code == ExitCode.MODEL


@given(st.data())
def test_p11_json_changed_anywhere_never_ends_in_a_traceback(archives, data):
    files = unpacked(archives["rich"])
    text = bytearray(files[MODEL])
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 9))] = data.draw(
        st.binary(max_size=9) | st.sampled_from([b'"', b"{", b"]", b"null", b"-1", b"1e999"])
    )
    files[MODEL] = bytes(text)
    survives(zipped(files))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def places(value: object) -> list[tuple[dict | list, object]]:
    """List every place in JSON as its container and key."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    inner = [value[key] for key in keys if isinstance(value[key], dict | list)]
    return found + [place for part in inner for place in places(part)]


@given(st.integers(0, 1 << 20), JSON)
def test_p11_other_values_anywhere_in_the_program_never_end_in_a_traceback(archives, at, value):
    files = unpacked(archives["dynamic"])
    program = json.loads(files[MODEL])
    everywhere = places(program)
    container, key = everywhere[at % len(everywhere)]
    container[key] = value
    files[MODEL] = json.dumps(program).encode()
    survives(zipped(files))


def test_p11_names_of_any_kind_stay_within_a_message(archives):
    files = unpacked(archives["plain"])
    files[MODEL] = files[MODEL].replace(b"torch.ops.aten.gelu.default", b"x" * 1_000_000)
    assert len(str(refusal(zipped(files)))) < 4096
