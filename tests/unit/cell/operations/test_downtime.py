"""The downtime file: outages of the cell and of the store, known after restarts and to all processes."""

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


def test_a_start_notes_how_long_the_cell_was_down(tmp_path: Path) -> None:
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
    downtime = DowntimeFile(clock, file)
    downtime.begin()
    clock.jump(600.0)
    # While the store is unavailable every check extends the outage, and `watch` still notes that the cell runs.
    downtime.add(Outage(1010.0, 1300.0))
    downtime.add(Outage(1010.0, 1600.0))
    os.utime(file, (1600.0, 1600.0))
    restarted = DowntimeFile(clock, file)
    restarted.begin()
    assert restarted.outages == downtime.outages == (Outage(0.0, 1000.0), Outage(1010.0, 1600.0))


def test_processes_of_one_cell_do_not_forget_each_others_outages(tmp_path: Path) -> None:
    clock, file = VirtualClock(1000.0), tmp_path / "presence"
    first, second = DowntimeFile(clock, file), DowntimeFile(clock, file)
    for downtime in (first, second):
        downtime.begin()
    clock.jump(600.0)
    # The first process missed calls of runners in the first outage, the second process in the second one.
    first.add(Outage(1100.0, 1400.0))
    second.add(Outage(1500.0, 1600.0))
    restarted = DowntimeFile(clock, file)
    restarted.begin()
    outages = (Outage(0.0, 1000.0), Outage(1100.0, 1400.0), Outage(1500.0, 1600.0))
    assert restarted.outages == second.outages == outages
    job = a_job(state=JobState.LEASED, leased_at=1050.0, lease_until=1110.0, two_phase=True)
    settings = CellSettings(data=tmp_path, lease_seconds=60)
    deadline = leases.deadline(job, settings, since=clock.now(), now=clock.now(), outages=restarted.outages)
    assert deadline == 1050.0 + 3 * 60 + 300 + 100, "outages do not count for the three leases"
    first.add(Outage(1590.0, 1700.0))
    assert first.outages == (*outages[:2], Outage(1500.0, 1700.0))


def test_a_damaged_file_is_ignored_and_a_clock_set_back_is_no_outage(tmp_path: Path) -> None:
    clock, file = VirtualClock(1000.0), tmp_path / "presence"
    file.write_bytes(b"{")
    downtime = DowntimeFile(clock, file)
    downtime.begin()
    assert downtime.outages == (Outage(0.0, 1000.0),)
    os.utime(file, (9000.0, 9000.0))
    downtime = DowntimeFile(clock, file)
    downtime.begin()
    assert (downtime.outages, file.stat().st_mtime) == ((Outage(0.0, 1000.0),), 1000.0)


async def test_watch_updates_file_time_despite_clock_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.cell.operations.downtime.NOTE_SECONDS", 0.01)
    clock, file, stop = VirtualClock(1000.0), tmp_path / "presence", asyncio.Event()
    downtime = DowntimeFile(clock, file)
    downtime.begin()
    async with asyncio.TaskGroup() as group, asyncio.timeout(30):
        group.create_task(downtime.watch(stop))
        clock.jump(7.0)
        clock.set_wall(7200.0)
        while file.stat().st_mtime != 1007.0:  # noqa: ASYNC110 - a file has no event to wait for
            await asyncio.sleep(0.01)
        stop.set()
