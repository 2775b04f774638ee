"""The lease of a machine, as `launch.sh` counts it. The tests decide when each sleep of five seconds ends."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import pytest

LAUNCH = (files("remuda_plugin_local") / "launch.sh").read_text()
LEASE = 15
SLEEP = '#!/bin/sh\necho over >"$FOLDER/asleep"\nread -r _ <"$FOLDER/awake"\n'


class Machine:
    """A process of `launch.sh`, with a `sleep` on its PATH that ends when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lease = folder / "lease"
        self.lease.touch()
        sleep = folder / "bin/sleep"
        sleep.parent.mkdir()
        sleep.write_text(SLEEP)
        sleep.chmod(0o755)
        for name in ("asleep", "awake"):
            os.mkfifo(folder / name)
        path = f"{sleep.parent}:{os.environ['PATH']}"
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", LAUNCH, "launch", "/bin/sleep", "600"],
                env={"PATH": path, "FOLDER": str(folder), "GROUPS_": "", "LEASE": str(LEASE)},
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self._fall_asleep()

    def check_lease(self, count: int = 1) -> None:
        """Let five seconds pass `count` times. Each time launch.sh checks the lease, and the machine must survive."""
        for _ in range(count):
            self.wake()
            self._fall_asleep()

    def wake(self) -> None:
        (self.folder / "awake").write_text("\n")

    def _fall_asleep(self) -> None:
        (self.folder / "asleep").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    with suppress(ProcessLookupError):
        os.killpg(machine.process.pid, signal.SIGKILL)
    machine.process.wait()


def test_a_machine_ends_when_its_lease_is_not_renewed(machine: Machine) -> None:
    machine.check_lease(1 + LEASE // 5)
    machine.wake()
    assert machine.process.wait(60) == -9
    assert "nobody has asked for this machine for more than 15 s" in (machine.folder / "log").read_text()


@pytest.mark.parametrize("step", [-(10**6), 10**6], ids=["behind", "ahead"])
def test_a_changed_clock_does_not_end_the_machine(machine: Machine, step: int) -> None:
    changed_at = machine.lease.stat().st_mtime + step
    for number in range(LEASE):
        os.utime(machine.lease, (changed_at + number, changed_at + number))
        machine.check_lease()
    machine.check_lease(LEASE // 5)
    machine.wake()
    assert machine.process.wait(60) == -9


def test_a_machine_ends_at_once_without_its_lease_file(machine: Machine) -> None:
    machine.check_lease()
    machine.lease.unlink()
    machine.wake()
    assert machine.process.wait(60) == -9
