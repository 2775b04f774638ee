"""Packs files of the working directory into a cache. What goes wrong is a warning: the job's own work is done."""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from remuda.lib.files import sync_folder
from remuda.stdsteps.archive import LARGEST_BYTES, has_comment, write_zip
from remuda.stdsteps.caches import ASIDE, DEFAULT_KEY, file_name, listing_of
from remuda.stdsteps.errors import StepError
from remuda.stdsteps.inputs import Inputs
from remuda.stdsteps.outputs import tell
from remuda.stdsteps.selection import select
from remuda.stdsteps.speech import say

LEVEL = 1
"""Of compression. A cache lies on a disk nearby: time is dearer than room."""
ABANDONED_SECONDS = 24 * 3600


def run(inputs: Inputs) -> None:
    """The step."""
    folder, key = Path(inputs.text("folder")), inputs.text("key", DEFAULT_KEY)
    paths, untracked = inputs.texts("paths", []), inputs.flag("untracked", False)
    inputs.done()
    say(f"Saving cache {key}...")
    files, size = 0, 0
    try:
        root = Path.cwd()
        names = select(root, paths, untracked=untracked)
        files = len(names)
        size = save(folder / file_name(key), root, names)
    except (StepError, OSError) as error:
        say(f"WARNING: the cache is not saved: {error}")
    tell(saved=bool(size), key=key, files=files, bytes=size)


def save(archive: Path, root: Path, names: set[str]) -> int:
    """Write the archive; its size. 0 where there is nothing to write, or nothing new."""
    if not names:
        say("WARNING: no files to save; an earlier cache of this key stays")
        return 0
    digest, size = listing_of(root, names)
    if has_comment(archive, digest.encode()):
        say("Nothing has changed since this cache was saved; it stays as it is")
        return 0
    if size > LARGEST_BYTES:
        raise StepError(f"its files have {size} bytes, a cache has at most {LARGEST_BYTES}; name fewer")
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_abandoned(archive.parent)
    descriptor, name = tempfile.mkstemp(prefix=ASIDE, dir=archive.parent)
    aside = Path(name)
    try:
        with open(descriptor, "rb") as file:
            write_zip(aside, root, names, comment=digest.encode(), level=LEVEL)
            os.fsync(file.fileno())
        packed = aside.stat().st_size
        aside.rename(archive)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(archive.parent)
    say(f"Saved {len(names)} files and folders, {packed} bytes packed")
    return packed


def remove_abandoned(folder: Path) -> None:
    """What savers left that were killed; those that still write are younger."""
    for path in folder.glob(f"{ASIDE}*"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                path.unlink()
