"""What the user named as a PyTorch model, told without torch: file, factory, and whose code runs.

An archive or pickle is told by its content. `file.py:factory` and `pkg.mod:Class` name code of
the user's own, which may run in a child; code inside a model file runs only where it is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oprep.converters import handed
from oprep.converters.files import Content, OpenFile, Readable, holding, read, sniff_file
from oprep.converters.formats import WORDS
from oprep.converters.pt2.torch_files import TorchFile, inspect, untrusted
from oprep.converters.reading import as_stream
from oprep.opsets.errors import ExitCode, OprepError

FORMATS = {"pt2": "pt2", "torchscript": "torchscript", "torch": "pickle", "pickle": "pickle"}
"""The format of a program by what `sniff` says of its file."""

DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
WEIGHTS_ONLY = "save only `module.state_dict()`, or pass `--trust-model` if the file is yours"
HOW_TO_NAME = "name a function or class in it, as `model.py:build`"


@dataclass(frozen=True)
class Weights:
    """A weights file, and the key in it of the state dict, if one was named.

    Code in it runs only where it is `trusted`; else it may hold no more than tensors.
    """

    name: str
    content: Readable
    sha256: str
    key: str = ""
    trusted: bool = False

    def plain(self) -> dict[str, Any]:
        """Give it as plain data, to travel to a child."""
        return {**vars(self), "content": handed.plain(self.content)}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Weights:
        """Build it from what `plain` gave."""
        return Weights(**{**plain, "content": handed.received(plain["content"])})


@dataclass(frozen=True)
class Source:
    """A model as the user named it. `kind` is the format that a captured program carries.

    `pt2`, `torchscript` and `pickle`: the file is `data`, or `file` where it is held open.
    `factory`: `data` holds the Python file (empty for `pkg.mod:Class`, whose module is `module`),
    `attribute` names what to call.
    """

    kind: str
    name: str
    path: Path
    data: bytes = b""
    sha256: str = ""
    module: str = ""
    attribute: str = ""
    weights: Weights | None = None
    file: OpenFile | None = None

    @property
    def content(self) -> Readable:
        """Give the file, to be read in parts."""
        return self.file or Content(self.path, self.data, self.sha256)

    def stream(self) -> IO[bytes]:
        """Give the file as a stream."""
        return as_stream(self.content, 0, self.content.size)

    @property
    def files(self) -> tuple[OpenFile, ...]:
        """Give what is held open, to be handed to the child that reads it."""
        own = () if self.weights is None else (self.weights.content,)
        return tuple(item for item in (self.file, *own) if isinstance(item, OpenFile))

    @property
    def folder(self) -> Path:
        """Give the folder whose modules the model may import."""
        return self.path if self.module else self.path.parent

    @property
    def readable(self) -> tuple[Path, ...]:
        """Give what the child may read of the user's files; an archive is handed to it."""
        return () if self.kind in ("pt2", "torchscript") else (self.folder,)

    def plain(self) -> dict[str, Any]:
        """Give it as plain data, to travel to a child."""
        return {
            **{name: getattr(self, name) for name in PLAIN},
            "content": handed.plain(self.content),
            "weights": None if self.weights is None else self.weights.plain(),
        }

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Source:
        """Build it from what `plain` gave."""
        content, weights = handed.received(plain["content"]), plain["weights"]
        return Source(
            **{name: plain[name] for name in PLAIN},
            path=content.path,
            weights=None if weights is None else Weights.of(weights),
            file=content if isinstance(content, OpenFile) else None,
            data=content.data if isinstance(content, Content) else b"",
        )


PLAIN = ("kind", "name", "sha256", "module", "attribute")


def is_factory(model: str | Path) -> bool:
    """Tell whether a model is named as `file.py:name` or `pkg.mod:name`, not as a file."""
    text = str(model)
    before, colon, _ = text.rpartition(":")
    if not colon or Path(text).exists():
        return False
    return before.endswith(".py") or bool(DOTTED.fullmatch(before))


