"""Unpacks the artifacts of a finished run into a folder, one below it for each job."""

import asyncio
import re
import tempfile
import zipfile
from pathlib import Path
from typing import BinaryIO

from remuda.cli.exits import CommandError
from remuda.cli.view import JobView
from remuda.wire.user_client import UserClient


def folder_name(job: str) -> str:
    """A job's name as the name of a folder: `test 1/4` becomes `test 1_4`, and none leads elsewhere."""
    name = re.sub(r"[/\\\0]", "_", job)
    return f"_{name}" if name.startswith(".") else name


async def unpack(client: UserClient, project_id: int, job: JobView, target: Path) -> None:
    """Download a job's archive and unpack it below `target`."""
    with tempfile.TemporaryFile() as archive:
        async for piece in client.artifacts(project_id, job.id):
            archive.write(piece)
        await asyncio.to_thread(_extract, archive, target / folder_name(job.name))


def _extract(archive: BinaryIO, folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            folder.mkdir(parents=True, exist_ok=True)
            for entry in opened.infolist():
                # ZipFile keeps every entry below the folder, but forgets who may execute it.
                path = Path(opened.extract(entry, folder))
                mode = entry.external_attr >> 16 & 0o777
                if mode and not entry.is_dir():
                    path.chmod(mode)
    except zipfile.BadZipFile as error:
        raise CommandError(f"the artifacts for {folder} are no zip archive: {error}") from None
