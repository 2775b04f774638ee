"""`remuda job artifacts`: lists, downloads and unpacks the artifacts of a job.

A download is written beside its target and renamed at the end, so that an interrupted one leaves no half file."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, in_project
from remuda.cli.job.listing import JobNumber
from remuda.cli.options import Output
from remuda.cli.render.listing import local_time, print_json, print_table
from remuda.lib.exits import BadInputError
from remuda.localrun.render.words import size_in_words

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

STDOUT = Path("-")


def artifacts(
    job: JobNumber,
    path: Annotated[str, Parameter(help="Download only this file of the archive.", show_default=False)] = "",
    /,
    *,
    unpack: Annotated[
        Path | None, Parameter(name=("--unpack", "-u"), help="Download the archive and unpack it into this folder.")
    ] = None,
    to: Annotated[
        Path | None,
        Parameter(
            name=("--to", "-t"),
            # Otherwise a lone - would be taken for the next option.
            allow_leading_hyphen=True,
            help="Write the file PATH, the report --type or, without both, the archive to this file; - is stdout. "
            "[default for PATH: its name, in the current folder]",
        ),
    ] = None,
    file_type: Annotated[
        str, Parameter(name="--type", help="Download the artifact of this type, such as junit.", show_default=False)
    ] = "",
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List the artifacts of a job, or download them: the archive, one of its files, or a report.

    Without PATH and options, lists the archive and the reports of the job, and the files in the archive. Downloads of
    4 MiB or more show their progress on a terminal.

    Try:

        remuda job artifacts 7
        remuda job artifacts 7 --unpack build
        remuda job artifacts 7 dist/app.tar.gz
        remuda job artifacts 7 coverage/index.txt --to - | head
        remuda job artifacts 7 --type junit --to report.xml.gz
        remuda job artifacts 7 --to artifacts.zip
    """
    _check_options(path, unpack, to, file_type)
    if unpack is not None:
        cell.ask(lambda client: _unpack(client, job, unpack))
    elif path or to or file_type:
        name = PurePosixPath(path).name or file_type
        cell.ask(lambda client: _save(client, job, path, file_type, to or Path(name)))
    else:
        answer = cell.ask(lambda client: _list(client, job))
        if output == "json":
            print_json(answer)
        else:
            _print(answer)


def _check_options(path: str, unpack: Path | None, to: Path | None, file_type: str) -> None:
    if unpack is not None and (path or to or file_type):
        raise BadInputError("--unpack is for the whole archive; leave out PATH, --to and --type")
    if path and file_type:
        raise BadInputError("PATH is a file of the archive; leave out --type")
    if path and PurePosixPath(path).name in ("", "..") and to is None:
        raise BadInputError(f"{path}: is not the path of a file; `remuda job artifacts NUMBER` lists the files")


async def _list(client: "UserClient", job: int) -> dict[str, Any]:
    answer = await client.job(job)
    files = await client.pages(f"/api/remuda/v1/jobs/{job}/artifacts/files") if _archive(answer) else []
    own = [file for file in answer["artifacts"] if file["file_type"] not in ("trace", "metadata")]
    return {"job": job, "expire_at": answer.get("artifacts_expire_at"), "artifacts": own, "files": files}


def _print(answer: Mapping[str, Any]) -> None:
    if not answer["artifacts"]:
        print(f"job {answer['job']} has no artifacts")
        return
    rows = [(file["file_type"], file["filename"], size_in_words(file["size"])) for file in answer["artifacts"]]
    print_table([("type", "name", "size"), *rows])
    if until := local_time(answer["expire_at"]):
        print(f"they are deleted at {until}")
    if files := [file for file in answer["files"] if not file["is_folder"]]:
        print()
        print_table([("file", "size"), *((file["path"], size_in_words(file["size"])) for file in files)])


async def _unpack(client: "UserClient", job: int, folder: Path) -> None:
    from remuda.cli.render.download import copy_pieces
    from remuda.localrun.artifacts import extract

    answer = await client.job(job)
    archive = _archive(answer)
    if archive is None:
        raise BadInputError(_explain_absence(answer))
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"--unpack {folder}: is a file; give a folder")
    with tempfile.TemporaryFile() as data:
        pieces = client.artifacts(answer["pipeline"]["project_id"], job)
        await copy_pieces(pieces, data, archive["size"])
        data.seek(0)
        extract(data, folder)
    print(f"the artifacts of job {job} are in {folder}")


async def _save(client: "UserClient", job: int, path: str, file_type: str, target: Path) -> None:
    from remuda.cli.render.download import copy_pieces

    answer = await client.job(job)
    if not path and not any(file["file_type"] == (file_type or "archive") for file in answer["artifacts"]):
        raise BadInputError(_explain_absence(answer, file_type))
    if path and _archive(answer) is None:
        raise BadInputError(_explain_absence(answer))
    words = path.strip("/").split("/") if path else []
    query = {"file_type": file_type} if file_type else {}
    pieces = client.download(in_project(answer["pipeline"]["project_id"], "jobs", job, "artifacts", *words), **query)
    size = None if path else next(f["size"] for f in answer["artifacts"] if f["file_type"] == (file_type or "archive"))
    if target == STDOUT:
        await copy_pieces(pieces, sys.stdout.buffer, size)
        return
    if target.is_dir():
        target = target / (PurePosixPath(path).name or f"{file_type or 'artifacts'}-{job}")
    shown, target = target, target.resolve()
    if target.exists() and not target.is_file():
        # A device or a pipe, which a file must not replace.
        with target.open("wb") as out:
            await copy_pieces(pieces, out, size)
        return
    beside = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        with beside.open("wb") as out:
            count = await copy_pieces(pieces, out, size)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    print(f"{shown}: {size_in_words(count)}")


def _archive(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((file for file in job["artifacts"] if file["file_type"] == "archive"), None)


def _explain_absence(job: Mapping[str, Any], file_type: str = "") -> str:
    from remuda.model.job import FINAL

    what = f"artifact of type {file_type}" if file_type else "artifacts archive"
    if job["status"] not in FINAL:
        return (
            f"job {job['id']} is {job['status']}; artifacts are there when it has ended: remuda job log {job['id']} -f"
        )
    if job.get("erased_at"):
        return f"job {job['id']} has no {what}: it was erased at {local_time(job['erased_at'])}"
    others = ", ".join(file["file_type"] for file in job["artifacts"] if file["file_type"] != "trace")
    return f"job {job['id']} has no {what}" + (f"; it has: {others}" if others else ", or it has expired")
