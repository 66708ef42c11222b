"""Words in, words out: the command line, which never imports a framework."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `oprep` with the arguments of this process and end with its exit code."""
    from oprep.cli import render
    from oprep.cli.app import run

    render.open_missing_streams()
    sys.exit(run(sys.argv[1:]))
