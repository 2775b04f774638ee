"""The manager's own id on its server: one runner token with several ids is one runner with several managers.

Derived from the machine's id where it has one, random otherwise; kept in a file, so that it stays the same.
"""

import hashlib
import hmac
import re
import secrets
import string
from pathlib import Path

from remuda.lib.files import write_whole

FILE_NAME = ".runner_system_id"
MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_FORM = re.compile(r"[sr]_[0-9a-zA-Z]{12}")


def system_id(data: Path, *, beside_config: Path | None = None, machine_ids: tuple[Path, ...] = MACHINE_IDS) -> str:
    """The id of the manager with this data folder, which is kept there."""
    known = find_system_id(data, beside_config=beside_config, machine_ids=machine_ids)
    keep_system_id(data, known)
    return known


def find_system_id(
    data: Path, *, beside_config: Path | None = None, machine_ids: tuple[Path, ...] = MACHINE_IDS
) -> str:
    """The same without keeping it; one that gitlab-runner left beside the configuration counts."""
    for folder in (data, beside_config):
        known = _read(folder / FILE_NAME) if folder is not None else ""
        if _FORM.fullmatch(known):
            return known
    return _derive(machine_ids)


def keep_system_id(data: Path, known: str) -> None:
    """Let later starts find it."""
    if _read(data / FILE_NAME) != known:
        write_whole(data / FILE_NAME, known.encode())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _derive(machine_ids: tuple[Path, ...]) -> str:
    for path in machine_ids:
        if machine := _read(path):
            return "s_" + hmac.new(machine.encode(), b"gitlab-runner", hashlib.sha256).hexdigest()[:12]
    alphabet = string.ascii_letters + string.digits
    return "r_" + "".join(secrets.choice(alphabet) for _ in range(12))
