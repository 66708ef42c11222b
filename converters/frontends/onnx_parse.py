"""Protobuf bytes to messages: damaged ones are refused, one cut short is said to be so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_PROTOBUF = (1 << 31) - 1


def parse(data: bytes, where: str) -> ModelProto:
    """Decode a model; exit 3 where the bytes are damaged or hold no graph."""
    from onnx import ModelProto

    model = ModelProto()
    parse_into(model, data, where, "an ONNX model")
    if not model.HasField("graph"):
        raise OprepError(
            "the file holds no graph",
            where=where,
            notes=(f"{len(data)} bytes were decoded, `graph` is not among them",),
            exit_code=ExitCode.MODEL,
        )
    return model


def parse_into(message: Any, data: bytes, where: str, what: str) -> None:
    """Decode bytes into a message; `what` names it in the error (exit 3)."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        message.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        note = f"{len(data)} bytes; {error}"
        if len(data) > MAX_PROTOBUF:
            note = f"{len(data)} bytes; a protobuf has at most {MAX_PROTOBUF}"
        raise OprepError(
            f"the file cannot be decoded as {what}",
            where=where,
            notes=(note,),
            help="fetch or export it again: it is damaged or cut short",
            exit_code=ExitCode.MODEL,
        ) from error
