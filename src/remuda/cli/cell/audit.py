"""`remuda cell audit`: shows the audit log, read from the cell's store."""

import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.cell.settings import NO_CELL_OPTIONS, CellOptions
from remuda.cli.options import Output
from remuda.cli.render.listing import print_json
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError
from remuda.localrun.render.words import on_one_line

if TYPE_CHECKING:
    from remuda.cell.values.audit_events import AuditEvent


def audit(
    *,
    action: Annotated[str, Parameter(help="Show only this action, for example project_deleted.")] = "",
    since: Annotated[str, Parameter(help='Show only events since this time ago, for example "2 days".')] = "",
    limit: Annotated[int, Parameter(help="Maximum number of events.")] = 50,
    cell: CellOptions = NO_CELL_OPTIONS,
    output: Output = "text",
) -> None:
    """Show the audit log, the newest event first: who did what, to what, when, and from where. The cell may run.

    Try:

        remuda cell audit --data /var/lib/remuda
        remuda cell audit --data /var/lib/remuda --action variable_changed --since "7 days" --output json
    """
    from remuda.cell.operations.existing_store import read_audit_events
    from remuda.cell.values.audit_events import AuditFilter
    from remuda.pipeline.syntax.durations import parse_duration

    seconds = parse_duration(since) if since else None
    if since and seconds is None:
        raise BadInputError(f'--since {since}: it looks like "2 days" or "3 hours"')
    if limit < 1:
        raise BadInputError(f"--limit {limit}: must be at least 1")
    audit_filter = AuditFilter(action=action, created_after=None if seconds is None else time.time() - seconds)
    events = event_loop.run(read_audit_events(cell.settings(), audit_filter, limit))
    if output == "json":
        print_json(events)
        return
    for event in events:
        print(line(event))


def line(event: "AuditEvent") -> str:
    from remuda.lib.clock import rfc3339

    who = event.author_name or "somebody unknown"
    whose = f"{event.entity_type} {event.entity_path or event.entity_id or ''}".strip()
    where = f" from {event.ip_address}" if event.ip_address else ""
    what = " ".join(part for part in (event.action, event.target) if part)
    return on_one_line(f"{rfc3339(event.created_at)}  {who}{where}: {what} ({whose})")
