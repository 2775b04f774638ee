"""Tells in which of three forms this program runs, and how to start another part of it.

It is installed beside the rest of Remuda, packed into one zip for an existing Python, or frozen into one executable."""

import hashlib
import os
import sys
from enum import StrEnum
from pathlib import Path

PROTOCOL = 1
"""Version of the agent's gRPC service."""
IDLE_EXIT_SECONDS = 60.0
"""How long an agent that a manager or a plugin has started stays without connections, running jobs, and ended jobs that
still wait for their client."""


class Form(StrEnum):
    INSTALLED = "installed"
    """Modules in a Python environment."""
    ZIPAPP = "zipapp"
    """One zip; needs Python 3.11 or newer."""
    FROZEN = "frozen"
    """One executable; needs nothing."""


class _Loader:
    file = ""


_AUTHORITIES = (
    "etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "etc/ssl/ca-bundle.pem",  # SUSE
    "etc/ssl/cert.pem",
)
_OF_LOADER = ("STATICX_", "_PYI_", "_MEIPASS")


def leave_loader() -> None:
    """Remove the variables by which a frozen program (one executable) finds its own libraries, and restore the original
    LD_LIBRARY_PATH. Programs of a job and other processes of the agent inherit the environment and must not use these
    libraries, which are deleted when this process ends."""
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
    """Return {"SSL_CERT_FILE": path} for a frozen program (one executable), which else looks for CA certificates where
    its build had them. Empty if the variable is set, no certificates are found, or the program is not frozen."""
    if form() is not Form.FROZEN or "SSL_CERT_FILE" in os.environ:
        return {}
    bundle = next((name for name in _AUTHORITIES if (root / name).is_file()), None)
    return {"SSL_CERT_FILE": f"/{bundle}"} if bundle else {}


def form() -> Form:
    if getattr(sys, "frozen", False):
        return Form.FROZEN
    return Form.ZIPAPP if _zip_path().is_file() else Form.INSTALLED


def own_file() -> Path | None:
    """Return the path of this program if it is one file (zip or frozen executable), else None."""
    match form():
        case Form.FROZEN:
            return Path(_Loader.file or sys.executable)
        case Form.ZIPAPP:
            return _zip_path()
        case Form.INSTALLED:
            return None


def own_command(*words: str) -> list[str]:
    """Return the command line that starts this program with arguments; `step NAME` runs a standard step."""
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
    """Return the SHA-256 of a program without its `#!` line, which differs from machine to machine."""
    return hashlib.sha256(content.partition(b"\n")[2] if content.startswith(b"#!") else content).hexdigest()


def _zip_path() -> Path:
    return Path(__file__).parents[3]
