"""Instances in the state `unknown`: hosts that set an owner get this state, other hosts get `creating`."""

from pathlib import Path

import pytest

from remuda.fleeting import InstanceState, Settings
from remuda.fleeting.host import HostedGroup
from remuda.testing.instance_groups import PlainGroup, a_plugin

UPDATE_WITH_UNKNOWN = """
from remuda.fleeting import InstanceState
from remuda.testing.instance_groups import PlainGroup

async def update(self):
    return {"a": InstanceState.UNKNOWN, "b": InstanceState.RUNNING}

PlainGroup.update = update
"""


@pytest.mark.parametrize(
    ("owner", "state"), [("s_1/one", InstanceState.UNKNOWN), ("", InstanceState.CREATING)], ids=["ours", "others"]
)
async def test_state_of_unknown_instance_depends_on_the_host(tmp_path: Path, owner: str, state: InstanceState) -> None:
    group = HostedGroup(str(a_plugin(tmp_path, PlainGroup, first=UPDATE_WITH_UNKNOWN)))
    try:
        await group.init({}, Settings(owner=owner))
        assert await group.update() == {"a": state, "b": InstanceState.RUNNING}
    finally:
        await group.close()
