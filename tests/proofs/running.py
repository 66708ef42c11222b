"""Run many small models in one child process: ONNX Runtime, else onnx's own evaluator."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHILD = """
import os, pickle, sys
import numpy, onnx, onnxruntime
from onnx.reference import ReferenceEvaluator

quiet = onnxruntime.SessionOptions()
quiet.log_severity_level = 4
quiet.intra_op_num_threads = 1

def run(model, feeds):
    try:
        session = onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])
        return "onnxruntime", session.run(None, feeds)
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "is not supported" not in str(error):
            return "failed", str(error)
    try:
        return "reference", ReferenceEvaluator(onnx.load_from_string(model)).run(None, feeds)
    except Exception as error:
        return "failed", repr(error)

def forked(jobs):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(write, "wb") as out:
            pickle.dump([run(*job) for job in jobs], out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as given:
        data = given.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else None

def apart(jobs):
    found = forked(jobs)
    if found is None and len(jobs) == 1:
        return [("failed", "the runtime died")]
    if found is None:
        half = len(jobs) // 2
        return apart(jobs[:half]) + apart(jobs[half:])
    return found

jobs = pickle.load(sys.stdin.buffer)
done = apart(jobs) if "apart" in sys.argv else [run(*job) for job in jobs]
pickle.dump(done, sys.stdout.buffer)
"""


@dataclass(frozen=True)
class Ran:
    """What ran a model (`onnxruntime`, `reference`, `failed`), and its outputs or the error."""

    by: str
    outputs: Any


def run_all(
    jobs: Sequence[tuple[bytes, dict[str, NDArray[Any]]]],
    seconds: float = 120,
    *,
    apart: bool = False,
) -> list[Ran]:
    """Run each model on its inputs; a crash or a hang of the child fails the test.

    With `apart` a model that kills the runtime has failed, and the others are run all the same.
    """
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, *(["apart"] if apart else [])],
        input=pickle.dumps(jobs),
        capture_output=True,
        timeout=seconds,
    )
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    return [Ran(by, outputs) for by, outputs in pickle.loads(ended.stdout)]


def close(candidate: NDArray[Any], reference: NDArray[Any], slack: float = 1.0) -> str:
    """Give "" where two arrays agree in dtype, shape and value, else what differs."""
    if candidate.dtype != reference.dtype or candidate.shape != reference.shape:
        return (
            f"{candidate.dtype}{list(candidate.shape)} for {reference.dtype}{list(reference.shape)}"
        )
    rtol, atol = {"float16": (2e-3, 1e-3), "float32": (1e-5, 1e-6), "float64": (1e-6, 1e-7)}.get(
        str(reference.dtype), (0.0, 0.0)
    )
    same = np.isclose(
        candidate.astype(np.float64),
        reference.astype(np.float64),
        slack * rtol,
        slack * atol,
        equal_nan=True,
    )
    if same.all():
        return ""
    at = np.unravel_index(int(np.argmin(same)), same.shape)
    return f"{candidate[at]} for {reference[at]} at {[int(i) for i in at]}"
