"""Names backups that are made again and again into one folder, and removes the oldest of them.

Only archives with such a name are removed, and only after a newer one is complete. A separate module, because
`backups` writes one archive and knows nothing of its neighbours."""

import re
from datetime import UTC, datetime
from pathlib import Path

_NAME = re.compile(r"cell-\d{8}T\d{6}Z\.tar\.gz")


def next_backup(folder: Path, now: float) -> Path:
    """Return where to write a backup: a file named by the time. If it exists, because a backup was made in the same
    second, by a later second."""
    while (path := folder / f"cell-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}.tar.gz").exists():
        now += 1
    return path


def remove_old_backups(folder: Path, keep: int, *, newest: Path) -> list[Path]:
    """Remove all but the newest `keep` backups of the folder that `next_backup` named. Returns those removed. `newest`:
    the one that was just made; names after its own are from a clock that was ahead, and count as the oldest."""
    backups = sorted(
        (path for path in folder.iterdir() if _NAME.fullmatch(path.name)),
        key=lambda path: (path.name <= newest.name, path.name),
    )
    removed = backups[: max(len(backups) - keep, 0)]
    for path in removed:
        path.unlink()
    return removed
