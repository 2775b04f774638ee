"""The manager's system id, by which a server tells managers with the same runner token apart. It is derived from the
machine id, or random if there is none, and stored in a file, so that it stays the same."""

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
    """Return the manager's system id, and store it in `data`: the stored one, or that which gitlab-runner stored in
    `beside_config`, or else a new one: derived from a file of `machine_ids`, or random."""
    own_id = find_system_id(data, beside_config=beside_config, machine_ids=machine_ids)
    keep_system_id(data, own_id)
    return own_id


def find_system_id(
    data: Path, *, beside_config: Path | None = None, machine_ids: tuple[Path, ...] = MACHINE_IDS
) -> str:
    """Return the id stored in `data`, or that which gitlab-runner stored in `beside_config`, the folder of its
    configuration, or else a new one: derived from a file of `machine_ids`, or random. Stores nothing."""
    for folder in (data, beside_config):
        stored = _read(folder / FILE_NAME) if folder is not None else ""
        if _FORM.fullmatch(stored):
            return stored
    return _derive(machine_ids)


def keep_system_id(data: Path, own_id: str) -> None:
    if _read(data / FILE_NAME) != own_id:
        write_whole(data / FILE_NAME, own_id.encode())


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
