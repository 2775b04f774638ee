"""`remuda cell audit`: the audit log, read from the store; and how commands write their own actions into it.

Nothing is decided here but how it is shown. What is in the log is decided in `remuda.cell.http.edge.auditing`, and by
the commands that change something past the API.
"""

import asyncio
import getpass
import json
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.cell.settings import Config, Database, print_warnings, settings_from
from remuda.cli.exits import BadInputError
from remuda.cli.options import Data, Output
from remuda.cli.render.listing import on_one_line

if TYPE_CHECKING:
    from remuda.cell.operations.audit import AuditEvent, AuditFilter
    from remuda.cell.settings import CellSettings
    from remuda.cell.store.ports import Store


def audit(
    *,
    action: Annotated[str, Parameter(help="Only this action, for example project_deleted.")] = "",
    since: Annotated[str, Parameter(help='Only events of the last so much time: "2 days".')] = "",
    limit: Annotated[int, Parameter(help="How many events at most, the newest first.")] = 50,
    data: Data = None,
    database: Database = None,
    config: Config = None,
    output: Output = "text",
) -> None:
    """Show the audit log: who did what, to what, when, from where. The cell may run meanwhile.

    Try:

        remuda cell audit --data /var/lib/remuda
        remuda cell audit --data /var/lib/remuda --action variable_changed --since "7 days" --output json
    """
    from remuda.cell.operations.audit import AuditFilter
    from remuda.pipeline.syntax.durations import parse_duration

    seconds = parse_duration(since) if since else None
    if since and seconds is None:
        raise BadInputError(f'--since {since}: it looks like "2 days" or "3 hours"')
    if limit < 1:
        raise BadInputError(f"--limit {limit}: at least 1")
    wanted = AuditFilter(action=action, created_after=None if seconds is None else time.time() - seconds)
    print_warnings(os.environ)
    settings = settings_from(os.environ, data=data, config=config, database=database)
    events = asyncio.run(_events(settings, wanted, limit))
    if output == "json":
        import msgspec

        print(json.dumps([msgspec.to_builtins(event) for event in events], indent=2))
        return
    for event in events:
        print(line(event))


def line(event: "AuditEvent") -> str:
    """An event for people."""
    from remuda.lib.clock import rfc3339

    who = event.author_name or "somebody unknown"
    whose = f"{event.entity_type} {event.entity_path or event.entity_id or ''}".strip()
    where = f" from {event.ip_address}" if event.ip_address else ""
    what = " ".join(part for part in (event.action, event.target) if part)
    return on_one_line(f"{rfc3339(event.created_at)}  {who}{where}: {what} ({whose})")


async def _events(settings: "CellSettings", wanted: "AuditFilter", limit: int) -> Sequence["AuditEvent"]:
    import msgspec

    from remuda.cell.store import migrations, tables
    from remuda.cell.store.open import open_store
    from remuda.cell.values import Page

    async with tables.read(settings) as found:
        if found.revision != migrations.HEAD:
            raise BadInputError(
                f"the store has schema version {found.revision}, not {migrations.HEAD}; "
                "`remuda cell migrate` brings it up to date"
            )
    store, _ = await open_store(msgspec.structs.replace(settings, cell_id=found.cell_id))
    try:
        return (await store.settings.list_audit_events(Page(size=limit), wanted))[0]
    finally:
        await store.close()


async def record(store: "Store", action: str, target: str = "") -> None:
    """Write into the log what a command has done."""
    from remuda.cell.operations.audit import AuditEvent

    who = f"command of {getpass.getuser()}"
    await store.settings.add_audit_event(
        AuditEvent(created_at=time.time(), action=action, author_name=who, target=target)
    )
