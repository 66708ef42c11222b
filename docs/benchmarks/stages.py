"""The steps of a conversion between the bytes that are read and those that are written, timed."""

from __future__ import annotations

import hashlib
import time
from itertools import pairwise
from pathlib import Path

from oprep.converters.frontends.onnx_conversion import Conversion
from oprep.converters.frontends.onnx_external import external_files
from oprep.converters.frontends.onnx_lint import Rows, lint
from oprep.converters.frontends.onnx_model import OnnxModel
from oprep.converters.frontends.onnx_parse import parse
from oprep.converters.rules import load_rules
from oprep.converters.writing import stamp

STEPS = ("parse", "lint", "index", "match", "replace", "write")
OPSETS, _ = load_rules([], ["activations"])


def rewrite(data: bytes) -> tuple[dict[str, float], int]:
    """Rewrite with all shipped rules; give the seconds of each step and the sites replaced.

    `replace` is with the lint of the result.
    """
    marks = [time.process_time()]
    proto = parse(data, "model")
    marks.append(time.process_time())
    rows: Rows = ([], [])
    lint(proto, "model", rows)
    external_files(proto, Path())
    marks.append(time.process_time())
    model = OnnxModel(proto, None, data, hashlib.sha256(data).hexdigest(), (), rows)
    conversion = Conversion(model, OPSETS)
    marks.append(time.process_time())
    matches = conversion.plan().matches
    marks.append(time.process_time())
    result, _ = conversion.rewritten(matches)
    stamp(result, "")
    marks.append(time.process_time())
    result.SerializeToString(deterministic=True)
    marks.append(time.process_time())
    seconds = [after - before for before, after in pairwise(marks)]
    return dict(zip(STEPS, seconds, strict=True)), len(matches)