def open_source(
    model: str | Path,
    *,
    weights: str | Path | None = None,
    trust_model: bool = False,
    no_code: bool = False,
    max_bytes: int | None = None,
    held: ExitStack | None = None,
) -> Source:
    """Find out what a model is and read it once; nothing of it is unpickled or imported here.

    With `held` files are kept open there instead of being read whole; then the sha256 of a `.pt2`
    is left to its gate. Raise OprepError: exit 3 for what is no PyTorch program, exit 7 where code
    would have to run that nobody trusted, exit 2 for options that do not go together.
    """
    if is_factory(model):
        _require_name(str(model), no_code)
        loaded = None
        if weights is not None:
            loaded = open_weights(weights, max_bytes, trusted=trust_model, held=held)
        return _factory(str(model), loaded, max_bytes)
    content = _opened(Path(model), max_bytes, held)
    found = sniff_file(content)
    kind = FORMATS.get(found)
    if kind is None:
        raise _not_a_program(content, found)
    if weights is not None:
        raise OprepError(
            f"`{content.path.name}` has weights of its own",
            where="--weights",
            notes=(f"it is {WORDS[found]}; weights are loaded into what a factory builds",),
            help="leave `--weights` out, or name a factory as `model.py:build`",
            exit_code=ExitCode.USAGE,
        )
    if kind != "pt2":
        _require_a_module(content, inspect(content), trusted=trust_model)
    data, file, sha256 = b"", None, ""
    if isinstance(content, Content):
        data, sha256 = content.data, content.sha256
    elif isinstance(content, OpenFile):
        file, sha256 = content, "" if kind == "pt2" else content.sha256()
    return Source(kind, content.path.name, content.path, data, sha256, file=file)


def _opened(path: Path, max_bytes: int | None, held: ExitStack | None) -> Readable:
    if held is None:
        return read(path, max_bytes=max_bytes)
    return held.enter_context(holding(path, max_bytes=max_bytes))


def _require_name(text: str, no_code: bool) -> None:
    attribute = text.rpartition(":")[2]
    if no_code:
        raise OprepError(
            f"`{text}` is code that would have to run",
            where=text,
            notes=("`--no-code` was passed",),
            help="export the model to `.pt2` first",
            exit_code=ExitCode.UNTRUSTED,
        )
    if not DOTTED.fullmatch(attribute):
        raise OprepError(
            f"`{text}` names nothing to call",
            where=text,
            notes=(f"`{attribute}` is no Python name",) if attribute else (),
            help=HOW_TO_NAME,
            exit_code=ExitCode.USAGE,
        )


def _factory(text: str, weights: Weights | None, max_bytes: int | None) -> Source:
    before, _, attribute = text.rpartition(":")
    if not before.endswith(".py"):
        folder = Path.cwd()
        return Source("factory", text, folder, module=before, attribute=attribute, weights=weights)
    content = read(Path(before), max_bytes=max_bytes)
    path = content.path.resolve()
    name = f"{path.name}:{attribute}"
    return Source("factory", name, path, content.data, content.sha256, "", attribute, weights)


def open_weights(
    weights: str | Path,
    max_bytes: int | None = None,
    *,
    trusted: bool = False,
    held: ExitStack | None = None,
) -> Weights:
    """Read a weights file, `ckpt.pt` or `ckpt.pt:model.state` with the key of the state dict.

    With `held` it is kept open there instead.
    """
    path, key = Path(weights), ""
    if not path.exists() and ":" in path.name:
        before, _, key = str(weights).rpartition(":")
        path = Path(before)
    content = _opened(path, max_bytes, held)
    found = sniff_file(content)
    if found not in ("torch", "pickle", "safetensors"):
        raise OprepError(
            f"`{path.name}` is {WORDS[found]}, not a file of weights",
            where=str(path),
            help="give a state dict saved by `torch.save`, or `.safetensors`",
            exit_code=ExitCode.MODEL,
        )
    if found != "safetensors" and not trusted:
        require_data(content, WEIGHTS_ONLY)
    sha256 = content.sha256 if isinstance(content, Content) else _hashed(content)
    return Weights(path.name, content, sha256, key, trusted)


def _hashed(content: Readable) -> str:
    assert isinstance(content, OpenFile)
    return content.sha256()


def require_data(content: Readable, help: str) -> None:
    """Refuse (exit 7) a file of torch that holds more than tensors and plain data."""
    inside = inspect(content)
    if inside.plain:
        return
    named = f" that names `{inside.imports}`" if inside.imports else ""
    raise OprepError(
        f"`{content.path.name}` holds more than tensors: loading it would run code",
        where=f"{content.path}, {inside.kind}{named}",
        help=help,
        exit_code=ExitCode.UNTRUSTED,
    )


def _require_a_module(content: Readable, inside: TorchFile, *, trusted: bool) -> None:
    if inside.plain:
        raise OprepError(
            f"`{content.path.name}` holds weights, not a model",
            where=str(content.path),
            notes=("no class is named in it, so it is a state dict or plain tensors",),
            help="name what builds the model: `oprep convert model.py:build --weights "
            f"{content.path.name}`",
            exit_code=ExitCode.MODEL,
        )
    if not trusted:
        untrusted(content, inside)


def _not_a_program(content: Readable, found: str) -> OprepError:
    is_python = content.path.suffix == ".py" and found == "text"
    return OprepError(
        f"`{content.path.name}` is {WORDS[found]}, not a PyTorch program",
        where=str(content.path),
        help=HOW_TO_NAME if is_python else "",
        exit_code=ExitCode.MODEL,
    )
