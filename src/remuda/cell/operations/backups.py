"""Backs up a cell, which may run meanwhile, to a folder or archive, and restores it.

A consistent snapshot of the database rows is copied first, then the files. The cell writes a file before the row that
refers to it, so the backup has every file that its rows refer to. If the cell deleted a file in between, its row is
removed from the backup. A backup is valid once its manifest exists, a restored folder once its version file exists.

The rows are always stored as a SQLite file, whatever database the cell uses. Blobs in an object storage bucket are not
copied. Secrets in the rows are encrypted; the key file is in the backup only if the caller wants it (`with_keys`)."""

import asyncio
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import msgspec

from remuda.cell.blobs.folder import FolderBlobs
from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.operations.backup_files import (
    copy,
    copy_repository,
    copy_traces,
    fill_folder,
    is_archive,
    make_folder_beside,
    pack,
    unpack,
)
from remuda.cell.operations.data_folder import CONFIG, STORE, VERSION, check_is_cell
from remuda.cell.secrets.key_files import NAME as KEYS
from remuda.cell.secrets.key_files import VARIABLE, key_file, read_keys
from remuda.cell.secrets.resealing import count_keys_in_use
from remuda.cell.secrets.sealing import key_id, read_key
from remuda.cell.settings import CellSettings
from remuda.cell.store import migrations, snapshots
from remuda.cell.store.row_bodies import decode
from remuda.cell.traces.archive import ArchivedTraces
from remuda.cell.traces.files import FileTraces
from remuda.cell.values import Artifact, Job
from remuda.cell.values.lfs import LfsObject
from remuda.lib.files import write_whole

