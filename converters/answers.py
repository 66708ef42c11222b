"""Errors that a child tells its parent: a refusal is a result, and is raised again here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeAlias

from oprep.converters.exchange import Ended
from oprep.opsets.errors import ExitCode, OprepError

REFUSED = "oprep refused"
CODE = "the code of "
"""What a task says it began while it runs code that a rule file names."""
TRYING = "trying the ops of "
"""What a task says it began while it calls custom ops, before anything is proven."""
Task: TypeAlias = Callable[[Mapping[str, Any], Callable[[str], None]], Any]

STEPS = {"crashed": "crashed", "timed out": "did not end in time", "memory": "needs more memory"}


def answering(task: Task) -> Task:
    """Make a task give an OprepError back as its result instead of as the text of an error."""

    @wraps(task)
    def run(payload: Mapping[str, Any], say: Callable[[str], None]) -> Any:
        try:
            return task(payload, say)
        except OprepError as error:
            return {REFUSED: to_plain(error)}

    return run


def to_plain(error: OprepError) -> dict[str, Any]:
    """Give an error as plain data."""
    return {
        "message": error.message,
        "where": error.where,
        "notes": list(error.notes),
        "help": error.help,
        "exit_code": int(error.exit_code),
    }


def from_plain(data: Mapping[str, Any]) -> OprepError:
    """Make the error again that a child told."""
    return OprepError(data["message"], data["where"], tuple(data["notes"]), data["help"],
                      ExitCode(data["exit_code"]))  # fmt: skip


def answer(ended: Ended, model: str) -> Any:
    """Give what a task answered; raise what it refused, or what became of it instead.

    A limit is exit 9; a crash of the framework while it read the model exit 3, one of a rule file's
    code exit 5, one of an op that is called exit 4; an exception that nobody expected is a bug.
    """
    if ended.outcome == "ok":
        value = ended.value
        if isinstance(value, Mapping) and REFUSED in value:
            raise from_plain(value[REFUSED])
        return value
    if ended.outcome == "error":
        bug = RuntimeError(f"{ended.error}, while {ended.began or 'starting'}")
        bug.add_note(ended.trace)
        raise bug
    began = ended.began or "loading the model"
    help = "" if ended.outcome == "crashed" else "give it more with `--timeout SECONDS`"
    code = ExitCode.MODEL if ended.outcome == "crashed" else ExitCode.LIMIT
    if began.startswith(CODE):
        model, began = began.removeprefix(CODE).strip("`"), f"running {began}"
        help = "correct the file" if ended.outcome == "crashed" else help
        code = ExitCode.RULES if ended.outcome == "crashed" else code
    if began.startswith(TRYING) and ended.outcome == "crashed":
        help, code = "correct the op: it ends the process that calls it", ExitCode.VERIFICATION
    raise OprepError(f"{began} {STEPS[ended.outcome]}", model, (ended.error,), help, code)
