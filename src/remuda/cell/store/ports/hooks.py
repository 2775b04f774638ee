"""The store's interface to deploy tokens, and to webhooks and their deliveries."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from remuda.cell.store.ports.database import Database, Transaction, add_row, change_row
from remuda.cell.store.ports.tables import DEPLOY_TOKENS, HOOK_DELIVERIES, HOOKS
from remuda.cell.values.hooks import DeployToken, Hook, HookDelivery
from remuda.model.runner import Pool


class HookStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_deploy_token(self, token: DeployToken) -> DeployToken:
        """Store a deploy token with a new id. Raises ConflictError if the token exists already."""
        return await add_row(self._database, DEPLOY_TOKENS, token, taken="there is a token with this secret already")

    async def find_deploy_token(self, token_hash: str) -> DeployToken | None:
        return await self._database.find(DEPLOY_TOKENS, token_hash=token_hash)

    async def load_deploy_token(self, token_id: int) -> DeployToken | None:
        return await self._database.find(DEPLOY_TOKENS, id=token_id)

    async def list_deploy_tokens(self, owner: Pool | None) -> Sequence[DeployToken]:
        """Return the deploy tokens of a project or group, or all (None), ordered by id."""
        if owner is None:
            return await self._database.find_all(DEPLOY_TOKENS, order=("id",))
        return await self._database.find_all(DEPLOY_TOKENS, order=("id",), kind=owner[0], owner_id=owner[1])

    async def change_deploy_token(
        self, token_id: int, decide: Callable[[DeployToken], DeployToken | None]
    ) -> DeployToken | None:
        """Store and return what `decide` returns for a token; None if it returns None or there is no such token."""
        return await change_row(self._database, DEPLOY_TOKENS, token_id, decide)

    async def remove_deploy_token(self, token_id: int) -> bool:
        return bool(await self._database.remove(DEPLOY_TOKENS, id=token_id))

    async def add_hook(self, hook: Hook) -> Hook:
        return await add_row(self._database, HOOKS, hook)

    async def load_hook(self, hook_id: int) -> Hook | None:
        return await self._database.find(HOOKS, id=hook_id)

    async def list_all_hooks(self) -> Sequence[Hook]:
        """Return the webhooks of all projects and groups, ordered by id."""
        return await self._database.find_all(HOOKS, order=("id",))

    async def list_hooks(self, owner: Pool) -> Sequence[Hook]:
        """Return the webhooks of a project or group, ordered by id."""
        return await self._database.find_all(HOOKS, order=("id",), kind=owner[0], owner_id=owner[1])

    async def change_hook(self, hook_id: int, decide: Callable[[Hook], Hook | None]) -> Hook | None:
        """Store and return what `decide` returns for a webhook; None if it returns None or there is no such hook."""
        return await change_row(self._database, HOOKS, hook_id, decide)

    async def remove_hook(self, hook_id: int) -> bool:
        """Remove a webhook with its deliveries. Returns whether it existed."""

        async def remove(rows: Transaction) -> bool:
            await rows.remove(HOOK_DELIVERIES, hook_id=hook_id)
            return bool(await rows.remove(HOOKS, id=hook_id))

        return await self._database.change(remove)

    async def remove_of_owner(self, owner: Pool) -> None:
        """Remove the webhooks of a deleted project or group with their deliveries, and its deploy tokens."""
        for hook in await self.list_hooks(owner):
            await self.remove_hook(hook.id)
        await self._database.remove(DEPLOY_TOKENS, kind=owner[0], owner_id=owner[1])

    async def add_delivery(self, delivery: HookDelivery) -> HookDelivery | None:
        """Store a delivery with a new id. Returns None if one with its `uuid` exists: the event was noticed before."""

        async def add(rows: Transaction) -> HookDelivery | None:
            added = replace(delivery, id=await rows.draw_id(HOOK_DELIVERIES))
            return added if await rows.add_if_absent(HOOK_DELIVERIES, added) else None

        return await self._database.change(add)

    async def load_delivery(self, delivery_id: int) -> HookDelivery | None:
        return await self._database.find(HOOK_DELIVERIES, id=delivery_id)

    async def list_deliveries(self, hook_id: int, *, limit: int) -> Sequence[HookDelivery]:
        """Return the newest deliveries of a webhook, newest first."""
        return await self._database.find_all(HOOK_DELIVERIES, order=("id DESC",), limit=limit, hook_id=hook_id)

    async def list_due_deliveries(self, now: float, *, limit: int) -> Sequence[HookDelivery]:
        """Return deliveries that are due at `now`, the longest due first."""
        return await self._database.find_all(
            HOOK_DELIVERIES, where=("due_at", "<=", now), order=("due_at", "id"), limit=limit
        )

    async def change_delivery(
        self, delivery_id: int, decide: Callable[[HookDelivery], HookDelivery | None]
    ) -> HookDelivery | None:
        """Store and return what `decide` returns for a delivery; None if it returns None or there is no such one."""
        return await change_row(self._database, HOOK_DELIVERIES, delivery_id, decide)

    async def remove_old_deliveries(self, before: float, *, limit: int) -> int:
        """Remove at most `limit` deliveries that were created before this time. Returns how many."""
        return await self._database.remove_some(HOOK_DELIVERIES, ("created_at", "<", before), limit=limit)
