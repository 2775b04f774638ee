"""An instance that its plugin cannot look up: what hosts are told of it."""

from pathlib import Path

import pytest

from remuda.fleeting import InstanceState, Settings
from remuda.fleeting.host import HostedGroup
from remuda.testing.instance_groups import PlainGroup, a_plugin

UNSURE = """
from remuda.fleeting import InstanceState
from remuda.testing.instance_groups import PlainGroup

async def update(self):
    return {"a": InstanceState.UNKNOWN, "b": InstanceState.RUNNING}

PlainGroup.update = update
"""


@pytest.mark.parametrize(
    ("owner", "state"), [("s_1/one", InstanceState.UNKNOWN), ("", InstanceState.CREATING)], ids=["ours", "others"]
)
async def test_an_instance_that_cannot_be_looked_up(tmp_path: Path, owner: str, state: InstanceState) -> None:
    group = HostedGroup(str(a_plugin(tmp_path, PlainGroup, first=UNSURE)))
    try:
        await group.init({}, Settings(owner=owner))
        assert await group.update() == {"a": state, "b": InstanceState.RUNNING}
    finally:
        await group.close()
