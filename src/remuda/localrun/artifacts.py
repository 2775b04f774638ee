"""Downloads artifacts and reports of a finished run, for `remuda run --artifacts DIR`: a job's files to `DIR/<job>/`,
its reports to `DIR/<job>/reports/`; those of a downstream pipeline's jobs to the folder of its trigger job."""

import asyncio
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from remuda.lib.exits import CommandError
from remuda.lib.output_files import create_output_file, is_writable_name, open_output_folder
from remuda.localrun.junit import LIMIT_BYTES
from remuda.localrun.view import BELOW, JobView, RunView
from remuda.stdsteps.common.archive import LARGEST_BYTES, open_zip
from remuda.stdsteps.common.errors import StepError
from remuda.wire.user_api import FileInfo
from remuda.wire.user_client import UserClient

REPORTS = "reports"
INNER = frozenset({"archive", "metadata", "trace"})
"""Files of a job that are not reports."""
_PIECE_BYTES = 1 << 18


def folder_name(job: str) -> str:
    """Convert a job's name to a safe folder name: `test 1/4` becomes `test 1_4`."""
    name = re.sub(r"[/\\\0]", "_", job)
    return f"_{name}" if name.startswith(".") else name


async def collect(client: UserClient, view: RunView, target: Path) -> None:
    """Download the artifact archives and reports of all jobs of a run to folders below `target`."""
    for name, pipeline, job in view.all_jobs():
        folders = tuple(folder_name(part) for part in name.split(BELOW))
        for file in job.files:
            if file.type in INNER and file.type != "archive":
                continue
            with tempfile.TemporaryFile() as data:
                async for piece in client.artifacts(pipeline.project_id, job.id, file.type):
                    data.write(piece)
                data.seek(0)
                if file.type == "archive":
                    await asyncio.to_thread(extract, data, target, folders)
                else:
                    await asyncio.to_thread(put_report, data, file, target, (*folders, REPORTS))


async def report_of(client: UserClient, pipeline: RunView, job: JobView, kind: str) -> bytes:
    """Download a report of a job and return its bytes as uploaded, possibly gzipped; cut off at `LIMIT_BYTES` if
    larger. `pipeline`: that of the job. `kind`: the type of the report, such as junit."""
    report = bytearray()
    async for piece in client.artifacts(pipeline.project_id, job.id, kind):
        report += piece
        if len(report) > LIMIT_BYTES:
            break
    return bytes(report)


def extract(archive: BinaryIO, base: Path, folders: tuple[str, ...] = ()) -> None:
    """Unpack an archive into the folder `folders` below `base`. Raises CommandError if it is no archive or too large,
    or if it would write through a link. Entries below `.git` are skipped with a warning."""
    folder = base.joinpath(*folders)
    skipped = []
    try:
        with open_zip(archive) as entries:
            # zipfile reads no more of an entry than its declared size.
            if sum(entry.file_size for entry in entries.infolist()) > LARGEST_BYTES:
                raise CommandError(f"the artifacts for {folder} are larger than {LARGEST_BYTES} bytes when unpacked")
            with open_output_folder(base, folders):
                pass  # also for an archive without entries
            for entry in entries.infolist():
                parts = tuple(part for part in entry.filename.split("/") if part not in ("", ".", ".."))
                if not is_writable_name(parts):
                    skipped.append(entry.filename)
                elif entry.is_dir() or not parts:
                    with open_output_folder(base, (*folders, *parts)):
                        pass
                else:
                    mode = entry.external_attr >> 16 & 0o777
                    with entries.open(entry) as packed, create_output_file(base, (*folders, *parts), mode) as file:
                        shutil.copyfileobj(packed, file, _PIECE_BYTES)
    except zipfile.BadZipFile as error:
        raise CommandError(f"the artifacts for {folder} are not a zip archive: {error}") from None
    except StepError as error:
        raise CommandError(f"cannot unpack the artifacts for {folder}: {error}") from None
    if skipped:
        what = (
            f"{len(skipped)} files of the artifacts for {folder} that belong to a .git folder, such as {skipped[0]!r}"
        )
        print(f"remuda: WARNING: left out {what}", file=sys.stderr)


def put_report(data: BinaryIO, file: FileInfo, base: Path, folders: tuple[str, ...] = ()) -> None:
    """Write a report to the folder `folders` below `base`, decompressed if it is gzip; every gzip member after the
    first becomes a file with a number in its name. `file`: name, type, format. CommandError if the gzip data is damaged
    or too large, or if it would write through a link."""
    name = Path(file.filename).name
    # A person would overlook a hidden file.
    name = f"{file.type}{name}" if name.startswith(".") or not name else name
    if file.format != "gzip":
        with create_output_file(base, (*folders, name)) as out:
            while piece := data.read(_PIECE_BYTES):
                out.write(piece)
        return
    plain = Path(name.removesuffix(".gz"))
    rest, number = b"", 0
    try:
        while rest or (rest := data.read(_PIECE_BYTES)):
            number += 1
            member = plain.name if number == 1 else f"{plain.stem}-{number}{plain.suffix}"
            with create_output_file(base, (*folders, member)) as out:
                rest = _unpack_member(rest, data, out)
    except (zlib.error, EOFError) as error:
        raise CommandError(f"the report {base.joinpath(*folders, plain)} is damaged: {error}") from None


def _unpack_member(piece: bytes, data: BinaryIO, out: BinaryIO) -> bytes:
    """Decompress one gzip member to `out`; return the bytes read beyond its end. `piece`: its first bytes; `data`: the
    stream after them. Raises EOFError if the data ends inside, CommandError if the member is too large."""
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
    while piece:
        out.write(decompressor.decompress(piece, _PIECE_BYTES))
        if out.tell() > LARGEST_BYTES:
            raise CommandError(f"a report is larger than {LARGEST_BYTES} bytes when unpacked")
        if decompressor.eof:
            return decompressor.unused_data
        piece = decompressor.unconsumed_tail or data.read(_PIECE_BYTES)
    raise EOFError("it is cut off")
