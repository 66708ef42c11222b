"""The only reader and the only writer of files: gates on the way in, atomic on the way out.

Other modules import from here; how it is done lies in the modules named below.
"""

from __future__ import annotations

from oprep.converters.arrays import InputSource, read_input_set, save_input_set
from oprep.converters.formats import require_onnx, sniff, sniff_file
from oprep.converters.leftovers import sidecar_name
from oprep.converters.output import Output, check_folder, check_target, same_file, write_text
from oprep.converters.reading import (
    Content,
    ExternalFile,
    Identity,
    OpenFile,
    Readable,
    holding,
    identify,
    read,
    stream,
)

__all__ = [
    "Content",
    "ExternalFile",
    "Identity",
    "InputSource",
    "OpenFile",
    "Output",
    "Readable",
    "check_folder",
    "check_target",
    "holding",
    "identify",
    "read",
    "read_input_set",
    "require_onnx",
    "same_file",
    "save_input_set",
    "sidecar_name",
    "sniff",
    "sniff_file",
    "stream",
    "write_text",
]
