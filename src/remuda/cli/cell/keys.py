"""`remuda cell keys list|rotate`: what an operator does with the keys of a cell.

Nothing is decided here. The keys are in the cell's store, so both commands may be called while the cell runs; its
processes see a new key within seconds (`remuda.cell.secrets.key_ring`).
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.cell.audit import record
from remuda.cli.cell.settings import Config, Database, print_warnings, settings_from
from remuda.cli.exits import BadInputError
from remuda.cli.options import Data, Output

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings
    from remuda.cell.store.ports import Store


def list_keys(*, data: Data = None, database: Database = None, config: Config = None, output: Output = "text") -> None:
    """List the keys that sign tokens, and what each is for.

    Try:

        remuda cell keys list --data /var/lib/remuda
        remuda cell keys list --data /var/lib/remuda --output json
    """
    keys = asyncio.run(_list(_settings(data, database, config)))
    if output == "json":
        print(json.dumps(keys, indent=2))
        return
    for key in keys:
        print(f"{key['name']:<34} {key['for']:<16} {'signs' if key['signs'] else 'still accepted'}")


def rotate(
    *,
    job_tokens: Annotated[bool, Parameter(help="The key that signs job tokens.", negative="")] = False,
    at_once: Annotated[
        bool,
        Parameter(help="Job tokens of older keys are dead now, and running jobs with them.", negative=""),
    ] = False,
    data: Data = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Make a new key, which is used from now on; the cell may run meanwhile.

    Job tokens that the old key signed are good until their jobs are over; a day later at the earliest the cell removes
    it. If somebody else has got hold of the old key, --at-once removes it now.

    Try:

        remuda cell keys rotate --job-tokens --data /var/lib/remuda
        remuda cell keys rotate --job-tokens --at-once --data /var/lib/remuda
    """
    if not job_tokens:
        raise BadInputError("which key? Give --job-tokens")
    kid = asyncio.run(_rotate(_settings(data, database, config), at_once=at_once))
    print(f"{kid} signs job tokens now")


def _settings(data: Path | None, database: str | None, config: Path | None) -> "CellSettings":
    print_warnings(os.environ)
    return settings_from(os.environ, data=data, config=config, database=database)


async def _list(settings: "CellSettings") -> list[dict[str, object]]:
    from remuda.cell.secrets.key_ring import purpose_of

    async with _opened(settings) as (store, _):
        purposes = {kid: purpose_of(kid) for kid in await store.settings.load_signing_keys()}
    newest = {purpose: kid for kid, purpose in purposes.items()}
    return [{"name": kid, "for": purpose, "signs": newest[purpose] == kid} for kid, purpose in purposes.items()]


async def _rotate(settings: "CellSettings", *, at_once: bool) -> str:
    from remuda.cell.secrets.key_ring import rotate as rotated

    async with _opened(settings) as (store, cell_id):
        kid = await rotated(store, cell_id=cell_id, now=time.time(), at_once=at_once)
        await record(store, "signing_key_rotated", kid)
        return kid


@asynccontextmanager
async def _opened(settings: "CellSettings") -> "AsyncIterator[tuple[Store, int]]":
    """The store of a cell that is there and up to date, and the cell's number."""
    import msgspec

    from remuda.cell.store import migrations, tables
    from remuda.cell.store.open import open_store

    async with tables.read(settings) as found:
        cell_id, revision = found.cell_id, found.revision
    if revision != migrations.HEAD:
        raise BadInputError(
            f"the store has schema version {revision}, not {migrations.HEAD}; `remuda cell migrate` updates it"
        )
    store, _ = await open_store(msgspec.structs.replace(settings, cell_id=cell_id))
    try:
        yield store, cell_id
    finally:
        await store.close()
