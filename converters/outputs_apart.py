"""No file of a run is written over another file of it, and each can be written at all.

Settled before any work is done, for everything that a command or a call names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oprep.converters.files import ExternalFile, check_folder, check_target, same_file, sidecar_name
from oprep.opsets.errors import ExitCode, OprepError

FOREIGN = frozenset({".pt2", ".pt", ".pth", ".safetensors", ".npz", ".json", ".toml"})
"""Suffixes that say of a file what an ONNX model is not."""

MODEL = "the model"
CONVERTED = "the converted model"
REPORT = "the report"
SIDECAR = f"the sidecar of {CONVERTED}"
_IN_PLACE = ((CONVERTED, MODEL), (SIDECAR, f"the sidecar of {MODEL}"))


@dataclass(frozen=True, slots=True)
class Named:
    """A file and the words that messages have for it: `the rule file`."""

    what: str
    path: Path


@dataclass(frozen=True, slots=True)
class Files:
    """What a run reads and what it writes. `saved` is the folder that gets the input sets.

    With `in_place` the converted model may replace the model, and nothing else may. With `dry`
    no model is written, so its target need not be one. `suffixes` are those of artifacts where
    the suffix chooses the format; without them the artifact is ONNX. With `bundle` code is copied
    beside the artifact.
    """

    read: tuple[Named, ...] = ()
    output: Path | None = None
    plan: Path | None = None
    reports: tuple[Path, ...] = ()
    saved: Path | None = None
    in_place: bool = False
    dry: bool = False
    suffixes: tuple[str, ...] = ()
    bundle: bool = False

    def check(self) -> None:
        """Refuse files that are one and targets that are none (exit 8), and a wrong suffix (2).

        An error about a report comes first, and its place is the report's path: then its writer
        knows that no report may be written.
        """
        self.check_read(self.read)
        written = list(self._written())
        for index, one in enumerate(written):
            for other in written[:index]:
                if same_file(one.path, other.path):
                    raise _twice(one, other)
        for target in self.reports:
            check_target(target)
        if self.saved is not None:
            for each in (*self.read, *written):
                if _holds(self.saved, each.path):
                    raise _over(Named("the saved inputs", self.saved), each)
            check_folder(self.saved)
        if self.plan is not None:
            check_target(self.plan)
        if self.output is not None:
            _check_suffix(self.output, self.suffixes)
            if not self.dry and self.plan is None:
                check_target(self.output, bundle=self.bundle)

    def check_read(self, read: Sequence[Named]) -> None:
        """Refuse to write over a file that is read; external data is known only from the model."""
        for one in self._written():
            for other in read:
                meant = self.in_place and (one.what, other.what) in _IN_PLACE
                if not meant and same_file(one.path, other.path):
                    raise _over(one, other)

    def _written(self) -> Iterator[Named]:
        yield from (Named(REPORT, path) for path in self.reports)
        if self.plan is not None:
            yield Named("the plan", self.plan)
        if self.output is not None:
            yield Named(CONVERTED, self.output)
            yield Named(SIDECAR, sidecar_of(self.output))


def named(what: str, values: Iterable[Any]) -> tuple[Named, ...]:
    """Name the files among what a caller gave; of a folder of input sets, also those in it."""
    paths = [Path(value) for value in values if isinstance(value, str | os.PathLike)]
    folders = [path for path in paths if path.is_dir()]
    inner = [item for path in folders for form in ("*.pb", "*/*.pb") for item in path.glob(form)]
    return tuple(Named(what, path) for path in (*paths, *inner))


def named_model(model: Any, what: str = MODEL) -> tuple[Named, ...]:
    """Name a model's file and its sidecar; one in memory has none."""
    found = named(what, [model])
    sides = tuple(Named(f"the sidecar of {what}", sidecar_of(item.path)) for item in found)
    return (*found, *sides)


def named_external(files: Iterable[ExternalFile]) -> tuple[Named, ...]:
    """Name the external data of a model that was read."""
    return tuple(Named("the external data", item.path) for item in files)


def sidecar_of(path: Path) -> Path:
    """Give the path of the sidecar of an artifact."""
    return path.parent / sidecar_name(path.name)


def _check_suffix(path: Path, suffixes: Sequence[str]) -> None:
    if suffixes:
        if path.suffix.lower() not in suffixes:
            known = " or ".join(f"`{item}`" for item in suffixes)
            raise OprepError(
                f"`{path.name}` does not say which format to write",
                str(path),
                help=f"let its name end in {known}",
                exit_code=ExitCode.USAGE,
            )
        return
    if path.suffix.lower() in FOREIGN:
        raise OprepError(
            f"`{path.name}` is no name of an ONNX model",
            str(path),
            ("the model is no PyTorch program, so an ONNX model would be written",)
            if path.suffix.lower() == ".pt2"
            else (),
            help=f"name it `{path.stem}.onnx`",
            exit_code=ExitCode.USAGE,
        )


def _holds(folder: Path, path: Path) -> bool:
    """Tell whether input sets saved in a folder (`folder/SET/input_0.pb`) could hit a path."""
    if same_file(folder, path):
        return True
    return path.suffix.lower() == ".pb" and same_file(folder, path.parent.parent)


def _over(one: Named, other: Named) -> OprepError:
    hint = ", or pass `--in-place`" if (one.what, other.what) == (CONVERTED, MODEL) else ""
    return OprepError(
        f"{one.what} would be written over {other.what} `{other.path.name or other.path}`",
        str(one.path),
        help=f"choose another name{hint}",
        exit_code=ExitCode.OUTPUT,
    )


def _twice(one: Named, other: Named) -> OprepError:
    both = "two reports" if one.what == other.what else f"{other.what} and {one.what}"
    return OprepError(
        f"{both} would be written to one file `{other.path.name}`",
        str(other.path),
        help="give each a name of its own",
        exit_code=ExitCode.OUTPUT,
    )
