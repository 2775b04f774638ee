"""Decides about deliveries of webhooks: which addresses are allowed, what is sent, and what follows from an answer.

A failed delivery is sent again, later each time, and given up after `MAX_TRIES`. A hook whose deliveries keep failing
is paused, so that a dead address costs little; a success ends the pause."""

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from remuda.cell.core.pipelines.webhook_payloads import SENT
from remuda.cell.values.hooks import Hook, HookDelivery

MAX_TRIES = 8
FIRST_RETRY_SECONDS = 10.0
MAX_RETRY_SECONDS = 3600.0
PAUSE_AFTER = 4
"""Failures in a row after which a hook is paused."""
MAX_PAUSE_SECONDS = 24 * 3600.0
MAX_ANSWER = 4096
"""Characters of an answer that are stored."""
_VARIABLE = re.compile(r"\{([A-Za-z0-9_.-]+)\}", re.ASCII)
_FIELD = re.compile(r"\{\{\s*([A-Za-z0-9_.]+)\s*\}\}", re.ASCII)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a try to deliver came to. `status` is 0 if there was no answer."""

    status: int = 0
    answer: str = ""
    error: str = ""
    seconds: float = 0.0

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def is_public_address(text: str) -> bool:
    """Return whether an IP address is one of the public internet: not loopback, private, link-local, multicast or
    reserved, also if such an IPv4 address is embedded in an IPv6 one."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if embedded is None and address in ipaddress.ip_network("64:ff9b::/96"):
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return is_public_address(str(embedded))
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def address_of(hook: Hook) -> str:
    """Return the address of a hook with its URL variables replaced."""
    variables = hook.secrets.get("variables", {})
    return _VARIABLE.sub(lambda match: str(variables.get(match[1], match[0])), hook.url)


def hide_variables(hook: Hook, outcome: Outcome) -> Outcome:
    """Return an outcome whose error shows the names of the hook's URL variables instead of their values, in any case
    of letters: an error names the server, and a variable may be a part of that."""
    error = outcome.error
    for name, value in sorted(hook.secrets.get("variables", {}).items(), key=lambda pair: -len(str(pair[1]))):
        if value:
            error = re.sub(re.escape(str(value)), f"{{{name}}}", error, flags=re.IGNORECASE)
    return replace(outcome, error=error)


def drop_old_secrets(old: Hook, new: Hook, given: Collection[str]) -> Hook:
    """Return `new`, a hook after a change, without the secrets of `old` that belong to another receiver, so that nobody
    reads them with an address of their own: all secrets if `url` has changed, the token and the headers if a variable
    has changed the server. `given` names the secrets that the same change has set; they stay."""
    if new.url != old.url:
        dropped = {"token", "headers", "variables"} - set(given)
    elif _server_of(new) != _server_of(old):
        dropped = {"token", "headers"} - set(given)
    else:
        return new
    return replace(new, secrets={name: value for name, value in new.secrets.items() if name not in dropped})


def _server_of(hook: Hook) -> str:
    """Return scheme, host and port of a hook's address, as they are written."""
    scheme, _, rest = address_of(hook).partition("://")
    return f"{scheme}://{re.split(r'[/?#]', rest, maxsplit=1)[0]}"


def headers_of(hook: Hook, delivery: HookDelivery, url: str) -> dict[str, str]:
    """Return the headers of a delivery. Own headers of the hook cannot replace GitLab's."""
    headers = {
        **{str(name): str(value) for name, value in hook.secrets.get("headers", {}).items()},
        "Content-Type": "application/json",
        "User-Agent": "GitLab/18.5.0 Remuda",
        "X-Gitlab-Event": SENT[delivery.event],
        "X-Gitlab-Instance": url,
        "X-Gitlab-Event-UUID": delivery.uuid,
        "X-Gitlab-Webhook-UUID": f"hook-{hook.id}",
        "Idempotency-Key": delivery.uuid,
    }
    if token := hook.secrets.get("token"):
        headers["X-Gitlab-Token"] = str(token)
    return headers


def body_of(hook: Hook, delivery: HookDelivery) -> bytes:
    """Return the body: the event, or the hook's template with `{{field.field}}` replaced by values of the event."""
    if not hook.template:
        return delivery.body
    event = msgspec.json.decode(delivery.body)
    return _FIELD.sub(lambda match: _field_text(event, match[1]), hook.template).encode()


def _field_text(event: Any, path: str) -> str:
    for name in path.split("."):
        if isinstance(event, Mapping):
            event = event.get(name)
        elif isinstance(event, list) and name.isdecimal() and int(name[:6]) < len(event):
            event = event[int(name[:6])]
        else:
            return ""
    if event is None:
        return ""
    # Inside the template's quotes, so that a text cannot end its string.
    return msgspec.json.encode(event).decode()[1:-1] if isinstance(event, str) else msgspec.json.encode(event).decode()


def after_try(delivery: HookDelivery, outcome: Outcome, now: float) -> HookDelivery:
    """Return the delivery after a try: done, due again later, or given up."""
    tries = delivery.tries + 1
    delay = min(FIRST_RETRY_SECONDS * 2 ** min(tries - 1, 20), MAX_RETRY_SECONDS)
    is_over = outcome.is_success or tries >= MAX_TRIES or delivery.is_test
    return replace(
        delivery,
        tries=tries,
        due_at=None if is_over else now + delay,
        status=str(outcome.status) if outcome.status else "internal error",
        error=outcome.error[:MAX_ANSWER],
        answer=outcome.answer[:MAX_ANSWER],
        seconds=outcome.seconds,
    )


def hook_after(hook: Hook, outcome: Outcome, now: float) -> Hook:
    """Return the hook after a try: failures in a row pause it, a success ends that."""
    if outcome.is_success:
        return replace(hook, failures=0, disabled_until=None)
    failures = hook.failures + 1
    pause = min(60.0 * 2 ** min(max(failures - PAUSE_AFTER, 0), 20), MAX_PAUSE_SECONDS)
    return replace(hook, failures=failures, disabled_until=now + pause if failures >= PAUSE_AFTER else None)
