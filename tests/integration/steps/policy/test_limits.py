"""Limits on real processes of this machine. Limits that it cannot enforce are skipped; `make test` lists them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from remuda.lib.clock import SystemClock
from remuda.steps.policy.host_abilities import Host, describe
from remuda.steps.policy.job_user import JobUser
from remuda.steps.policy.step_limits import Enclosure, enclose, sweep
from remuda.steps.process.limits import Limits
from remuda.testing.waiting import until

Run = Callable[..., tuple[subprocess.CompletedProcess[str], Enclosure]]

FETCH = (
    f"{sys.executable} -c 'import sys,urllib.request as u; "
    "print(u.urlopen(sys.argv[1], timeout=5).read().decode())' http://{}/"
)
EAT = f"{sys.executable} -c 'x = bytearray({{}} * 2**20); print(len(x))'"
REACH = f"{sys.executable} -c 'import socket; socket.create_connection((\"127.0.0.1\", {{}}), 5)'"


def skip_unless(is_possible: bool) -> None:
    if not is_possible:
        pytest.skip("this machine cannot")


def test_step_without_network(host: Host, run: Run, web: int) -> None:
    skip_unless(host.has_networks)
    free, _ = run(REACH.format(web))
    assert free.returncode == 0
    cut, enclosure = run(REACH.format(web), limits=Limits(network=((),)))
    assert cut.returncode == 1
    assert "ConnectionRefusedError" in cut.stderr
    assert "network" in (*enclosure.enforced, *enclosure.advisory)


def test_step_without_network_has_its_own_loopback(host: Host, run: Run) -> None:
    skip_unless(host.has_networks)
    script = (
        f'{sys.executable} -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        'socket.create_connection(s.getsockname()); print("reached")\''
    )
    process, _ = run(script, limits=Limits(network=((),)))
    assert process.stdout == "reached\n"


def test_step_reaches_only_hosts_on_the_list(host: Host, run: Run, web: int) -> None:
    skip_unless(host.has_networks)
    limits = Limits(network=((f"127.0.0.1:{web}", "localhost"), (f"*:{web}",)))
    # urllib does not use the proxy for hosts in no_proxy, so these variables are unset.
    script = f"unset no_proxy NO_PROXY; {FETCH.format(f'127.0.0.1:{web}')}"
    assert run(script, limits=limits)[0].stdout == "hello\n"
    other, _ = run(f"unset no_proxy NO_PROXY; {FETCH.format('elsewhere.example')}", limits=limits)
    assert other.returncode == 1
    assert "remuda: network: elsewhere.example:80 is not on the allow list of this step's policy" in other.stderr
    direct, _ = run(REACH.format(web), limits=limits)
    assert "ConnectionRefusedError" in direct.stderr


def test_tunnel_is_opened_for_a_host_on_the_list(host: Host, run: Run, web: int) -> None:
    skip_unless(host.has_networks)
    script = (
        f"{sys.executable} -c 'import http.client as h, os; from urllib.parse import urlsplit as s; "
        'p = s(os.environ["https_proxy"]); c = h.HTTPConnection(p.hostname, p.port); '
        f'c.set_tunnel("localhost", {web}); c.request("GET", "/"); print(c.getresponse().read())\''
    )
    assert run(script, limits=Limits(network=(("localhost",),)))[0].stdout == "b'hello'\n"
    refused, _ = run(script, limits=Limits(network=(("localhost:1",),)))
    assert "Tunnel connection failed: 403" in refused.stderr


async def test_proxy_ends_with_the_step(host: Host, run: Run, tmp_path: Path) -> None:
    skip_unless(host.has_networks)
    up, go = tmp_path / "up", tmp_path / "go"
    script = f"touch {up}; until [ -e {go} ]; do sleep 0.02; done"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(asyncio.to_thread(run, script, limits=Limits(network=(("a.example",),))))
        await until(up.exists)
        assert len(find_proxies(str(go))) == 1
        go.touch()
    assert running.result()[0].returncode == 0
    # The proxy has closed the step's output: `run` returns only after that.
    assert find_proxies(str(go)) == []


async def test_step_over_its_memory_limit_ends_with_an_error(host: Host, run: Run) -> None:
    skip_unless(host.groups.limits("memory"))
    fits, enclosure = run(EAT.format(20), limits=Limits(memory_bytes=64 * 2**20))
    assert (fits.returncode, await enclosure.find_broken_limit()) == (0, None)
    killed, enclosure = run(EAT.format(200), limits=Limits(memory_bytes=64 * 2**20))
    assert killed.returncode in (-9, 137)
    assert await enclosure.find_broken_limit() == "the step used more memory than its limit of 64 MiB and was killed"


async def test_small_memory_limit_leaves_room_for_our_own_programs(host: Host, run: Run, person: JobUser) -> None:
    """The program that enters the enclosure, and the proxy, do not count as the step's."""
    skip_unless(host.groups.limits("memory") and host.has_networks)
    limits = Limits(memory_bytes=4 * 2**20, network=(("a.example",),))
    process, enclosure = run("echo fits", limits=limits, person=person)
    assert (process.stdout, await enclosure.find_broken_limit()) == ("fits\n", None)


