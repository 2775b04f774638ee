"""A kernel of Debian's for small virtual machines, fetched once and kept in the folder `build`."""

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

PACKAGE = "linux-image-cloud-amd64"
_CACHE = Path(__file__).parents[3] / "build" / "qemu"


def debian_kernel() -> Path | None:
    """The package, unpacked; None where it cannot be had. Tests that ask at the same time wait for each other."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _fetched(_CACHE / "kernel")


def _fetched(unpacked: Path) -> Path | None:
    if unpacked.exists():
        return unpacked
    asked = ["apt-cache", "depends", PACKAGE]
    told = subprocess.run(asked, check=False, capture_output=True, text=True).stdout if shutil.which(asked[0]) else ""
    found = re.search(r"Depends: (linux-image-\S+)", told)
    if not found or subprocess.run(["apt-get", "download", "-qq", found[1]], check=False, cwd=_CACHE).returncode:
        return None
    new = _CACHE / "kernel.new"
    shutil.rmtree(new, ignore_errors=True)
    subprocess.run(["dpkg-deb", "-x", str(next(_CACHE.glob(f"{found[1]}_*.deb"))), str(new)], check=True)
    new.rename(unpacked)
    return unpacked
