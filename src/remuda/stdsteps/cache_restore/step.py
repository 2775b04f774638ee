"""Brings a cache into the working directory, if there is one. A job never fails for want of a cache."""

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
from remuda.stdsteps.common.outputs import tell

Found = tuple[int, int]
"""Files and folders, bytes of the archive."""


def run(inputs: Inputs) -> None:
    folder, root, key = inputs.text("folder", ""), inputs.text("root", ""), inputs.text("key", DEFAULT_KEY)
    keys, downloads = [key, *inputs.texts("fallback_keys", [])], inputs.texts("downloads", [])
    folders = inputs.texts("folders", [])
    inputs.done()
    if folders and (downloads or len(folders) != len(keys)):
        raise StepError("inputs: folders: one for the key and one for each fallback key")
    if bool(folder) == bool(downloads) or (downloads and len(downloads) != len(keys)):
        raise StepError("inputs: either a folder, or downloads with an address for the key and each fallback key")
    begun = time.monotonic()
    addresses = dict(zip(keys, downloads or folders or [folder] * len(keys), strict=True))
    for wanted, address in addresses.items():
        say(f"Checking cache for {wanted}...")
        found = _from_objects(address) if downloads else _from_folder(address, root, wanted)
        if found is not None:
            files, size = found
            instead = "" if wanted == key else f" in place of {key}"
            say(f"Restored cache {wanted}{instead}: {files} files and folders, {size} bytes packed")
            tell(hit=True, key=wanted, fallback=wanted != key, files=files, bytes=size, seconds=_since(begun))
            return
    say(f"No cache for {key}; the job goes on without")
    tell(hit=False, key="", fallback=False, files=0, bytes=0, seconds=_since(begun))


def restore(archive: Path, root: Path, *, is_kept: bool = True) -> Found | None:
    """Unpack one archive. None where there is none that can be used; a damaged one that `is_kept` here is removed."""
    try:
        before = archive.lstat()
        if not is_plain(archive):
            raise StepError("it is no plain file")
        files = unpack_zip(archive, root, whole=True)
    except FileNotFoundError:
        return None
    except DamagedArchiveError as error:
        what_follows = "This cache is removed, so that the next one takes its place" if is_kept else "It is not used"
        say(f"WARNING: {error}. {what_follows}")
        with suppress(OSError):
            if is_kept and os.path.samestat(before, archive.lstat()):
                archive.unlink()
        return None
    except (StepError, OSError) as error:
        say(f"WARNING: the cache cannot be unpacked and is not used: {error}")
        return None
    with suppress(OSError):
        os.utime(archive)  # whoever tidies up can tell caches that are used from those that are not
    return files, before.st_size


def _from_folder(folder: str, root: str, key: str) -> Found | None:
    try:
        with open_folder(folder, root, is_made=False) as opened:
            return restore(opened / file_name(key), Path.cwd())
    except FileNotFoundError:
        return None
    except OSError as error:
        say(f"WARNING: the cache is not used: {error}")
        return None


def _from_objects(url: str) -> Found | None:
    with make_temporary("remuda-cache-") as folder:
        archive = Path(folder) / "archive"
        try:
            if fetch(url, archive) is None:
                return None
        except (StepError, OSError) as error:
            say(f"WARNING: the cache is not used: {error}")
            return None
        return restore(archive, Path.cwd(), is_kept=False)


def _since(moment: float) -> float:
    return round(time.monotonic() - moment, 3)
