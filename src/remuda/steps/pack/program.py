"""This program itself: in which of its three forms it runs, and how to start another part of it.

Installed beside the rest of Remuda, packed into one zip for a Python that is there, or frozen into one executable.
The agent starts parts of itself (a standard step, `delegate`), and copies itself to other machines; both ask here.
Pure, but for looking at where this process came from.
"""

import hashlib
import os
import sys
from enum import StrEnum
from pathlib import Path

PROTOCOL = 1
"""The version of the agent's gRPC service that this program speaks."""
IDLE_EXIT_SECONDS = 60.0
"""How long an agent that a manager or a plugin has started stays without a job and without anybody who is connected;
whoever needs one later starts another. One with jobs that nobody has fetched stays as long as those want it."""


class Form(StrEnum):
    """What this program is."""

    INSTALLED = "installed"
    """Modules in a Python environment."""
    ZIPAPP = "zipapp"
    """One zip; needs Python 3.11 or newer."""
    FROZEN = "frozen"
    """One executable; needs nothing."""


class _Loader:
    """What the loader of a frozen program said."""

    file = ""


_AUTHORITIES = (
    "etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "etc/ssl/ca-bundle.pem",  # SUSE
    "etc/ssl/cert.pem",
)
_OF_LOADER = ("STATICX_", "_PYI_", "_MEIPASS")


def leave_loader() -> None:
    """Take out of the environment what the loaders of a frozen program have put there for this process alone.

    They unpack the program anew for every start, and have it use the libraries that they bring; what a job runs must
    not, and another part of this program must not take this process's copy, which ends with it, for its own.
    """
    if form() is not Form.FROZEN:
        return
    _Loader.file = os.environ.get("STATICX_PROG_PATH", "")
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    for name in [name for name in os.environ if name.startswith(_OF_LOADER)]:
        del os.environ[name]


def certificates(root: Path = Path("/")) -> dict[str, str]:
    """Where this machine has the certificates of authorities, as a variable for those who do not know by themselves.

    A frozen program looks where the machine has them that it was made on; each kind of system has another place.
    """
    if form() is not Form.FROZEN or "SSL_CERT_FILE" in os.environ:
        return {}
    found = next((name for name in _AUTHORITIES if (root / name).is_file()), None)
    return {"SSL_CERT_FILE": f"/{found}"} if found else {}


def form() -> Form:
    if getattr(sys, "frozen", False):
        return Form.FROZEN
    return Form.ZIPAPP if _zip_path().is_file() else Form.INSTALLED


def own_file() -> Path | None:
    """The one file this program is; None where it is many."""
    match form():
        case Form.FROZEN:
            return Path(_Loader.file or sys.executable)
        case Form.ZIPAPP:
            return _zip_path()
        case Form.INSTALLED:
            return None


def own_command(*words: str) -> list[str]:
    """How to start this program with these words; `step NAME` is a standard step in each of its forms."""
    match form():
        case Form.FROZEN:
            return [str(own_file()), *words]
        case Form.ZIPAPP:
            return [sys.executable, "-I", str(own_file()), *words]
        case Form.INSTALLED if words[:1] == ("step",):
            return [sys.executable, "-I", "-m", "remuda.stdsteps", *words[1:]]
        case Form.INSTALLED if words[:1] == ("enclose",):
            return [sys.executable, "-I", "-m", "remuda.steps.process.enclosure_entry", *words[1:]]
        case Form.INSTALLED:
            return [sys.executable, "-I", "-m", "remuda.steps", *words]


def digest_of(content: bytes) -> str:
    """SHA-256 of a program, but for the line that names its interpreter, which differs from machine to machine."""
    return hashlib.sha256(content.partition(b"\n")[2] if content.startswith(b"#!") else content).hexdigest()


def _zip_path() -> Path:
    return Path(__file__).parents[3]
