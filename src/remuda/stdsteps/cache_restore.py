"""Brings a cache into the working directory, if there is one. A job never fails for want of a cache."""

import os
from contextlib import suppress
from pathlib import Path

from remuda.stdsteps.archive import DamagedArchiveError, unpack_zip
from remuda.stdsteps.caches import DEFAULT_KEY, file_name
from remuda.stdsteps.errors import StepError
from remuda.stdsteps.inputs import Inputs
from remuda.stdsteps.outputs import tell
from remuda.stdsteps.speech import say


def run(inputs: Inputs) -> None:
    """The step."""
    folder, key = Path(inputs.text("folder")), inputs.text("key", DEFAULT_KEY)
    fallback_keys = inputs.texts("fallback_keys", [])
    inputs.done()
    for number, wanted in enumerate(dict.fromkeys([key, *fallback_keys])):
        say(f"Checking cache for {wanted}...")
        archive = folder / file_name(wanted)
        found = restore(archive, Path.cwd())
        if found is not None:
            files, size = found
            instead = f" in place of {key}" if number else ""
            say(f"Restored cache {wanted}{instead}: {files} files and folders, {size} bytes packed")
            tell(hit=True, key=wanted, fallback=bool(number), files=files, bytes=size)
            return
    say(f"No cache for {key}; the job goes on without")
    tell(hit=False, key="", fallback=False, files=0, bytes=0)


def restore(archive: Path, root: Path) -> tuple[int, int] | None:
    """Unpack one archive: how many files and bytes. None where there is none that can be used."""
    try:
        before = archive.stat()
        files = unpack_zip(archive, root, whole=True)
    except FileNotFoundError:
        return None
    except DamagedArchiveError as error:
        say(f"WARNING: {error}. This cache is removed, so that the next one takes its place")
        with suppress(OSError):
            if os.path.samestat(before, archive.stat()):
                archive.unlink()
        return None
    except (StepError, OSError) as error:
        say(f"WARNING: the cache cannot be unpacked and is not used: {error}")
        return None
    with suppress(OSError):
        os.utime(archive)  # whoever tidies up can tell caches that are used from those that are not
    return files, before.st_size
