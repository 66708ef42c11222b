"""What the user named as a PyTorch model, told without torch: file, factory, and whose code runs.

An archive or pickle is told by its content. `file.py:factory` and `pkg.mod:Class` name code of
the user's own, which may run in a child; code inside a model file runs only where it is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oprep.converters.files import Content, read, sniff
from oprep.converters.formats import WORDS
from oprep.converters.pickled import Pickled, pickled
from oprep.opsets.errors import ExitCode, OprepError

FORMATS = {"pt2": "pt2", "torchscript": "torchscript", "torch": "pickle", "pickle": "pickle"}
"""The format of a program by what `sniff` says of its file."""

DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
HOW_TO_NAME = "name a function or class in it, as `model.py:build`"
TRUST = "export it to `.pt2`, or pass `--trust-model` if the file is yours"


@dataclass(frozen=True)
class Weights:
    """The bytes of a weights file, and the key in it of the state dict, if one was named.

    Code in it runs only where it is `trusted`; else it may hold no more than tensors.
    """

    name: str
    data: bytes
    sha256: str
    key: str = ""
    trusted: bool = False


@dataclass(frozen=True)
class Source:
    """A model as the user named it. `kind` is the format that a captured program carries.

    `pt2`, `torchscript` and `pickle`: `data` holds the file. `factory`: `data` holds the Python
    file (empty for `pkg.mod:Class`, whose module is `module`), `attribute` names what to call.
    """

    kind: str
    name: str
    path: Path
    data: bytes = b""
    sha256: str = ""
    module: str = ""
    attribute: str = ""
    weights: Weights | None = None

    @property
    def folder(self) -> Path:
        """Give the folder whose modules the model may import."""
        return self.path if self.module else self.path.parent

    @property
    def readable(self) -> tuple[Path, ...]:
        """Give what the child may read of the user's files; an archive travels as bytes."""
        return () if self.kind in ("pt2", "torchscript") else (self.folder,)

    def plain(self) -> dict[str, Any]:
        """Give it as plain data, to travel to a child."""
        weights = self.weights
        return {
            **{name: getattr(self, name) for name in PLAIN},
            "path": str(self.path),
            "weights": None if weights is None else dict(vars(weights)),
        }

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Source:
        """Build it from what `plain` gave."""
        weights = plain["weights"]
        return Source(
            **{name: plain[name] for name in PLAIN},
            path=Path(plain["path"]),
            weights=None if weights is None else Weights(**weights),
        )


PLAIN = ("kind", "name", "data", "sha256", "module", "attribute")


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
) -> Source:
    """Find out what a model is and read it once; nothing of it is unpickled or imported here.

    Raise OprepError: exit 3 for what is no PyTorch program, exit 7 where code would have to run
    that nobody trusted, exit 2 for options that do not go together.
    """
    if is_factory(model):
        _require_name(str(model), no_code)
        loaded = None if weights is None else open_weights(weights, max_bytes, trusted=trust_model)
        return _factory(str(model), loaded, max_bytes)
    content = read(Path(model), max_bytes=max_bytes)
    return file_source(content, weights=weights, trust_model=trust_model)


def file_source(
    content: Content, *, weights: str | Path | None = None, trust_model: bool = False
) -> Source:
    """Tell what a file that was read is; the same refusals as `open_source`."""
    found = sniff(content.data)
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
    if kind == "pickle":
        _require_a_module(content, pickled(content))
    if kind != "pt2" and not trust_model:
        raise _untrusted(content, kind)
    return Source(kind, content.path.name, content.path, content.data, content.sha256)


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
    weights: str | Path, max_bytes: int | None = None, *, trusted: bool = False
) -> Weights:
    """Read a weights file, `ckpt.pt` or `ckpt.pt:model.state` with the key of the state dict."""
    path, key = Path(weights), ""
    if not path.exists() and ":" in path.name:
        before, _, key = str(weights).rpartition(":")
        path = Path(before)
    content = read(path, max_bytes=max_bytes)
    found = sniff(content.data)
    if found not in ("torch", "pickle", "safetensors"):
        raise OprepError(
            f"`{path.name}` is {WORDS[found]}, not a file of weights",
            where=str(path),
            help="give a state dict saved by `torch.save`, or `.safetensors`",
            exit_code=ExitCode.MODEL,
        )
    if found != "safetensors" and not trusted:
        _require_data(content, pickled(content))
    return Weights(path.name, content.data, content.sha256, key, trusted)


def _require_data(content: Content, inside: Pickled) -> None:
    if inside.foreign:
        raise OprepError(
            f"`{content.path.name}` holds more than tensors: loading it would run code",
            where=f"{content.path}, PyTorch pickle that names `{inside.foreign[0]}`",
            help="save only `module.state_dict()`, or pass `--trust-model` if the file is yours",
            exit_code=ExitCode.UNTRUSTED,
        )


def _require_a_module(content: Content, inside: Pickled) -> None:
    if not inside.foreign:
        raise OprepError(
            f"`{content.path.name}` holds weights, not a model",
            where=str(content.path),
            notes=("no class is named in it, so it is a state dict or plain tensors",),
            help="name what builds the model: `oprep convert model.py:build --weights "
            f"{content.path.name}`",
            exit_code=ExitCode.MODEL,
        )


def _untrusted(content: Content, kind: str) -> OprepError:
    name = content.path.name
    if kind == "torchscript":
        what = "TorchScript archive"
    else:
        what = f"PyTorch pickle of class `{pickled(content).foreign[0]}`"
    return OprepError(
        f"`{name}` can only be loaded by running code stored in it",
        where=f"{content.path}, {what}",
        help=TRUST,
        exit_code=ExitCode.UNTRUSTED,
    )


def _not_a_program(content: Content, found: str) -> OprepError:
    is_python = content.path.suffix == ".py" and found == "text"
    return OprepError(
        f"`{content.path.name}` is {WORDS[found]}, not a PyTorch program",
        where=str(content.path),
        help=HOW_TO_NAME if is_python else "",
        exit_code=ExitCode.MODEL,
    )