def test_step_cannot_start_more_processes(host: Host, run: Run) -> None:
    skip_unless(host.groups.limits("pids"))
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 5 & done; wait"
    process, enclosure = run(script, limits=Limits(pids=4))
    assert process.returncode != 0
    assert "fork" in process.stderr
    assert enclosure.hint() == "the step could not start more than 4 processes, which is its limit"


def test_step_is_slowed_down_to_its_processors(host: Host, run: Run) -> None:
    skip_unless(host.groups.limits("cpu"))
    _, enclosure = run("true", limits=Limits(cpus=0.5))
    assert enclosure.group is not None
    folder = host.groups.v1.get("cpu")
    if folder is not None:
        assert (folder / enclosure.group.key / "cpu.cfs_quota_us").read_text() == "50000\n"


def test_usage_counts_what_the_step_started(host: Host, run: Run) -> None:
    skip_unless(bool(host.groups.folders()))
    use_cpu = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.2: pass\nx = bytearray(50 * 2**20)'"
    _, enclosure = run(f"({use_cpu}) & wait")
    used = enclosure.usage()
    assert used["cpu_user_seconds"] + used["cpu_system_seconds"] >= 0.19
    if host.groups.limits("memory"):
        assert used["memory_peak_bytes"] > 50 * 2**20
    enclosure.remove()
    assert enclosure.usage() == {}


def test_file_cannot_grow_beyond_the_disk_limit(run: Run, tmp_path: Path) -> None:
    process, enclosure = run(f"head -c 3000000 /dev/zero >{tmp_path}/big", limits=Limits(disk_bytes=1_000_000))
    assert process.returncode != 0
    assert (tmp_path / "big").stat().st_size == 1_000_000
    assert list(enclosure.advisory) == ["steps", "disk"]


async def test_work_folder_over_the_disk_limit_is_detected(host: Host, tmp_path: Path) -> None:
    enclosure = enclose(host, Limits(disk_bytes=50_000), key="job.1", work_dir=tmp_path)
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 40_000)
    expected = "the work folder grew by 120 KiB during the step; the disk limit of the step is 48.83 KiB"
    async with asyncio.timeout(10):
        assert await enclosure.until_exceeded(os.getpid(), SystemClock()) == expected
    assert await enclosure.find_broken_limit() == expected
    enclosure.remove()


async def test_memory_is_measured_without_cgroups(tmp_path: Path) -> None:
    enclosure = enclose(Host(is_root=False), Limits(memory_bytes=2**20), key="job.1", work_dir=tmp_path)
    assert enclosure.advisory["memory"] == "this machine has no control groups for it"
    async with asyncio.timeout(10):
        text = await enclosure.until_exceeded(os.getsid(0), SystemClock())
    assert "its limit is 1 MiB" in text


def test_another_user_cannot_reach_the_agents_folder(run: Run, person: JobUser, tmp_path: Path) -> None:
    private = tmp_path / "agent"
    private.mkdir(mode=0o700)
    (private / "journal").write_text("secret")
    for parent in (tmp_path, *tmp_path.parents[:3]):
        assert parent.is_dir()
    script = f"id -u; id -g; id -G; cat {private}/journal; kill -0 {os.getpid()}; grep NoNewPrivs /proc/self/status"
    process, enclosure = run(script, person=person)
    assert process.stdout.split() == ["123456", "123456", "123456", "NoNewPrivs:", "1"]
    assert "secret" not in process.stdout
    assert "Permission denied" in process.stderr
    assert enclosure.enforced == ("steps",)


