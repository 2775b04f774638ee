"""A cell as a folder that can be put away, and a folder as a cell again.

Decided here: the order. All rows are of one moment and are taken first; then the files that rows name, none of which a
row names before it is there. So whatever a row in the backup names is in the backup, unless somebody removed it in
between. A repository's refs are taken before its objects, for the same reason. A backup counts once its manifest is
there, a restored folder once its version is. `remuda cell backup` and `restore` call this; the cell may run meanwhile.

The rows are a SQLite file in any case (`remuda.cell.adapters.tables`). Blobs that a cell keeps in a bucket stay there.
Secrets in the rows are encrypted; the keys are in the backup only if that is wished.
"""

import asyncio
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from remuda.cell.adapters import migrations, tables
from remuda.cell.adapters.resealing import keys_in_use
from remuda.cell.datafolder import VERSION
from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.key_files import NAME as KEYS
from remuda.cell.key_files import VARIABLE, key_file, read_keys
from remuda.cell.sealing import key_id, read_key
from remuda.cell.settings import CellSettings
from remuda.lib.files import write_whole

FORMAT = 1
_MANIFEST = "manifest.json"
_ROWS = "cell.sqlite"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is."""

    format: int
    cell_id: int
    revision: str
    created_at: float
    blobs: str = ""
    """The bucket where the blobs stayed; empty: they are in the backup."""
    keys: tuple[str, ...] = ()
    """The ids of the encryption keys that are in the backup."""
    keys_wanted: tuple[str, ...] = ()
    """The ids of those that its rows are encrypted with."""


async def back_up(settings: CellSettings, to: Path, *, now: float, with_keys: bool = True) -> Manifest:
    """Write a backup to a new folder, or to a file whose name ends in .tar, .tar.gz or .tgz.

    `with_keys`: with the file of encryption keys, where there is one; then whoever has the backup has all secrets.
    """
    if _is_tar(to):
        if to.exists():
            raise DataFolderError(f"{to} exists already; give another name")
        with tempfile.TemporaryDirectory(dir=_folder_of(to), prefix=f".{to.name}.") as beside:
            manifest = await back_up(settings, Path(beside) / "backup", now=now, with_keys=with_keys)
            await asyncio.to_thread(_pack, Path(beside) / "backup", to)
        return manifest
    _check_empty(to)
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    await tables.save(settings, to / _ROWS)
    cell_id = tables.up_to_date(to / _ROWS)
    bucket = settings.blobs if "://" in settings.blobs else ""
    await asyncio.to_thread(_copy_files, settings, to, with_blobs=not bucket)
    # After the rows: a key is in the file before a row is encrypted with it.
    keys = _copy_keys(settings, to) if with_keys else ()
    manifest = Manifest(
        format=FORMAT,
        cell_id=cell_id,
        revision=migrations.HEAD,
        created_at=now,
        blobs=bucket,
        keys=keys,
        keys_wanted=await _keys_of(to),
    )
    os.sync()
    write_whole(to / _MANIFEST, msgspec.json.encode(manifest), durable=True)
    return manifest


async def restore(source: Path, settings: CellSettings) -> Manifest:
    """Make a cell of a backup, in an empty data folder and, where one is given, an empty database."""
    with _unpacked(source) as backup:
        manifest = _read_manifest(backup)
        data = settings.data
        _check_empty(data)
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        rows = data / f".{_ROWS}"
        await asyncio.to_thread(shutil.copyfile, backup / _ROWS, rows)
        cell_id = tables.up_to_date(rows)
        blobs = _blobs_folder(settings)
        for name, target in (("repos", data / "repos"), ("traces", data / "traces"), ("blobs", blobs)):
            if target is not None and (backup / name).exists():
                await asyncio.to_thread(shutil.copytree, backup / name, target, dirs_exist_ok=True)
        if settings.is_shared:
            await tables.load(rows, settings.database, cell_id)
            rows.unlink()
        else:
            rows.rename(data / _ROWS)
        if (backup / KEYS).exists() and not settings.encryption_keys:
            write_whole(key_file(settings), (backup / KEYS).read_bytes(), durable=True)
        os.sync()
        write_whole(data / "cell", f"{cell_id}\n".encode(), durable=True)
        write_whole(data / "version", f"{VERSION}\n".encode(), durable=True)
    return manifest


def _copy_keys(settings: CellSettings, to: Path) -> tuple[str, ...]:
    if settings.encryption_keys or not key_file(settings).exists():
        return ()
    write_whole(to / KEYS, key_file(settings).read_bytes())
    return tuple(read_keys(to / KEYS).by_id)


async def _keys_of(backup: Path) -> tuple[str, ...]:
    """The keys that the rows of a backup are encrypted with."""
    found = await keys_in_use(CellSettings(data=backup))
    return tuple(sorted(name for name in found if name))


def missing_keys(manifest: Manifest, settings: CellSettings) -> tuple[str, ...]:
    """The keys that a restored cell lacks: neither were they in the backup, nor do the settings give them."""
    given = [key_id(read_key(text, VARIABLE)) for text in settings.encryption_keys]
    if not given and key_file(settings).exists():
        given = list(read_keys(key_file(settings)).by_id)
    return tuple(key for key in manifest.keys_wanted if key not in given)


def _copy_files(settings: CellSettings, to: Path, *, with_blobs: bool) -> None:
    data = settings.data
    for repo in sorted((data / "repos").glob("*/*.git")):
        _copy_repository(repo, to / "repos" / repo.relative_to(data / "repos"))
    # A trace wanders from the folder to the archive in it, and from there to the blobs.
    _copy((data / "traces").glob("*.log"), data / "traces", to / "traces")
    _copy((data / "traces" / "archive").glob("*.log"), data / "traces", to / "traces")
    for sealed in (to / "traces" / "archive").glob("*.log"):
        (to / "traces" / sealed.name).unlink(missing_ok=True)
    blobs = _blobs_folder(settings)
    if with_blobs and blobs is not None:
        _copy((file for file in (blobs / "kept").rglob("*") if file.is_file()), blobs, to / "blobs")


def _blobs_folder(settings: CellSettings) -> Path | None:
    if "://" in settings.blobs:
        return None
    return Path(settings.blobs) if settings.blobs else settings.data / "blobs"


def _copy(files: Iterable[Path], root: Path, to: Path) -> None:
    """Copy files; one that is gone by now has moved on, or nobody names it any more."""
    for file in files:
        target = to / file.relative_to(root)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copyfile(file, target)


def _copy_repository(repo: Path, to: Path) -> None:
    """Refs first, then loose objects, then packs: whatever git moves meanwhile, it moves from an earlier to a later."""

    def files(wanted: Callable[[Path], bool]) -> Iterator[Path]:
        for file in list(repo.rglob("*")):
            if file.is_file() and not file.name.endswith(".lock") and wanted(file.relative_to(repo)):
                yield file

    _copy(files(lambda path: path.parts[0] == "refs"), repo, to)
    _copy(files(lambda path: path.parts[0] not in ("refs", "objects")), repo, to)
    _copy(files(lambda path: path.parts[0] == "objects" and path.parts[1] != "pack"), repo, to)
    copied: set[Path] = set()
    while new := {file for file in (repo / "objects" / "pack").glob("*") if file.is_file()} - copied:
        _copy(sorted(new), repo, to)
        copied |= new
    for folder in ("refs/heads", "refs/tags", "objects"):
        (to / folder).mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(entry.name != "lost+found" for entry in folder.iterdir())):
        raise DataFolderError(f"{folder} is not empty; give an empty or a new folder")


def _read_manifest(backup: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode((backup / _MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        raise CellError(f"{backup} is no backup of a cell, or one that was not finished; give another") from None
    if manifest.format > FORMAT:
        raise CellError(f"{backup} was made by a newer release (format {manifest.format}); use that release")
    return manifest


def _is_tar(path: Path) -> bool:
    return path.name.endswith((".tar", ".tar.gz", ".tgz"))


def _folder_of(file: Path) -> Path:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return file.parent


def _pack(folder: Path, to: Path) -> None:
    aside = folder.parent / "packed"
    with tarfile.open(aside, "w" if to.name.endswith(".tar") else "w:gz") as packed:
        packed.add(folder, arcname=".")
    aside.chmod(0o600)
    aside.rename(to)


@contextmanager
def _unpacked(source: Path) -> Iterator[Path]:
    if not _is_tar(source):
        yield source
        return
    try:
        with tempfile.TemporaryDirectory(prefix="remuda-restore-") as folder:
            with tarfile.open(source) as packed:
                packed.extractall(folder, filter="data")
            yield Path(folder)
    except (tarfile.TarError, FileNotFoundError) as error:
        raise CellError(f"cannot read {source}: {error}; give a backup") from None
