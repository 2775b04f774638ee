"""Cgroups of version 2 on a real kernel: the agent's code runs in a small virtual machine.

The machine has no disk: a Debian kernel, busybox, Debian's Python, and a check that prints its results on the console.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.debian_kernel import PACKAGE, debian_kernel

import remuda

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PYTHON = Path("/usr/bin/python3.11")
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
PYTHONPATH=/code python3.11 -B /check.py
poweroff -f
"""
CHECK = r"""
import ctypes, json, os, subprocess, sys, time
from pathlib import Path
from remuda.steps.errors import AgentError
from remuda.steps.process.cgroups import StepGroup, find_groups
from remuda.steps.policy.slot_cgroup import SlotGroup, limits_of

results = {}
job = Path("/tmp/job")
job.mkdir()
limits = limits_of(48 << 20, 0.5, 20)


def run(step, code):
    join = "import sys\nfor path in %r: open(path, 'w').write('0')\n" % (step.joins,)
    return subprocess.run([sys.executable, "-c", join + code], stderr=subprocess.DEVNULL).returncode


def run_job(number):
    # Run a step in the slot and return what was measured.
    folder = job / str(number)
    folder.mkdir()
    slot = SlotGroup("/gitlab-runner/slot-0", limits=limits, name="remuda-1", job=folder)
    slot.begin()
    groups = find_groups("remuda-1", parent="/gitlab-runner/slot-0")
    slot_folder = Path("/sys/fs/cgroup/gitlab-runner/slot-0")
    seen = {name: (slot_folder / name).read_text().strip() for name in ("memory.max", "cpu.max", "pids.max")}
    step = StepGroup(groups=groups, key=f"job{number}.1")
    step.make(limits_of(0, 0, 0))
    seen["fits"] = run(step, "x = bytearray(8 << 20)")
    seen["eats"] = run(step, "x = bytearray(200 << 20)")
    seen["kills"] = step.count_memory_kills()
    seen["forks"] = run(step, "import subprocess\nfor _ in range(60): subprocess.Popen(['sleep', '30'])")
    seen["refused"] = step.count_refused_forks() + slot.count_refused_forks()
    seen["killed"] = step.kill()
    deadline = time.monotonic() + 20
    while not step.remove() and time.monotonic() < deadline:
        time.sleep(0.05)
    used = slot.usage()
    seen["processor"] = used["cpu_user_seconds"] + used["cpu_system_seconds"]
    for folder in groups.folders():
        folder.rmdir()
    slot.remove()
    seen["exists_after"] = slot_folder.exists()
    return seen


results["first"], results["second"] = run_job(1), run_job(2)

# As in a container: a cgroup namespace whose top has other processes besides the agent, and later none.
top = Path("/sys/fs/cgroup/box")
top.mkdir()
# Not a child of this process, like other processes of a machine.
other = int(subprocess.check_output(["sh", "-c", "sleep 100 >/dev/null & echo $!"]))
for pid in (other, os.getpid()):
    (top / "cgroup.procs").write_text(str(pid))
ctypes.CDLL(None).unshare(0x02000000)
ctypes.CDLL(None).unshare(0x00020000)
subprocess.run(["mount", "-t", "cgroup2", "box", "/mnt"], check=True)
subprocess.run(["umount", "/sys/fs/cgroup"], check=True)
folder = job / "boxed"
folder.mkdir()
slot = SlotGroup("/gitlab-runner/slot-0", limits=limits, name="remuda-1", job=folder)
try:
    slot.begin()
    results["boxed"] = "begun"
except AgentError as error:
    results["boxed"] = str(error)
os.kill(other, 9)
try:
    while ") Z" not in Path(f"/proc/{other}/stat").read_text():
        time.sleep(0.05)
except (FileNotFoundError, ProcessLookupError):
    pass  # the process is gone
slot = SlotGroup("/gitlab-runner/slot-1", limits=limits, name="remuda-1", job=folder)
slot.begin()
results["alone"] = Path("/mnt/gitlab-runner/slot-1/memory.max").read_text().strip()
print("RESULTS " + json.dumps(results), flush=True)
"""


def test_slots_in_version_2(tmp_path: Path) -> None:
    for program in ("qemu-system-x86_64", "busybox", str(PYTHON)):
        if shutil.which(program) is None:
            pytest.skip(f"not installed: {program}; make packages installs it")
    kernel = debian_kernel()
    if kernel is None:
        pytest.skip(f"the Debian package {PACKAGE} cannot be had here")
    initrd = create_ram_disk(tmp_path)
    machine = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-M", "pc", "-cpu", "max", "-m", "512"]
    machine += ["-nodefaults", "-no-user-config", "-nographic", "-serial", "stdio", "-no-reboot"]
    machine += ["-kernel", str(next(kernel.glob("boot/vmlinuz-*"))), "-initrd", str(initrd)]
    machine += ["-append", "console=ttyS0 quiet mitigations=off panic=-1"]
    console = subprocess.run(machine, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL).stdout
    match = re.search(r"RESULTS (\{.*\})", console)
    assert match, console[-4000:]
    results: dict[str, Any] = json.loads(match[1])
    for seen in (results["first"], results["second"]):
        assert (seen["memory.max"], seen["cpu.max"], seen["pids.max"]) == (str(48 << 20), "50000 100000", "20")
        assert (seen["fits"], seen["eats"], seen["forks"]) == (0, -9, 1)
        assert seen["kills"] == 1
        assert seen["refused"] >= 1
        assert seen["killed"]
        assert seen["processor"] > 0
        assert not seen["exists_after"]
    refused = "this runner limits jobs by slot_memory, slot_cpus, slot_pids, which this machine cannot enforce: "
    assert results["boxed"].startswith(f"{refused}/mnt cannot be divided"), results["boxed"]
    assert "other processes are in that control group" in results["boxed"]
    assert results["alone"] == str(48 << 20)


def create_ram_disk(folder: Path) -> Path:
    tree = folder / "ram"
    for name in ("bin", "usr/bin", "proc", "sys", "dev", "tmp", "mnt"):
        (tree / name).mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), tree / "bin/busybox")
    standard = PYTHON.parents[1] / "lib" / PYTHON.name
    unwanted = shutil.ignore_patterns("__pycache__", "test", "tests", "idlelib", "lib2to3", "ensurepip", "config-*")
    shutil.copytree(standard, tree / str(standard)[1:], ignore=unwanted, symlinks=False, ignore_dangling_symlinks=True)
    needed = {PYTHON.resolve(), *list_libraries(PYTHON)}
    for module in (tree / str(standard)[1:] / "lib-dynload").glob("_ctypes.*.so"):
        needed |= list_libraries(module)
    for path in needed:
        (tree / str(path)[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tree / str(path)[1:])
    for package in ("lib", "steps"):
        source = Path(remuda.__file__).parent / package
        shutil.copytree(source, tree / "code/remuda" / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(remuda.__file__, tree / "code/remuda/__init__.py")
    (tree / "check.py").write_text(CHECK)
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    with (folder / "initrd").open("wb") as initrd:
        subprocess.run("find . | busybox cpio -o -H newc", shell=True, cwd=tree, stdout=initrd, check=True)
    return folder / "initrd"


def list_libraries(program: Path) -> set[Path]:
    listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return {Path(path) for path in re.findall(r"(/\S+) \(", listing)}
