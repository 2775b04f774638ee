"""Downloads a Debian kernel for small virtual machines once, into the folder `build`."""

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

PACKAGE = "linux-image-cloud-amd64"
_CACHE = Path(__file__).parents[3] / "build" / "qemu"


def debian_kernel() -> Path | None:
    """Folder of the unpacked package; None if it cannot be downloaded. A lock serializes concurrent tests."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _download(_CACHE / "kernel")


def _download(unpacked: Path) -> Path | None:
    if unpacked.exists():
        return unpacked
    if shutil.which("apt-cache") is None:
        return None
    command = ["apt-cache", "depends", PACKAGE]
    output = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    package = re.search(r"Depends: (linux-image-\S+)", output)
    if not package or subprocess.run(["apt-get", "download", "-qq", package[1]], check=False, cwd=_CACHE).returncode:
        return None
    new = _CACHE / "kernel.new"
    shutil.rmtree(new, ignore_errors=True)
    subprocess.run(["dpkg-deb", "-x", str(next(_CACHE.glob(f"{package[1]}_*.deb"))), str(new)], check=True)
    new.rename(unpacked)
    return unpacked
