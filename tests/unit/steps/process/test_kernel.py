import asyncio
from pathlib import Path

import pytest

from remuda.steps.process.kernel import Changes, Pulse


@pytest.mark.parametrize("use_inotify", [True, False])
async def test_a_change_is_reported_once_after_each_arm(tmp_path: Path, use_inotify: bool) -> None:
    changes = Changes(Pulse(), use_inotify=use_inotify)
    path, woken = tmp_path / "raw", asyncio.Event()
    path.touch()
    watch = changes.watch(path, woken.set)
    for _ in range(3):
        watch.arm()
        watch.arm()
        with path.open("a") as file:
            file.write("x")
        async with asyncio.timeout(5):
            await woken.wait()
        woken.clear()
    watch.close()
    changes.close()


async def test_a_closed_watch_reports_nothing(tmp_path: Path) -> None:
    changes = Changes(Pulse())
    path, calls = tmp_path / "raw", []
    other, woken = tmp_path / "other", asyncio.Event()
    path.touch()
    other.touch()
    watch = changes.watch(path, lambda: calls.append(1))
    watch.arm()
    watch.close()
    second = changes.watch(other, woken.set)
    second.arm()
    path.write_text("x")
    other.write_text("x")
    async with asyncio.timeout(5):
        await woken.wait()
    assert not calls
    second.close()
    changes.close()
