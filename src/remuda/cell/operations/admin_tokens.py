"""Creates tokens of the administrator: at the first start of a cell, and on its machine if the token is lost.

Who can read the data folder, or has the database's password, may act as administrator anyway."""

import secrets
import time

import msgspec

from remuda.cell.operations.existing_store import open_existing_store, record_command
from remuda.cell.settings import CellSettings
from remuda.cell.values import ORGANIZATION_ID, USER_ID, UserToken
from remuda.wire.routable_token import encode, token_hash

_USER_PREFIX = "glpat-"


def new_admin_token(cell_id: int) -> str:
    """Return a random access token for the administrator, with the cell's id encoded in it."""
    routing = {"c": cell_id, "o": ORGANIZATION_ID, "u": USER_ID}
    return encode(prefix=_USER_PREFIX, routing=routing, random=secrets.token_bytes(16))


async def add_admin_token(settings: CellSettings, *, revoke_others: bool) -> tuple[str, int]:
    """Create and store a token of the administrator; the cell may run. Returns it, and how many other tokens of the
    administrator were revoked. The new one is stored first: if this is interrupted, no token is lost."""
    async with open_existing_store(settings) as (store, cell_id):
        secret = new_admin_token(cell_id)
        added = await store.people.add_user_token(
            UserToken(token_hash=token_hash(secret), name="administrator", created_at=time.time())
        )
        await record_command(store, "personal_access_token_created", added.name)
        revoked = 0
        for token in await store.people.list_user_tokens_of(USER_ID) if revoke_others else ():
            if token.id != added.id and not token.revoked:
                await store.people.change_user_token(token.id, lambda row: msgspec.structs.replace(row, revoked=True))
                await record_command(store, "personal_access_token_revoked", str(token.id))
                revoked += 1
        return secret, revoked
