"""The lab machines that other tests use: isolated from each other and from the host, and removed with their owner."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.machines.machines import USER, Machines

from remuda.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(Machines.missing()), reason=Machines.missing() or "can be")

OWNER = """
import sys, time
from tests.support.machines.machines import Machines
with Machines(1) as lab:
    print(lab.pid, lab.machines[0].init, flush=True)
    time.sleep(100)
"""


def test_machines_have_their_own_names_and_files_and_a_shared_network(tmp_path: Path) -> None:
    with Machines(2, shared=tmp_path) as lab:
        first, second = lab.machines
        assert [machine.run("hostname").stdout for machine in lab.machines] == ["m1\n", "m2\n"]
        first.run("echo first >/tmp/file; echo first >/root/file; echo first >/etc/file")
        assert second.run("ls /tmp/file /root/file /etc/file", check=False).stdout == ""
        assert not Path("/etc/file").exists()
        assert (first.root / "root/file").read_text() == "first\n"
        assert second.run(f"cat >{tmp_path}/name </etc/hostname; whoami", user=USER, check=False).stdout == f"{USER}\n"
        second.run(f"hostname >{tmp_path}/name")
        assert (tmp_path / "name").read_text() == "m2\n"
        assert first.run(f"bash -c '</dev/tcp/{second.address}/22'").returncode == 0


def test_a_machine_keeps_its_disk_when_its_power_fails() -> None:
    with Machines(1) as lab:
        machine = lab.machines[0]
        machine.run("echo kept >/root/file; echo gone >/tmp/file; sleep 300 >/dev/null 2>&1 &")
        wait_until(lambda: machine.pids("sleep", "300"), "the shell has started sleep")
        machine.kill()
        machine.start()
        machine.wait()
        assert machine.run("cat /root/file /tmp/file", check=False).stdout == "kept\n"
        assert not machine.pids("sleep", "300")


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        lab, init = (int(word) for word in owner.stdout.readline().split())
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{lab}") or os.path.exists(f"/proc/{init}"):
        assert time.monotonic() < deadline, "the lab still runs after the end of its owner"
        time.sleep(0.02)
    with Machines(1):
        assert not list(Path("/tmp").glob(f"remuda-machines-{owner.pid}-*"))
