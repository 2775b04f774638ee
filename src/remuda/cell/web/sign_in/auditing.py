"""Writes sign-ins, refused sign-ins and sign-outs to the audit log. In its own module, because the forms and the
sign-in with a provider use it."""

from remuda.cell.errors import StoreError
from remuda.cell.values.audit_events import AuditEvent, Detail
from remuda.cell.values.people import User
from remuda.cell.web.visit import Visit
from remuda.telemetry.logs import logger

SIGNED_IN = "signed_in"
REFUSED = "sign_in_refused"
SIGNED_OUT = "signed_out"
_MAX_REASON = 200
_log = logger("cell")


async def record(visit: Visit, action: str, user: User, *, token_id: int = 0, **details: Detail) -> None:
    """Write to the audit log what a user did."""
    await visit.edge.store.settings.add_audit_event(_event(visit, action, user, token_id, details))


async def record_refusal(visit: Visit, method: str, reason: str) -> None:
    """Write a refused sign-in to the audit log, unless there were too many lately. An unavailable store is only
    logged: the answer is the refusal anyway."""
    client = visit.request.client
    if not visit.sign_in.may_record_refusal(client.host if client else ""):
        return
    event = _event(visit, REFUSED, None, 0, {"method": method, "reason": reason[:_MAX_REASON]})
    try:
        await visit.edge.store.settings.add_audit_event(event)
    except StoreError as error:
        _log.warning("cannot write a refused sign-in to the audit log; the entry is lost", error=str(error))


def _event(visit: Visit, action: str, user: User | None, token_id: int, details: dict[str, Detail]) -> AuditEvent:
    client = visit.request.client
    return AuditEvent(
        created_at=visit.edge.clock.now(),
        action=action,
        author_id=user.id if user else 0,
        author_name=user.username if user else "",
        token_id=token_id or None,
        ip_address=client.host if client else "",
        entity_type="User" if user else "Instance",
        entity_id=user.id if user else 0,
        entity_path=user.username if user else "",
        details=details,
        request_id=visit.request.scope.get("request_id", ""),
    )
