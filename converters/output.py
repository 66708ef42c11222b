"""The only writer: an artifact of one or several files appears whole or not at all.

Everything is staged in the target's folder under temporary names that the kernel locks, fsynced,
read back and compared; `commit` then only renames: old sidecar removed, data files, model, sidecar.
Data files are named by their hash, so two artifacts with equal weights share one file; an old one
goes only when no model in the folder names it any more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from oprep.converters.bundles import BUNDLED, bundle_name, bundled_name, remove_unused
from oprep.converters.leftovers import DATA_NAME, Leftovers
from oprep.converters.reading import KINDS, OpenFile
from oprep.converters.staging import Staged, fsync_folder, locked, mapped, stage, sweep
from oprep.opsets.errors import ExitCode, OprepError

HASH_DIGITS = 32
DATA_SUFFIX = ".data"
OTHER_FOLDER = "write into another folder"
OTHER_NAME = "choose another name"


class Output:
    """An artifact being written: temp files in the target's folder, all or nothing.

    Refuses (exit 8) a folder, a symlink, any of `inputs` (unless `in_place`, which allows the
    first of them), a missing folder. Use it as a context: what is not committed is removed.
    """

    def __init__(self, path: Path, *, inputs: Sequence[Path] = (), in_place: bool = False) -> None:
        """Check the target and remove what a killed run left behind."""
        self.path = path
        self._inputs = tuple(inputs)
        self._in_place = in_place
        self._main: Staged | None = None
        self._data: dict[str, Staged] = {}
        self._placed: list[str] = []
        self._sides: dict[str, Staged] = {}
        with mapped(path):
            self._folder = _folder_of(path)
            self._refuse(path.name, allowed=self._inputs[:1] if in_place else ())
            sweep(self._folder, path.name)

    def write(self, chunks: Iterable[bytes], *, size: int | None = None) -> str:
        """Stage the main file; give its sha256. `size` in bytes lets a full disk be told first."""
        self._main = self._stage(self.path.name, chunks, size)
        return self._main.sha256

    def held(self) -> AbstractContextManager[OpenFile]:
        """Hold the staged main file open for reading: what will appear, before it does."""
        if self._main is None:
            raise ValueError("nothing was written")
        return self._main.held()

    def write_side(self, name: str, chunks: Iterable[bytes], *, size: int | None = None) -> str:
        """Stage a file beside it under a bare name (a sidecar); give its sha256."""
        if name != os.path.basename(name) or name in ("", ".", "..", self.path.name):
            raise ValueError(f"not a bare name beside `{self.path.name}`: `{name}`")
        with mapped(self.path):
            self._refuse(name)
        self._sides[name] = self._stage(name, chunks, size)
        return self._sides[name].sha256

    def write_data(self, chunks: Iterable[bytes], *, size: int | None = None) -> tuple[str, str]:
        """Stage external data; give the name it will have, which its hash alone decides, and that.

        One pass over `chunks`: nobody needs to know the hash beforehand.
        """
        staged = self._stage(self.path.name, chunks, size)
        name = staged.sha256[:HASH_DIGITS] + DATA_SUFFIX
        self._keep_data(name, staged)
        return name, staged.sha256

    def write_data_at(
        self, location: str, chunks: Iterable[bytes], *, size: int | None = None
    ) -> str:
        """Stage external data under a location of the input's; give its sha256.

        For an artifact whose bytes are the input's. A file there with other content is not
        replaced but refused, as the old model may need it.
        """
        parts = Path(location).parts
        if not parts or Path(location).is_absolute() or ".." in parts:
            raise ValueError(f"not a location below the artifact's folder: `{location}`")
        staged = self._stage(self.path.name, chunks, size)
        self._keep_data(location, staged)
        return staged.sha256

    def write_bundled(self, file: str, data: bytes, sha256: str) -> str:
        """Stage a copy of code for the folder beside the artifact; give its location there."""
        bundle = bundle_name(self.path.name)
        with mapped(self.path):
            self._refuse_bundle(bundle)
        location = f"{bundle}/{bundled_name(file, sha256)}"
        self._keep_data(location, self._stage(self.path.name, [data], len(data)))
        return location

    def commit(self) -> None:
        """Make everything staged visible, in a safe order."""
        if self._main is None:
            raise ValueError("nothing was written")
        with mapped(self.path), locked(self._folder, self.path):
            self._refuse(self.path.name, allowed=self._inputs[:1] if self._in_place else ())
            for name in self._sides:
                self._refuse(name)
            leftovers = Leftovers(self._folder, self.path.name)
            try:
                leftovers.note(name for name in self._data if DATA_NAME.fullmatch(name))
                leftovers.hide_sidecar()
                self._place_all_data()
                self._main.rename(self.path.name)
            except BaseException:
                leftovers.undo()
                self._unplace()
                raise
            fsync_folder(self._folder)
            for name, staged in self._sides.items():
                staged.rename(name)
            fsync_folder(self._folder)
            leftovers.remove(used=self._data)
            remove_unused(self._folder, self.path.name, self._data)

    def __enter__(self) -> Output:
        """Give the output, to be committed within the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove what was staged and not committed."""
        for staged in (self._main, *self._data.values(), *self._sides.values()):
            if staged is not None:
                staged.discard()

    def _stage(self, name: str, chunks: Iterable[bytes], size: int | None) -> Staged:
        target = self._folder / name
        with mapped(self.path, size, self._folder):
            return stage(self._folder, self.path.name, chunks, size=size, mode=_mode_of(target))

    def _keep_data(self, name: str, staged: Staged) -> None:
        if name in self._data:
            staged.discard()
        else:
            self._data[name] = staged

    def _place_all_data(self) -> None:
        """Put data files at their names, unless the same bytes are there already."""
        for name, staged in self._data.items():
            target = self._folder / name
            if staged.equals(target):
                staged.discard()
                continue
            self._refuse(name)
            if not DATA_NAME.fullmatch(name):
                self._make_room(name)
            staged.rename(name)
            self._placed.append(name)
            fsync_folder(target.parent)

    def _unplace(self) -> None:
        """Take bundled code back that no artifact has come to need."""
        for name in self._placed:
            if BUNDLED.fullmatch(os.path.basename(name)):
                with contextlib.suppress(OSError):
                    os.unlink(self._folder / name)
                    os.rmdir((self._folder / name).parent)

    def _refuse_bundle(self, name: str) -> None:
        """Refuse a folder of code that is none, or leads elsewhere."""
        state = _lstat(self._folder / name)
        if state is not None and not stat.S_ISDIR(state.st_mode):
            raise self._refused(f"`{name}` is no folder, and code is copied into one", OTHER_NAME)

    def _make_room(self, location: str) -> None:
        """Make the folders of a location, and refuse a file that is there already."""
        target = self._folder / location
        if _lstat(target) is not None:
            raise self._refused(f"`{location}` exists and holds other data", OTHER_FOLDER)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(self._folder):
            raise self._refused(f"`{location}` leads out of the folder", OTHER_FOLDER)

    def _refuse(self, name: str, allowed: Sequence[Path] = ()) -> None:
        """Refuse a target that is no regular file, or one of the inputs."""
        target = self._folder / name
        state = _lstat(target)
        if state is not None and not stat.S_ISREG(state.st_mode):
            kind = KINDS.get(stat.S_IFMT(state.st_mode), "special")
            raise self._refused(f"`{name}` is {kind}, and is not written over", OTHER_NAME)
        for given in self._inputs:
            if given not in allowed and same_file(target, given):
                action = OTHER_NAME
                if given == self._inputs[0] and name == self.path.name:
                    action += ", or pass `--in-place`"
                raise self._refused(f"`{name}` is an input of this run", action)

    def _refused(self, message: str, action: str) -> OprepError:
        where = str(self.path)
        return OprepError(message, where=where, help=action, exit_code=ExitCode.OUTPUT)


def write_text(path: Path, text: str) -> None:
    """Write a report or plan atomically (same gates as `Output`)."""
    with Output(path) as output:
        output.write([text.encode()])
        output.commit()


def check_target(path: Path, *, bundle: bool = False) -> None:
    """Refuse (exit 8) what could not be written, before any work is done for it.

    A file is made in its folder and removed again: only that shows that it will be possible. With
    `bundle` code will be copied beside it.
    """
    with Output(path) as output:
        output.write([])
        if bundle:
            output.write_bundled("", b"", "")


def check_folder(path: Path) -> None:
    """Refuse (exit 8) a folder that could not be made, or into which nothing could be written."""
    with mapped(path):
        there = next(each for each in (path, *path.parents, Path()) if os.path.lexists(each))
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"`{there}` is no folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _folder_of(path: Path) -> Path:
    if path.name in ("", "..") or str(path).endswith("/"):
        raise OprepError(
            f"`{path}` is a folder, and is not written over",
            where=str(path),
            help="name a file in it",
            exit_code=ExitCode.OUTPUT,
        )
    try:
        folder = path.parent.resolve(strict=True)
        if folder.is_dir():
            return folder
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except (OSError, RuntimeError, ValueError) as error:
        raise OprepError(
            f"there is no folder `{path.parent}` to write into",
            where=str(path),
            help="make the folder first",
            exit_code=ExitCode.OUTPUT,
        ) from error


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _mode_of(path: Path) -> int | None:
    state = _lstat(path)
    return None if state is None else stat.S_IMODE(state.st_mode) & 0o777


def same_file(one: Path, other: Path) -> bool:
    """Tell whether both are one file: by path, link, or a name that differs only in case."""
    with contextlib.suppress(OSError, ValueError):
        if os.path.samefile(one, other):
            return True
    try:
        in_one_folder = one.parent.resolve() == other.parent.resolve()
    except (OSError, RuntimeError, ValueError):
        return False
    return in_one_folder and _folded(one.name) == _folded(other.name)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
