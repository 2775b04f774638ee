"""Webhooks: allowed addresses, bodies and headers, and what follows from an answer."""

import pytest
from msgspec.structs import replace

from remuda.cell.core.pipelines.webhook_delivery import (
    MAX_TRIES,
    PAUSE_AFTER,
    Outcome,
    address_of,
    after_try,
    body_of,
    drop_old_secrets,
    headers_of,
    hide_variables,
    hook_after,
    is_public_address,
)
from remuda.cell.core.pipelines.webhook_payloads import event_id, wants
from remuda.cell.values.hooks import Hook, HookDelivery

NOW = 1_800_000_000.0
HOOK = Hook(id=3, owner=("project", 7), url="https://x.org/{key}", created_at=1, events=frozenset({"push_events"}))
DELIVERY = HookDelivery(
    id=1, hook_id=3, uuid="u-1", event="push_events", body=b'{"ref": "a\\"b", "n": [{"id": 5}]}', created_at=1, due_at=5
)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses(address: str) -> None:
    assert is_public_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "ff02::1",
        "64:ff9b::7f00:1", "fec0::1", "name", "",
    ],
)  # fmt: skip
def test_addresses_of_a_network_of_its_own(address: str) -> None:
    assert not is_public_address(address)


def test_a_changed_address_gets_no_secrets_of_the_old_one() -> None:
    secrets = {"token": "s3", "variables": {"key": "abc"}, "headers": {"X-Own": "1"}}
    hook = replace(HOOK, secrets=secrets)
    assert drop_old_secrets(hook, replace(hook, name="n"), ()).secrets == secrets
    moved = replace(hook, url="https://y.org/{key}")
    assert drop_old_secrets(hook, moved, ()).secrets == {}
    assert drop_old_secrets(hook, moved, ("token", "variables")).secrets == {"token": "s3", "variables": {"key": "abc"}}


def test_a_variable_that_changes_the_server_drops_the_other_secrets() -> None:
    secrets = {"token": "s3", "variables": {"host": "x.org", "key": "1"}}
    hook = replace(HOOK, url="https://{host}/{key}", secrets=secrets)
    other_path = replace(hook, secrets={**hook.secrets, "variables": {"host": "x.org", "key": "2"}})
    assert drop_old_secrets(hook, other_path, ("variables",)).secrets["token"] == "s3"
    other_host = replace(hook, secrets={**hook.secrets, "variables": {"host": "y.org", "key": "1"}})
    assert drop_old_secrets(hook, other_host, ("variables",)).secrets == {"variables": {"host": "y.org", "key": "1"}}


def test_an_error_does_not_show_url_variables() -> None:
    hook = replace(HOOK, secrets={"variables": {"key": "s3cret", "other": "s3cret-2", "empty": ""}})
    failed = Outcome(error="Cannot connect to s3cret-2.org:80, S3CRET.org", answer="s3cret")
    assert hide_variables(hook, failed).error == "Cannot connect to {other}.org:80, {key}.org"
    assert hide_variables(HOOK, failed) == failed


def test_addresses_headers_and_bodies() -> None:
    hook = replace(
        HOOK,
        template='{"text": "pushed {{ref}}", "id": {{n.0.id}}, "none": "{{missing.x}}"}',
        secrets={"token": "s3", "variables": {"key": "abc"}, "headers": {"X-Own": "1", "X-Gitlab-Event": "no"}},
    )
    assert address_of(hook) == "https://x.org/abc"
    headers = headers_of(hook, DELIVERY, "https://cell.org")
    assert (headers["X-Gitlab-Event"], headers["X-Gitlab-Token"], headers["X-Own"]) == ("Push Hook", "s3", "1")
    assert headers["X-Gitlab-Event-UUID"] == headers["Idempotency-Key"] == "u-1"
    assert body_of(hook, DELIVERY) == b'{"text": "pushed a\\"b", "id": 5, "none": ""}'
    assert body_of(HOOK, DELIVERY) == DELIVERY.body
    assert "X-Gitlab-Token" not in headers_of(HOOK, DELIVERY, "")


def test_a_failed_delivery_is_repeated_later_and_then_given_up() -> None:
    delivery, delays = DELIVERY, []
    for _ in range(MAX_TRIES - 1):
        delivery = after_try(delivery, Outcome(status=500, answer="x" * 9999), NOW)
        assert delivery.due_at is not None
        delays.append(delivery.due_at - NOW)
    assert delays == sorted(delays)
    assert len(delivery.answer) < 9999
    assert after_try(delivery, Outcome(error="refused"), NOW).due_at is None
    assert after_try(DELIVERY, Outcome(status=204), NOW).due_at is None
    assert after_try(replace(DELIVERY, is_test=True), Outcome(status=500), NOW).due_at is None
    assert after_try(DELIVERY, Outcome(error="no route"), NOW).status == "internal error"


def test_failures_in_a_row_pause_the_hook() -> None:
    hook = HOOK
    for _ in range(PAUSE_AFTER - 1):
        hook = hook_after(hook, Outcome(status=500), NOW)
    assert hook.disabled_until is None
    hook = hook_after(hook, Outcome(), NOW)
    assert hook.disabled_until == NOW + 60
    assert hook_after(hook, Outcome(status=200), NOW) == replace(HOOK, failures=0)


def test_which_hooks_want_an_event() -> None:
    assert wants(HOOK, "push_events", "refs/heads/main")
    assert not wants(HOOK, "tag_push_events", "refs/tags/v1")
    wildcard = replace(HOOK, branch_filter="release/*")
    assert wants(wildcard, "push_events", "refs/heads/release/1")
    assert not wants(wildcard, "push_events", "refs/heads/main")
    assert wants(replace(wildcard, branch_filter_strategy="all_branches"), "push_events", "refs/heads/main")


def test_the_id_of_an_event_depends_on_the_event_alone() -> None:
    assert event_id(1, "job", 5, "running") == event_id(1, "job", 5, "running") != event_id(2, "job", 5, "running")