FORMAT = 1
_MANIFEST = "manifest.json"
_ROWS = "cell.sqlite"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a backup (`manifest.json`): its cell, format, schema version, blobs and encryption keys."""

    format: int
    cell_id: int
    revision: str
    created_at: float
    blobs: str = ""
    """The bucket with the blobs; empty: they are in the backup."""
    keys: tuple[str, ...] = ()
    """The ids of the encryption keys that are in the backup."""
    keys_wanted: tuple[str, ...] = ()
    """The ids of the encryption keys that its rows need."""


async def back_up(settings: CellSettings, to: Path, *, now: float, with_keys: bool = False) -> Manifest:
    """Write a backup to `to`: a new or empty folder, or an archive if the name ends in .tar, .tar.gz or .tgz.
    `with_keys`: include the file with the encryption keys, if there is one; whoever has the backup can then read all
    secrets. Raises CellError if `to` cannot be used."""
    if to.resolve().is_relative_to(settings.data.resolve()):
        raise DataFolderError(f"{to} is in the data folder that is to be backed up; give a place outside")
    async with snapshots.read(settings) as rows:
        snapshots.check_revision(rows)
    check_is_cell(settings.data)
    if is_archive(to):
        if to.exists():
            raise DataFolderError(f"{to} exists already; give another name")
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with make_folder_beside(to) as beside:
            manifest = await _back_up(settings, beside / "backup", now=now, with_keys=with_keys)
            await asyncio.to_thread(pack, beside / "backup", to)
        return manifest
    return await _back_up(settings, to, now=now, with_keys=with_keys)


async def _back_up(settings: CellSettings, to: Path, *, now: float, with_keys: bool) -> Manifest:
    with fill_folder(to):
        await snapshots.save(settings, to / _ROWS)
        cell_id = snapshots.migrate_file(to / _ROWS)
        bucket = settings.blobs if "://" in settings.blobs else ""
        await asyncio.to_thread(_copy_files, settings, to)
        await _forget_removed(settings, to)
        # Copied after the rows: a key is in the file before a row is encrypted with it.
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
    """Restore a backup into the data folder of the settings, which must be empty. If the settings name a database, the
    rows go there; it must be empty, too. The key file in the backup is ignored if the settings have keys or a key file
    exists. Raises CellError if the backup cannot be read, or the folder or database is not empty."""
    data = settings.data
    with unpack(source, data.parent) as backup:
        manifest = _read_manifest(backup, source)
        blobs = _blobs_folder(settings)
        elsewhere = fill_folder(blobs) if settings.blobs and blobs is not None else nullcontext()
        with fill_folder(data, keeps=(CONFIG, KEYS)), elsewhere:
            rows = data / f".{_ROWS}"
            await asyncio.to_thread(shutil.copyfile, backup / _ROWS, rows)
            cell_id = snapshots.migrate_file(rows)
            for name, target in (("repos", data / "repos"), ("traces", data / "traces"), ("blobs", blobs)):
                if target is not None and (backup / name).exists():
                    await asyncio.to_thread(shutil.copytree, backup / name, target, dirs_exist_ok=True)
            if (backup / KEYS).exists() and not settings.encryption_keys and not key_file(settings).exists():
                write_whole(key_file(settings), (backup / KEYS).read_bytes(), durable=True)
            write_whole(data / "cell", f"{cell_id}\n".encode(), durable=True)
            os.sync()
            # As late as possible: a failure after this leaves a database that is not empty any more.
            if settings.is_shared:
                await snapshots.load(rows, settings.database, cell_id)
                rows.unlink()
                write_whole(data / STORE, b"", durable=True)
            else:
                rows.rename(data / _ROWS)
            write_whole(data / "version", f"{VERSION}\n".encode(), durable=True)
    return manifest


def _copy_keys(settings: CellSettings, to: Path) -> tuple[str, ...]:
    if settings.encryption_keys or not key_file(settings).exists():
        return ()
    write_whole(to / KEYS, key_file(settings).read_bytes())
    return tuple(read_keys(to / KEYS).by_id)


async def _keys_of(backup: Path) -> tuple[str, ...]:
    """Return the ids of the encryption keys with which secrets in the backup are encrypted."""
    keys = await count_keys_in_use(CellSettings(data=backup))
    return tuple(sorted(key for key in keys if key))


def missing_keys(manifest: Manifest, settings: CellSettings) -> tuple[str, ...]:
    """Return the ids of the encryption keys that a restored cell needs but its key file and settings do not have."""
    available = [key_id(read_key(text, VARIABLE)) for text in settings.encryption_keys]
    if not available and key_file(settings).exists():
        available = list(read_keys(key_file(settings)).by_id)
    return tuple(key for key in manifest.keys_wanted if key not in available)


def missing_keys_advice(manifest: Manifest, settings: CellSettings) -> str:
    """Return how the operator can provide missing encryption keys before the cell starts; empty if none is missing."""
    if not (missing := missing_keys(manifest, settings)):
        return ""
    return (
        f"before that, bring back its encryption keys ({', '.join(missing)}), which were not in the backup: put "
        f"the key file at {key_file(settings)}, or give the keys in {VARIABLE}"
    )


def _copy_files(settings: CellSettings, to: Path) -> None:
    data = settings.data
    for repo in sorted((data / "repos").glob("*/*.git")):
        copy_repository(repo, to / "repos" / repo.relative_to(data / "repos"))
    copy_traces(data / "traces", to / "traces")
    blobs = _blobs_folder(settings)
    if blobs is not None:
        copy((file for file in (blobs / "kept").rglob("*") if file.is_file()), blobs, to / "blobs")


async def _forget_removed(settings: CellSettings, to: Path) -> None:
    """Correct the rows in the backup whose files the cell deleted during the copy: remove the rows of such artifacts
    and LFS objects, and mark jobs whose log is gone as erased. Does nothing if the blobs are in a bucket. If a file is
    missing although the cell's own database still has its row, the row stays in the backup, and `remuda cell check`
    reports it."""
    if _blobs_folder(settings) is None:
        return
    copied = ArchivedTraces(FileTraces(to / "traces"), FolderBlobs(to / "blobs"))
    async with snapshots.read(CellSettings(data=to)) as rows:
        lost = [
            artifact
            async for (body,) in rows.rows("SELECT body FROM artifacts")
            if not (to / "blobs" / "kept" / (artifact := decode(Artifact, body)).blob).exists()
        ]
        lost_lfs = [
            stored
            async for (body,) in rows.rows("SELECT body FROM lfs_objects")
            if not (to / "blobs" / "kept" / (stored := decode(LfsObject, body)).blob).exists()
        ]
        without_log = [
            job.id
            async for (body,) in rows.rows("SELECT body FROM jobs")
            if (job := decode(Job, body)).trace_bytes and not job.erased and not await copied.size(job.id)
        ]
    if not lost and not lost_lfs and not without_log:
        return
    async with snapshots.read(settings) as current:
        existing = {
            decode(Artifact, body).blob
            for job_id in {artifact.job_id for artifact in lost}
            async for (body,) in current.rows(f"SELECT body FROM artifacts WHERE job_id = {job_id}")
        }
        existing |= {
            decode(LfsObject, body).blob
            for project_id in {stored.project_id for stored in lost_lfs}
            async for (body,) in current.rows(f"SELECT body FROM lfs_objects WHERE project_id = {project_id}")
        }
        with_trace = {
            job_id
            for job_id in without_log
            async for (body,) in current.rows(f"SELECT body FROM jobs WHERE id = {job_id}")
            if not decode(Job, body).erased
        }
    snapshots.remove_missing(
        to / _ROWS,
        artifacts=[artifact for artifact in lost if artifact.blob not in existing],
        lfs_objects=[stored for stored in lost_lfs if stored.blob not in existing],
        traces=[job_id for job_id in without_log if job_id not in with_trace],
    )


def _blobs_folder(settings: CellSettings) -> Path | None:
    if "://" in settings.blobs:
        return None
    return Path(settings.blobs) if settings.blobs else settings.data / "blobs"


def _read_manifest(backup: Path, source: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode((backup / _MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        raise CellError(f"{source} is no backup of a cell, or one that was not finished; give another") from None
    if manifest.format > FORMAT or manifest.revision not in migrations.NAMES:
        what = f"format {manifest.format}, schema version {manifest.revision}"
        raise CellError(f"{source} was made by a newer release ({what}); install that release or a later one")
    return manifest
