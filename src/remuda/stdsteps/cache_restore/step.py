"""The step `cache_restore`: unpacks a cache into the working directory. Succeeds even if the cache is missing or
damaged."""

import os
import time
from contextlib import suppress
from pathlib import Path

from remuda.stdsteps.caches.folder_store import DEFAULT_KEY, file_name, is_plain, open_folder
from remuda.stdsteps.caches.object_store import fetch
from remuda.stdsteps.checkout.workdir import make_temporary
from remuda.stdsteps.common.archive import DamagedArchiveError, unpack_zip
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs

Restored = tuple[int, int]
"""The number of files and folders, and the size of the archive in bytes."""


def run(inputs: Inputs) -> None:
    folder, root, key = inputs.text("folder", ""), inputs.text("root", ""), inputs.text("key", DEFAULT_KEY)
    keys, downloads = [key, *inputs.texts("fallback_keys", [])], inputs.texts("downloads", [])
    folders = inputs.texts("folders", [])
    inputs.done()
    if folders and (downloads or len(folders) != len(keys)):
        raise StepError("inputs: folders must have one folder for the key and one for each fallback key")
    if bool(folder) == bool(downloads) or (downloads and len(downloads) != len(keys)):
        raise StepError("inputs: give either folder, or downloads with one URL for the key and each fallback key")
    started = time.monotonic()
    addresses = dict(zip(keys, downloads or folders or [folder] * len(keys), strict=True))
    for candidate, address in addresses.items():
        say(f"Checking cache for {candidate}...")
        restored = _restore_from_storage(address) if downloads else _restore_from_folder(address, root, candidate)
        if restored is not None:
            files, size = restored
            instead = "" if candidate == key else f" in place of {key}"
            say(f"Restored cache {candidate}{instead}: {files} files and folders, {size} bytes packed")
            write_outputs(
                hit=True,
                key=candidate,
                fallback=candidate != key,
                files=files,
                bytes=size,
                seconds=_seconds_since(started),
            )
            return
    say(f"No cache for {key}; the job continues without a cache")
    write_outputs(hit=False, key="", fallback=False, files=0, bytes=0, seconds=_seconds_since(started))


def restore(archive: Path, root: Path, *, is_kept: bool = True) -> Restored | None:
    """Unpack a cache archive into `root`. Returns its number of entries and its size in bytes; None if it does not
    exist or, with a warning, cannot be unpacked. `is_kept`: it is in a local cache folder, and deleted if damaged."""
    try:
        before = archive.lstat()
        if not is_plain(archive):
            raise StepError("it is not a regular file")
        files = unpack_zip(archive, root, whole=True)
    except FileNotFoundError:
        return None
    except DamagedArchiveError as error:
        consequence = "The cache is deleted and can be saved again" if is_kept else "It is not used"
        say(f"WARNING: {error}. {consequence}")
        with suppress(OSError):
            if is_kept and os.path.samestat(before, archive.lstat()):
                archive.unlink()
        return None
    except (StepError, OSError) as error:
        say(f"WARNING: the cache cannot be unpacked and is not used: {error}")
        return None
    with suppress(OSError):
        os.utime(archive)  # for the clean-up, which removes caches that are not used
    return files, before.st_size


def _restore_from_folder(folder: str, root: str, key: str) -> Restored | None:
    try:
        with open_folder(folder, root, is_made=False) as opened:
            return restore(opened / file_name(key), Path.cwd())
    except FileNotFoundError:
        return None
    except OSError as error:
        say(f"WARNING: the cache is not used: {error}")
        return None


def _restore_from_storage(url: str) -> Restored | None:
    with make_temporary("remuda-cache-") as folder:
        archive = Path(folder) / "archive"
        try:
            if fetch(url, archive) is None:
                return None
        except (StepError, OSError) as error:
            say(f"WARNING: the cache is not used: {error}")
            return None
        return restore(archive, Path.cwd(), is_kept=False)


def _seconds_since(moment: float) -> float:
    return round(time.monotonic() - moment, 3)
