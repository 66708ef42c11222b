"""What torch's exporter says when it fails, as one message: the op or node, and the cause."""

from __future__ import annotations

import re

from oprep.opsets.errors import ExitCode, OprepError

NO_FUNCTION = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")
NODE = re.compile(r"Error when translating node %(\w+) .*?target=(?:torch\.ops\.)?([\w.]+)\]")
OURS = "give the op a `[[op]]` with a `body` in a rule file, or write a `.pt2`"
OTHER = "write a `.pt2`, or replace the op by a rule"


def explained(error: BaseException, name: str) -> OprepError:
    """Turn an exporter's chain of errors into one; an error of ours inside comes out as it is."""
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, OprepError):
            return cause
    text = "\n".join(str(cause) for cause in chain)
    missing = NO_FUNCTION.search(text)
    if missing:
        op = missing[1].replace(".", "::", 1) if "::" not in missing[1] else missing[1]
        foreign = not op.startswith(("aten::", "prims::", "prim::"))
        return OprepError(
            f"`{op}` has no ONNX form, so `{name}` cannot be written as ONNX",
            name,
            help=OURS if foreign else OTHER,
            exit_code=ExitCode.EXPECTATION,
        )
    node = NODE.search(text)
    step = "written as ONNX nodes" if node else "decomposed into what ONNX has"
    place = (f"at node `{node[1]}`, `{node[2]}`",) if node else ()
    return OprepError(
        f"`{name}` cannot be {step}",
        name,
        (*place, _first_line(chain[-1])),
        OTHER,
        ExitCode.EXPECTATION,
    )


def _chain(error: BaseException) -> list[BaseException]:
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        if cause in chain:
            break
        chain.append(cause)
    return chain


def _first_line(error: BaseException) -> str:
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"torch says: {type(error).__name__}: {text:.200}"
