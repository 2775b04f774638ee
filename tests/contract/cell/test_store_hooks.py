"""Contract tests of the store: deploy tokens, webhooks and their deliveries."""

import pytest
from msgspec.structs import replace

from remuda.cell.errors import ConflictError
from remuda.cell.store.ports import Store
from remuda.cell.values.hooks import DeployToken, Hook, HookDelivery

TOKEN = DeployToken(
    id=0, owner=("project", 7), name="t", username="u", token_hash="h", scopes=("read_repository",), created_at=1
)
HOOK = Hook(id=0, owner=("project", 7), url="https://x.org/", created_at=1, secrets={"token": "s"})
DELIVERY = HookDelivery(id=0, hook_id=1, uuid="u", event="push_events", body=b"{}", created_at=1, due_at=5)


async def test_deploy_tokens(store: Store) -> None:
    added = await store.hooks.add_deploy_token(TOKEN)
    other = await store.hooks.add_deploy_token(replace(TOKEN, owner=("group", 7), token_hash="i"))
    assert await store.hooks.find_deploy_token("h") == await store.hooks.load_deploy_token(added.id) == added
    assert await store.hooks.list_deploy_tokens(("project", 7)) == [added]
    assert await store.hooks.list_deploy_tokens(None) == [added, other]
    changed = await store.hooks.change_deploy_token(added.id, lambda row: replace(row, username="v"))
    assert changed is not None
    assert (await store.hooks.load_deploy_token(added.id)) == changed
    assert changed.username == "v"
    with pytest.raises(ConflictError):
        await store.hooks.add_deploy_token(TOKEN)
    assert await store.hooks.remove_deploy_token(added.id)
    assert not await store.hooks.remove_deploy_token(added.id)
    assert await store.hooks.find_deploy_token("h") is None


async def test_hooks(store: Store) -> None:
    added = await store.hooks.add_hook(HOOK)
    await store.hooks.add_hook(replace(HOOK, owner=("group", 7)))
    assert await store.hooks.list_hooks(("project", 7)) == [added]
    assert len(await store.hooks.list_all_hooks()) == 2
    changed = await store.hooks.change_hook(added.id, lambda row: replace(row, failures=1))
    assert await store.hooks.load_hook(added.id) == changed
    delivery = await store.hooks.add_delivery(replace(DELIVERY, hook_id=added.id))
    assert delivery is not None
    assert await store.hooks.add_delivery(replace(DELIVERY, hook_id=added.id)) is None, "the same event"
    assert await store.hooks.remove_hook(added.id)
    assert not await store.hooks.remove_hook(added.id)
    assert await store.hooks.load_delivery(delivery.id) is None


async def test_deliveries(store: Store) -> None:
    first = await store.hooks.add_delivery(DELIVERY)
    second = await store.hooks.add_delivery(replace(DELIVERY, uuid="v", due_at=3, created_at=9))
    done = await store.hooks.add_delivery(replace(DELIVERY, uuid="w", due_at=None))
    assert first is not None
    assert second is not None
    assert done is not None
    assert await store.hooks.list_due_deliveries(5, limit=10) == [second, first]
    assert await store.hooks.list_due_deliveries(4, limit=10) == [second]
    assert await store.hooks.list_due_deliveries(9, limit=1) == [second]
    assert await store.hooks.list_deliveries(1, limit=2) == [done, second]
    sent = await store.hooks.change_delivery(second.id, lambda row: replace(row, due_at=None, tries=1))
    assert await store.hooks.load_delivery(second.id) == sent
    assert await store.hooks.list_due_deliveries(9, limit=10) == [first]
    assert await store.hooks.remove_old_deliveries(9, limit=10) == 2
    assert await store.hooks.list_deliveries(1, limit=10) == [sent]


async def test_a_deleted_owner_leaves_nothing(store: Store) -> None:
    hook = await store.hooks.add_hook(HOOK)
    token = await store.hooks.add_deploy_token(TOKEN)
    kept = await store.hooks.add_hook(replace(HOOK, owner=("group", 7)))
    await store.hooks.remove_of_owner(("project", 7))
    assert await store.hooks.load_hook(hook.id) is None
    assert await store.hooks.load_deploy_token(token.id) is None
    assert await store.hooks.list_all_hooks() == [kept]
