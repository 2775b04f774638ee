"""The step `cache_save`: packs files of the working directory into a cache. A failed save is only a warning."""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from remuda.lib.files import sync_folder
from remuda.stdsteps.caches import object_store
from remuda.stdsteps.caches.folder_store import ASIDE, DEFAULT_KEY, digest_listing, file_name, is_plain, open_folder
from remuda.stdsteps.checkout.workdir import make_temporary
from remuda.stdsteps.common.archive import LARGEST_BYTES, has_comment, write_zip
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.file_selection import select
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs

LEVEL = 1
"""Compression level: fast, because caches are on a local disk or network."""
ABANDONED_SECONDS = 24 * 3600


def run(inputs: Inputs) -> None:
    folder, root, key = inputs.text("folder", ""), inputs.text("root", ""), inputs.text("key", DEFAULT_KEY)
    upload, present = inputs.text("upload", ""), inputs.text("present", "")
    limit = inputs.number("limit_bytes", 0)
    paths, untracked = inputs.texts("paths", []), inputs.flag("untracked", False)
    inputs.done()
    if bool(folder) == bool(upload):
        raise StepError("inputs: give either folder or upload")
    say(f"Saving cache {key}...")
    started = time.monotonic()
    files, size = 0, 0
    try:
        work_dir = Path.cwd()
        names = select(work_dir, paths, untracked=untracked)
        files = len(names)
        if folder:
            with open_folder(folder, root, is_made=True) as opened:
                size = save(opened / file_name(key), work_dir, names)
        else:
            size = _save_to_storage(upload, present, work_dir, names, limit)
    except (StepError, OSError) as error:
        say(f"WARNING: the cache is not saved: {error}")
    write_outputs(saved=bool(size), key=key, files=files, bytes=size, seconds=round(time.monotonic() - started, 3))


def save(archive: Path, root: Path, names: set[str]) -> int:
    """Pack the files `names` (relative to `root`) into a cache archive and return its size in bytes. Writes nothing and
    returns 0 if `names` is empty or the existing archive was made of the same, unchanged files."""
    digest = _digest_if_new(root, names, lambda comment: is_plain(archive) and has_comment(archive, comment))
    if digest is None:
        return 0
    remove_abandoned(archive.parent)
    descriptor, temporary = _new_file(archive.parent)
    try:
        with open(descriptor, "rb"):
            write_zip(temporary or _descriptor_path(descriptor), root, names, comment=digest, level=LEVEL)
            os.fsync(descriptor)
            packed = os.fstat(descriptor).st_size
            if temporary is None:
                temporary = archive.with_name(f"{ASIDE}{token_hex(8)}")
                # Python follows the link only if src_dir_fd is set, although an absolute path does not need it.
                os.link(_descriptor_path(descriptor), temporary, src_dir_fd=descriptor, follow_symlinks=True)
        temporary.rename(archive)
    except BaseException:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(archive.parent)
    say(f"Saved {len(names)} files and folders, {packed} bytes packed")
    return packed


def _new_file(folder: Path) -> tuple[int, Path | None]:
    """Create a temporary file in a folder. Returns its descriptor and path. The path is None if the file system
    supports files without a name (O_TMPFILE), which vanish if the process is killed."""
    with suppress(OSError, AttributeError):
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if _descriptor_path(descriptor).exists():
            return descriptor, None
        os.close(descriptor)
    descriptor, name = tempfile.mkstemp(prefix=ASIDE, dir=folder)
    return descriptor, Path(name)


def _descriptor_path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")


def _save_to_storage(upload: str, present: str, root: Path, names: set[str], limit: int) -> int:
    digest = _digest_if_new(root, names, lambda comment: bool(present) and object_store.has_comment(present, comment))
    if digest is None:
        return 0
    with make_temporary("remuda-cache-") as folder:
        archive = Path(folder) / "archive"
        write_zip(archive, root, names, comment=digest, level=LEVEL)
        packed = archive.stat().st_size
        if limit and packed > limit:
            raise StepError(f"the archive has {packed} bytes, this runner uploads at most {limit}; cache fewer files")
        object_store.send(upload, archive)
    say(f"Uploaded {len(names)} files and folders, {packed} bytes packed")
    return packed


def _digest_if_new(root: Path, names: set[str], is_stored: Callable[[bytes], bool]) -> bytes | None:
    """Return the digest of the files' names, sizes and times; None if there are no files, or `is_stored(digest)` is
    true: no need to save the same cache again. Raises StepError if the files are larger than a cache may be."""
    if not names:
        say("WARNING: no files to save; an earlier cache of this key is kept")
        return None
    digest, size = digest_listing(root, names)
    if is_stored(digest.encode()):
        say("The files have not changed since this cache was saved; not saving it again")
        return None
    if size > LARGEST_BYTES:
        raise StepError(f"its files have {size} bytes, a cache has at most {LARGEST_BYTES}; cache fewer files")
    return digest.encode()


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files of saves that were killed: those older than `ABANDONED_SECONDS`."""
    for path in folder.glob(f"{ASIDE}*"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                path.unlink()