def test_variables_of_the_job_do_not_reach_programs_that_run_as_root(run: Run, person: JobUser, tmp_path: Path) -> None:
    """LD_PRELOAD and similar variables would let the job control programs of root."""
    env = {"LD_PRELOAD": str(tmp_path / "evil.so"), "PYTHONPATH": str(tmp_path), "VALUE": "seen"}
    process, _ = run("echo $VALUE", env=env, person=person)
    assert process.stdout == "seen\n"
    # The step's shell reports the missing library once; Python, which ran as root, did not get the variable.
    assert process.stderr.count("evil.so") == 1
    assert not (tmp_path / "env").exists()


def test_another_user_cannot_leave_its_groups_or_network(host: Host, run: Run, person: JobUser) -> None:
    skip_unless(host.groups.limits("memory") and host.has_networks)
    folder = next(iter(host.groups.v1.values()), host.groups.v2)
    assert folder is not None
    script = f"echo 0 >{folder.parent}/cgroup.procs; nsenter --net=/proc/1/ns/net true"
    process, enclosure = run(script, limits=Limits(memory_bytes=2**26, network=((),)), person=person)
    assert process.returncode != 0
    assert process.stderr.count("ermission denied") == 2
    assert set(enclosure.enforced) == {"steps", "memory", "network"}


def test_limits_are_advisory_for_the_agents_own_user(host: Host, tmp_path: Path) -> None:
    enclosure = enclose(host, Limits(memory_bytes=2**26, timeout_seconds=5), key="job.1", work_dir=tmp_path)
    assert enclosure.enforced == ()
    assert list(enclosure.report()["advisory"]) == ["steps", "memory", "timeout"]
    enclosure.remove()


def test_limits_inside_a_container_are_left_to_the_container(host: Host, tmp_path: Path) -> None:
    enclosure = enclose(
        host, Limits(memory_bytes=2**20, timeout_seconds=5), key="job.1", work_dir=tmp_path, inside=True, apart=True
    )
    assert enclosure.enforced == ("steps", "timeout")
    assert list(enclosure.advisory) == ["memory"]
    assert enclosure.wrap(["x"], {}, tmp_path / "env") == (["x"], {})
    enclosure.remove()


async def test_sweep_ends_processes_that_left_their_session(host: Host, run: Run) -> None:
    skip_unless(bool(host.groups.folders()))
    _, enclosure = run("setsid sleep 300 >/dev/null 2>&1 & echo $!")
    enclosure.remove()
    assert enclosure.usage()
    async with asyncio.timeout(10):
        await sweep(host, "job", SystemClock())
    assert enclosure.usage() == {}


async def test_a_killed_cgroup_allows_no_new_process(host: Host, run: Run) -> None:
    """Otherwise a chain of processes that fork and exit could escape."""
    skip_unless(host.groups.limits("pids"))
    _, enclosure = run("setsid sleep 300 >/dev/null 2>&1 &")
    assert enclosure.group is not None
    enclosure.group.kill()
    folder = host.groups.v1.get("pids") or host.groups.v2
    assert folder is not None
    assert (folder / enclosure.group.key / "pids.max").read_text() == "0\n"
    await sweep(host, "job", SystemClock())


def test_error_for_a_missing_command(run: Run, person: JobUser, host: Host, tmp_path: Path) -> None:
    enclosure = enclose(host, key="job.9", work_dir=tmp_path, person=person)
    command, env = enclosure.wrap(["no-such-program"], {"PATH": "/bin"}, tmp_path / "env")
    process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (process.returncode, process.stderr) == (127, "ERROR: no-such-program: not found\n")
    enclosure.remove()


def test_abilities_of_the_host_are_described(host: Host) -> None:
    assert {ability.name for ability in describe(host)} == {
        "steps",
        "memory",
        "cpu",
        "pids",
        "network",
        "timeout",
        "disk",
    }
    assert all(ability.detail for ability in describe(host))


def find_proxies(text: str) -> list[str]:
    """The proxies of running steps whose command contains this text. A proxy has the name of the entry program."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "remuda.steps.process.enclosure_entry" in arguments and any(text in argument for argument in arguments):
                pids.append(folder.name)
    return pids
