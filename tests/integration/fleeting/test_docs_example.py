"""Runs the example plugin of docs/reference/fleeting-protocol.md."""

import sys
from pathlib import Path

import pytest

from remuda.fleeting import InstanceState, PermanentError, Settings
from remuda.fleeting.host import HostedGroup
from remuda.testing.instance_groups import a_program

PAGE = Path(__file__).parents[3] / "docs/reference/fleeting-protocol.md"


async def test_the_example_plugin_works(tmp_path: Path) -> None:
    text = PAGE.read_text().partition("```python\n")[2].partition("```")[0]
    program = a_program(tmp_path, f"#!{sys.executable}\n{text}", name="fleeting-plugin-shelf")
    misconfigured = HostedGroup(str(program))
    with pytest.raises(PermanentError, match="addresses is empty"):
        await misconfigured.init({"addresses": []}, Settings())
    group = HostedGroup(str(program))
    try:
        info = await group.init({"addresses": ["10.0.0.7", "10.0.0.8"]}, Settings())
        assert (info.max_size, info.version, info.capabilities) == (2, "0.1.0", frozenset())
        assert await group.increase(3) == 2
        assert await group.update() == dict.fromkeys(["10.0.0.7", "10.0.0.8"], InstanceState.RUNNING)
        assert (await group.connect_info("10.0.0.7")).address() == "10.0.0.7"
        assert await group.decrease(["10.0.0.7"]) == ["10.0.0.7"]
        assert list(await group.update()) == ["10.0.0.8"]
    finally:
        await group.close()
