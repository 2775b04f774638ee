"""Lists the keys that sign a cell's tokens, and replaces the one for job tokens.

The processes of a running cell see a new key within seconds. A separate module from `encryption_keys`, because these
keys sign tokens and do not encrypt anything."""

import msgspec

from remuda.cell.operations.existing_store import open_existing_store, record_command
from remuda.cell.secrets import key_ring
from remuda.cell.settings import CellSettings


class SigningKeyState(msgspec.Struct, frozen=True, kw_only=True):
    """A signing key: its name, kind of tokens (`purpose`), and whether it signs new ones (`signs`) or only verifies."""

    name: str
    purpose: str
    signs: bool


async def list_signing_keys(settings: CellSettings) -> list[SigningKeyState]:
    async with open_existing_store(settings) as (store, _):
        purposes = {kid: key_ring.purpose_of(kid) for kid in await store.settings.load_signing_keys()}
    newest = {purpose: kid for kid, purpose in purposes.items()}
    return [
        SigningKeyState(name=kid, purpose=purpose, signs=newest[purpose] == kid) for kid, purpose in purposes.items()
    ]


async def rotate_job_token_key(settings: CellSettings, *, now: float, at_once: bool) -> str:
    """Add a key that signs job tokens from now on, and return its name. `at_once` makes tokens signed with older keys
    invalid immediately."""
    async with open_existing_store(settings) as (store, cell_id):
        kid = await key_ring.rotate(store, cell_id=cell_id, now=now, at_once=at_once)
        await record_command(store, "signing_key_rotated", kid)
        return kid
