"""The folder `ARTIFACT.oplib` beside an artifact: copies of the code that its ops are made of.

Each file is named by its hash and its own name, so that an artifact finds its code and never other
code of that name, and so that new files can be placed before the artifact that needs them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

FOLDER = ".oplib"
HASH_DIGITS = 32
MAX_NAME = 100
BUNDLED = re.compile(r"[0-9a-f]{32}-.+", re.DOTALL)


def bundle_name(artifact: str) -> str:
    """Give the name of the folder beside an artifact."""
    return artifact + FOLDER


def bundled_name(file: str, sha256: str) -> str:
    """Give the name that a file has in a bundle; one that is named so already keeps its name."""
    name, prefix = PurePosixPath(file).name[-MAX_NAME:], f"{sha256[:HASH_DIGITS]}-"
    return name if name.startswith(prefix) else prefix + name


def remove_unused(folder: Path, artifact: str, used: Iterable[str]) -> None:
    """Remove bundled files of an earlier artifact of that name; what is named otherwise stays.

    `used` are the locations (`ARTIFACT.oplib/NAME`) that the new artifact has.
    """
    bundle = folder / bundle_name(artifact)
    if os.path.islink(bundle) or not os.path.isdir(bundle):
        return  # also where its name would be too long
    kept = {PurePosixPath(location).name for location in used}
    with os.scandir(bundle) as entries:
        names = [entry.name for entry in entries if BUNDLED.fullmatch(entry.name)]
    for name in sorted(set(names) - kept):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISREG(os.lstat(bundle / name).st_mode):
                os.unlink(bundle / name)
    with contextlib.suppress(OSError):
        os.rmdir(bundle)
