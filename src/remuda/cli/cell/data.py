"""`remuda cell migrate|check|backup|restore`: maintain the data of a cell. `remuda.cell.operations` does the work."""

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.cell.settings import NO_CELL_OPTIONS, CellOptions
from remuda.cli.options import Output
from remuda.cli.render.listing import print_json
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError, Exit

if TYPE_CHECKING:
    from remuda.cell.operations.integrity_checks import Report


def migrate(
    *,
    cell: CellOptions = NO_CELL_OPTIONS,
    cell_id: Annotated[int | None, Parameter(help="Number of the cell, for an empty database [default: 1].")] = None,
) -> None:
    """Migrate the tables of a cell to this release.

    Every start of a cell does this. Run it separately to learn how long it takes. Make a backup first: an older release
    cannot use tables that a newer one has migrated. A SQLite file must not be in use.

    Try:

        remuda cell migrate --data /var/lib/remuda
        remuda cell migrate --database postgresql://remuda@db.example/remuda
    """
    from remuda.cell.operations.existing_store import migrate as migrate_store

    print(f"schema version {event_loop.run(migrate_store(cell.settings(cell_id=cell_id)))}")


def check(*, cell: CellOptions = NO_CELL_OPTIONS, output: Output = "text") -> int:
    """Check that the data of a cell is complete and consistent.

    Prints where each setting that is not the default comes from, the version of the tables, the number of rows, broken
    references, and missing encryption keys, repositories, artifacts and logs. Changes nothing. Exit code 1 if there
    is a problem.

    Try:

        remuda cell check --data /var/lib/remuda
        remuda cell check --data /var/lib/remuda --output json
    """
    import msgspec

    from remuda.cell.operations.integrity_checks import check_cell

    settings, sources = cell.settings_and_sources()
    report = event_loop.run(check_cell(settings))
    if output == "json":
        print_json(msgspec.to_builtins(report) | {"settings": sources})
    else:
        for name, source in sorted(sources.items()):
            print(f"setting {name}: {source}")
        _print(report)
    return Exit.FAILURE if report.problems else Exit.SUCCESS


def backup(
    to: Annotated[Path, Parameter(help="A new folder, or a file NAME.tar, NAME.tar.gz or NAME.tgz.")],
    *,
    keep: Annotated[
        int | None,
        Parameter(
            help="TO is a folder for many backups: write an archive with the time in its name, and keep only so many."
        ),
    ] = None,
    with_keys: Annotated[
        bool, Parameter(help="Include the encryption keys: whoever has the backup can read all secrets.", negative="")
    ] = False,
    cell: CellOptions = NO_CELL_OPTIONS,
) -> None:
    """Write all data of a cell except cell.toml to a folder or an archive. The cell may run.

    Only the owner can read the backup. All rows of the database are from the same moment. A backup that fails leaves
    no files behind. Objects in a bucket are not copied. Secrets are encrypted. Without --with-keys the backup has no
    encryption keys, and the command prints which keys a restored cell needs: keep a copy of the key file elsewhere,
    because a restored cell does not start without it.

    Try:

        remuda cell backup /backups/monday --data /var/lib/remuda
        remuda cell backup /backups/monday --with-keys --data /var/lib/remuda
        remuda cell backup /backups/monday.tar.gz --data /var/lib/remuda
        remuda cell backup /backups --keep 14 --data /var/lib/remuda
    """
    from remuda.cell.operations.backup_rotation import next_backup, remove_old_backups
    from remuda.cell.operations.backups import back_up
    from remuda.cell.operations.encryption_keys import encryption_key_place

    if keep is not None and keep < 1:
        raise BadInputError(f"--keep {keep}: must be at least 1")
    settings, now = cell.settings(), time.time()
    folder, to = to, next_backup(to, now) if keep is not None else to
    manifest = event_loop.run(back_up(settings, to.absolute(), now=now, with_keys=with_keys))
    print(f"cell {manifest.cell_id} is backed up to {to}")
    if left_out := [key for key in manifest.keys_wanted if key not in manifest.keys]:
        where = encryption_key_place(settings)
        print(f"the backup is encrypted and without the keys ({', '.join(left_out)}): keep a copy of {where} elsewhere")
    if manifest.blobs:
        print(f"its artifacts and archived logs are in {manifest.blobs} and are not part of the backup")
    for path in remove_old_backups(folder, keep, newest=to) if keep is not None else ():
        print(f"removed the old backup {path}")


def restore(
    source: Annotated[Path, Parameter(help="A folder or file that `remuda cell backup` wrote.")],
    *,
    cell: CellOptions = NO_CELL_OPTIONS,
) -> None:
    """Create a cell from a backup, in an empty data folder and, with --database, an empty database.

    A backup can be restored to either kind of database, so this also moves a cell from SQLite to PostgreSQL. The folder
    may already contain a cell.toml and keys. If a restore is interrupted, run it again; until then the folder
    cannot be served.

    Try:

        remuda cell restore /backups/monday --data /var/lib/remuda
        remuda cell restore /backups/monday --data ./new --database postgresql://remuda@db.example/remuda
    """
    from remuda.cell.operations.backups import missing_keys_advice
    from remuda.cell.operations.backups import restore as restore_cell

    settings = cell.settings()
    manifest = event_loop.run(restore_cell(source.absolute(), settings))
    print(f"cell {manifest.cell_id} is restored; start it with: remuda cell serve --data {settings.data}", end="")
    print(f" --database {_without_password(cell.database)}" if cell.database else "", end="")
    print(f" --cell-id {manifest.cell_id}" if manifest.cell_id != 1 else "")
    if advice := missing_keys_advice(manifest, settings):
        print(advice, file=sys.stderr)


def _without_password(database: str) -> str:
    user, _, place = database.partition("://")[2].rpartition("@")
    name, colon, _ = user.partition(":")
    return shlex.quote(f"postgresql://{name}:PASSWORD@{place}") if colon else shlex.quote(database)


def _print(report: "Report") -> None:
    print(f"cell {report.cell_id}, schema version {report.revision}")
    for name, count in report.counts.items():
        print(f"{count:>10}  {name}")
    for problem in report.problems:
        print(f"problem: {problem}")
    print("there are problems" if report.problems else "no problems found")
