"""Rows of runners as they were stored before instance runners could serve several organizations."""

import json

from remuda.cell.store.ports import Store
from remuda.model.job import RunnerId

_OLD = {"version": 1, "created_at": 1.0, "tags": ["a"]}

OLD_RUNNERS = [
    json.dumps(_OLD | {"id": number, "token_hash": str(number), "type": kind} | more).encode()
    for number, kind, more in (
        (1, "instance_type", {"organization_id": 1}),
        (2, "instance_type", {"organization_id": 7}),
        (3, "instance_type", {}),
        (4, "group_type", {"organization_id": 7, "group_id": 5}),
    )
]
EXPECTED_RESTRICTIONS = {1: (), 2: (7,), 3: (), 4: ()}


async def restrictions(store: Store) -> dict[int, tuple[int, ...]]:
    """Return the organizations that each runner of OLD_RUNNERS is restricted to after a migration."""
    runners = [await store.runners.load_runner(RunnerId(number)) for number in EXPECTED_RESTRICTIONS]
    return {runner.id: runner.organization_ids for runner in runners if runner is not None}
