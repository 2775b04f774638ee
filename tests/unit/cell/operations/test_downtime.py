"""What the cell notes of its own absence."""

import asyncio
import os
from pathlib import Path

import pytest

from remuda.cell.core.jobs import leases
from remuda.cell.core.waiting.downtime import Outage
from remuda.cell.operations.downtime import DowntimeFile
from remuda.cell.settings import CellSettings
from remuda.lib.clock import VirtualClock
from remuda.model.job import JobState
from remuda.testing.builders import a_job


def test_a_start_knows_for_how_long_nobody_could_be_heard(tmp_path: Path) -> None:
    clock, file = VirtualClock(1000.0), tmp_path / "presence"
    first = DowntimeFile(clock, file)
    first.begin()
    assert first.outages == (Outage(0.0, 1000.0),)
    clock.jump(50.0)
    second = DowntimeFile(clock, file)
    second.begin()
    assert second.outages == (Outage(0.0, 1000.0), Outage(1000.0, 1050.0))
    clock.jump(1.0)
    third = DowntimeFile(clock, file)
    third.begin()
    assert third.outages == second.outages


def test_an_outage_of_the_store_is_known_after_a_restart(tmp_path: Path) -> None:
    clock, file = VirtualClock(1000.0), tmp_path / "presence"
    presence = DowntimeFile(clock, file)
    presence.begin()
    clock.jump(600.0)
    # While the store is away each look says so again, and `watch` goes on to note that the cell runs.
    presence.add(Outage(1010.0, 1300.0))
    presence.add(Outage(1010.0, 1600.0))
    os.utime(file, (1600.0, 1600.0))
    again = DowntimeFile(clock, file)
    again.begin()
    assert again.outages == presence.outages == (Outage(0.0, 1000.0), Outage(1010.0, 1600.0))


def test_processes_of_one_cell_do_not_forget_each_others_outages(tmp_path: Path) -> None:
    clock, file = VirtualClock(1000.0), tmp_path / "presence"
    first, second = DowntimeFile(clock, file), DowntimeFile(clock, file)
    for presence in (first, second):
        presence.begin()
    clock.jump(600.0)
    # A runner that polls the first could not be heard in that time, and neither could one that polls the second later.
    first.add(Outage(1100.0, 1400.0))
    second.add(Outage(1500.0, 1600.0))
    restarted = DowntimeFile(clock, file)
    restarted.begin()
    both = (Outage(0.0, 1000.0), Outage(1100.0, 1400.0), Outage(1500.0, 1600.0))
    assert restarted.outages == second.outages == both
    job = a_job(state=JobState.LEASED, leased_at=1050.0, lease_until=1110.0, two_phase=True)
    settings = CellSettings(data=tmp_path, lease_seconds=60)
    gone_at = leases.deadline(job, settings, since=clock.now(), now=clock.now(), outages=restarted.outages)
    assert gone_at == 1050.0 + 3 * 60 + 300 + 100, "not at once: it was heard for less than three leases"
    first.add(Outage(1590.0, 1700.0))
    assert first.outages == (*both[:2], Outage(1500.0, 1700.0))


def test_of_a_damaged_file_nothing_is_believed_and_a_clock_that_went_back_is_no_outage(tmp_path: Path) -> None:
    clock, file = VirtualClock(1000.0), tmp_path / "presence"
    file.write_bytes(b"{")
    presence = DowntimeFile(clock, file)
    presence.begin()
    assert presence.outages == (Outage(0.0, 1000.0),)
    os.utime(file, (9000.0, 9000.0))
    presence = DowntimeFile(clock, file)
    presence.begin()
    assert (presence.outages, file.stat().st_mtime) == ((Outage(0.0, 1000.0),), 1000.0)


async def test_it_is_noted_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cell.operations.downtime.NOTE_SECONDS", 0.01)
    clock, file, stop = VirtualClock(1000.0), tmp_path / "presence", asyncio.Event()
    presence = DowntimeFile(clock, file)
    presence.begin()
    async with asyncio.TaskGroup() as group, asyncio.timeout(30):
        group.create_task(presence.watch(stop))
        clock.jump(7.0)
        clock.set_wall(7200.0)
        while file.stat().st_mtime != 1007.0:  # noqa: ASYNC110 - a file says nothing
            await asyncio.sleep(0.01)
        stop.set()
