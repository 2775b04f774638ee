"""Packs files of the working directory and sends them to the server.

The archive is built on disk and streamed from there, so neither its size nor a retry costs memory. Which files belong
to it is decided by `select`; only what lies in the working directory can.
"""

import glob
import gzip
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlencode

from remuda.stdsteps.archive import write_zip
from remuda.stdsteps.errors import StepError
from remuda.stdsteps.inputs import Inputs
from remuda.stdsteps.speech import say
from remuda.stdsteps.transfer import HttpError, request, with_retries

FORMATS = ("zip", "gzip", "raw")
SUFFIXES = {"zip": ".zip", "gzip": ".gz", "raw": ""}
WHEN = ("always", "on_success", "on_failure")
BOUNDARY = "remuda-artifacts-7d1c5b0e8f2a4963"
_CHUNK = 256 * 1024


def run(inputs: Inputs) -> None:
    """The step."""
    api_url, job_id, token = inputs.text("api_url").rstrip("/"), inputs.number("job_id", 0), inputs.text("token")
    paths, exclude = inputs.texts("paths", []), inputs.texts("exclude", [])
    untracked, name = inputs.flag("untracked", False), inputs.text("name", "")
    when = inputs.one_of("when", WHEN)
    query = {
        "artifact_format": inputs.one_of("artifact_format", FORMATS),
        "artifact_type": inputs.text("artifact_type", "archive"),
        "expire_in": inputs.text("expire_in", ""),
    }
    inputs.done()
    if not is_wanted(when, os.environ.get("CI_JOB_STATUS", "running")):
        return
    root = Path.cwd()
    names = select(root, paths, exclude, untracked=untracked)
    if not names:
        say("WARNING: No files to upload")
        return
    with tempfile.TemporaryDirectory(prefix="remuda-artifacts-") as folder:
        archive = Path(folder) / "artifacts"
        build(archive, root, names, query["artifact_format"])
        suffix = SUFFIXES[query["artifact_format"]]
        filename = re.sub(r'[/\\"\r\n]', "_", name or "artifacts") + suffix
        url = f"{api_url}/jobs/{job_id}/artifacts?{urlencode({key: value for key, value in query.items() if value})}"
        say(f"Uploading artifacts as {query['artifact_type']} to server, {archive.stat().st_size} bytes...")
        with_retries("uploading artifacts", lambda _: upload(url, token, archive, filename))
    say("Uploaded artifacts")


def is_wanted(when: str, job_status: str) -> bool:
    """Whether the job's state asks for this upload."""
    good = job_status in ("running", "success")
    return when == "always" or (when == "on_success") == good


def select(root: Path, paths: list[str], exclude: list[str], *, untracked: bool) -> set[str]:
    """Names relative to the root: everything the patterns match, whole folders with their contents."""
    excluded = [pattern_regex(pattern) for pattern in exclude]

    def is_kept(name: str) -> bool:
        return not (name == ".git" or name.startswith(".git/") or any(regex.fullmatch(name) for regex in excluded))

    names: set[str] = set()
    for pattern in paths:
        found = set(filter(is_kept, _matching(root, pattern)))
        if found:
            say(f"{pattern}: found {len(found)} matching artifact files and directories")
        else:
            say(f"WARNING: {pattern}: no matching files. Ensure that the path is relative to the working directory")
        names |= found
    if untracked:
        found = set(filter(is_kept, _untracked(root)))
        say(f"untracked: found {len(found)} files")
        names |= found
    unreadable = {name for name in names if not _is_text(name)}
    if unreadable:
        say(f"WARNING: {len(unreadable)} files have names that are no UTF-8 text and are left out")
    return names - unreadable


def pattern_regex(pattern: str) -> re.Pattern[str]:
    """A glob with `**` for any number of folders; it also covers everything inside a folder it matches."""
    out, at = "", 0
    pattern = pattern.strip("/").removesuffix("/**")
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "[" and (close := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : close].replace("\\", "\\\\")
            out, at = out + "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]", close + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    return re.compile(out + "(?:/.*)?", re.DOTALL)


def build(output: Path, root: Path, names: Iterable[str], form: str) -> None:
    """The file that is sent."""
    if form == "zip":
        write_zip(output, root, names)
        return
    files = [root / name for name in sorted(names) if (root / name).is_file()]
    if form == "raw":
        if len(files) != 1:
            raise StepError(f"artifact format raw takes exactly one file, not {len(files)}")
        shutil.copyfile(files[0], output)
        return
    with output.open("wb") as packed:
        for path in files:
            moment = int(path.stat().st_mtime)
            with gzip.GzipFile(path.name, "wb", fileobj=packed, mtime=moment) as part, path.open("rb") as source:
                shutil.copyfileobj(source, part, _CHUNK)


def upload(url: str, token: str, archive: Path, filename: str) -> None:
    """Send a file as the one part of a form, in chunks."""

    def body() -> Iterator[bytes]:
        yield (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        with archive.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
        yield f"\r\n--{BOUNDARY}--\r\n".encode()

    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Transfer-Encoding": "chunked"}
    try:
        request("POST", url, token=token, body=body, headers=headers).close()
    except HttpError as error:
        if error.status == 413:
            size = archive.stat().st_size
            raise StepError(
                f"the artifacts are too large for this server ({size} bytes); choose fewer files, or raise its limit"
            ) from None
        raise


def _matching(root: Path, pattern: str) -> Iterator[str]:
    for match in glob.iglob(os.path.join(glob.escape(str(root)), pattern), recursive=True, include_hidden=True):
        path = Path(os.path.normpath(match))
        if not path.is_relative_to(root):
            say(f"WARNING: {pattern}: leads out of the working directory and is left out")
            return
        if path != root:
            yield path.relative_to(root).as_posix()
        if path.is_dir() and not path.is_symlink():
            for parent, folders, files in os.walk(path):
                for name in (*folders, *files):
                    yield (Path(parent) / name).relative_to(root).as_posix()


def _untracked(root: Path) -> Iterator[str]:
    done = subprocess.run(
        ["git", "ls-files", "-o", "-z"], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        raise StepError(f"git cannot list untracked files: {done.stderr.decode(errors='replace').strip()}")
    for name in done.stdout.split(b"\0"):
        if name:
            yield os.fsdecode(name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
