"""`load_library`: probed in a child, loaded here, and a reason for each library that cannot be."""

from __future__ import annotations

import pytest
from torch_child import in_child

STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
Tensor NAME(Tensor x) {
  Tensor in = torch::stable::contiguous(x);
  Tensor out = torch::stable::empty_like(in);
  const float* from = in.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < in.numel(); ++i) to[i] = 2 * from[i];
  return out;
}
STABLE_TORCH_LIBRARY_FRAGMENT(lib_test, m) { m.def("NAME(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(lib_test, CPU, m) { m.impl("NAME", TORCH_BOX(&NAME)); }
"""
UNRESOLVED = "namespace n { struct S { void go(int); }; } static int a = (n::S().go(1), 0);"
EMPTY = "int f() { return 1; }"


def built(folder, name, source, *, torch_too=False):
    """Compile a source to a shared library."""
    import os
    import subprocess

    import torch

    home = os.path.dirname(torch.__file__)
    path = f"{folder}/{name}"
    with open(path + ".cpp", "w") as file:
        file.write(source)
    words = ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", "-o", path + ".so", path + ".cpp"]
    link = [f"-L{home}/lib", "-Wl,--no-as-needed", "-ltorch_cpu"]
    words += ["-isystem", f"{home}/include", *link] if torch_too else []
    subprocess.run(words, check=True, capture_output=True)
    return path + ".so"


def no_compiler():
    import shutil

    return shutil.which("g++") is None


@in_child(240)
def test_a_library_is_loaded_once_and_its_ops_are_given():
    import shutil
    import tempfile

    import torch

    import oprep

    if no_compiler():
        pytest.skip("no g++")
    with tempfile.TemporaryDirectory() as folder:
        path = built(folder, "good", STABLE.replace("NAME", "twice"), torch_too=True)
        (op,) = oprep.load_library(path)
        assert op is torch.ops.lib_test.twice.default
        assert op(torch.ones(2)).tolist() == [2, 2]
        assert oprep.load_library(path) == (op,)
        copy = shutil.copy(path, f"{folder}/copy.so")
        assert oprep.load_library(copy) == (op,)
        clash = STABLE.replace("NAME", "twice").replace("2 *", "3 *")
        other = built(folder, "clash", clash, torch_too=True)
        with pytest.raises(oprep.OprepError, match="ends the process: SIGABRT") as caught:
            oprep.load_library(other)
        assert caught.value.message == "`clash.so` cannot be loaded"
        torch.library.define("lib_test::thrice", "(Tensor x) -> Tensor")
        third = built(folder, "third", STABLE.replace("NAME", "thrice"), torch_too=True)
        with pytest.raises(oprep.OprepError, match="`lib_test::thrice`, which is defined here"):
            oprep.load_library(third)
        assert op(torch.ones(1)).item() == 2


@in_child(240)
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (UNRESOLVED, r"undefined symbol `n::S::go\(int\)`"),
        (EMPTY, "adds no op"),
        ("", "file too short|invalid ELF header"),
    ],
    ids=["unresolved", "empty", "text"],
)
def test_a_library_that_is_none_is_refused_with_the_reason(source, message):
    import tempfile

    import oprep

    if no_compiler():
        pytest.skip("no g++")
    with tempfile.TemporaryDirectory() as folder:
        if source:
            path = built(folder, "bad", source)
        else:
            path = f"{folder}/bad.so"
            with open(path, "w") as file:
                file.write("this is no library\n" * 100)
        with pytest.raises(oprep.OprepError, match=message) as caught:
            oprep.load_library(path)
        assert caught.value.exit_code == oprep.ExitCode.RULES


def test_a_missing_library_is_refused():
    import oprep

    with pytest.raises(oprep.OprepError, match="there is no file"):
        oprep.load_library("missing.so")
