"""Limits on real processes of this machine. What it cannot do is skipped; `make test` says which."""

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


def needs(can: bool) -> None:
    if not can:
        pytest.skip("this machine cannot")


def test_step_without_network_cannot_connect(host: Host, run: Run, web: int) -> None:
    needs(host.has_networks)
    free, _ = run(REACH.format(web))
    assert free.returncode == 0
    cut, enclosure = run(REACH.format(web), limits=Limits(network=((),)))
    assert cut.returncode == 1
    assert "ConnectionRefusedError" in cut.stderr
    assert "network" in (*enclosure.enforced, *enclosure.advisory)


def test_step_without_network_has_its_own_loopback(host: Host, run: Run) -> None:
    needs(host.has_networks)
    script = (
        f'{sys.executable} -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        'socket.create_connection(s.getsockname()); print("reached")\''
    )
    ended, _ = run(script, limits=Limits(network=((),)))
    assert ended.stdout == "reached\n"


def test_step_reaches_only_hosts_on_the_list(host: Host, run: Run, web: int) -> None:
    needs(host.has_networks)
    limits = Limits(network=((f"127.0.0.1:{web}", "localhost"), (f"*:{web}",)))
    # urllib does not ask the proxy for what no_proxy names, so the host is named to the proxy as it is.
    script = f"unset no_proxy NO_PROXY; {FETCH.format(f'127.0.0.1:{web}')}"
    assert run(script, limits=limits)[0].stdout == "hello\n"
    other, _ = run(f"unset no_proxy NO_PROXY; {FETCH.format('elsewhere.example')}", limits=limits)
    assert other.returncode == 1
    assert "remuda: network: elsewhere.example:80 is not on the allow list of this step's policy" in other.stderr
    direct, _ = run(REACH.format(web), limits=limits)
    assert "ConnectionRefusedError" in direct.stderr


def test_tunnel_is_opened_for_a_host_on_the_list(host: Host, run: Run, web: int) -> None:
    needs(host.has_networks)
    script = (
        f"{sys.executable} -c 'import http.client as h, os; from urllib.parse import urlsplit as s; "
        'p = s(os.environ["https_proxy"]); c = h.HTTPConnection(p.hostname, p.port); '
        f'c.set_tunnel("localhost", {web}); c.request("GET", "/"); print(c.getresponse().read())\''
    )
    assert run(script, limits=Limits(network=(("localhost",),)))[0].stdout == "b'hello'\n"
    refused, _ = run(script, limits=Limits(network=(("localhost:1",),)))
    assert "Tunnel connection failed: 403" in refused.stderr


async def test_proxy_ends_with_the_step(host: Host, run: Run, tmp_path: Path) -> None:
    needs(host.has_networks)
    up, go = tmp_path / "up", tmp_path / "go"
    script = f"touch {up}; until [ -e {go} ]; do sleep 0.02; done"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(asyncio.to_thread(run, script, limits=Limits(network=(("a.example",),))))
        await until(up.exists)
        assert len(_proxies(str(go))) == 1
        go.touch()
    assert running.result()[0].returncode == 0
    # Its end of the step's output is closed: `run` returns only then.
    assert _proxies(str(go)) == []


async def test_step_over_its_memory_is_killed_and_named(host: Host, run: Run) -> None:
    needs(host.groups.limits("memory"))
    fits, enclosure = run(EAT.format(20), limits=Limits(memory_bytes=64 * 2**20))
    assert (fits.returncode, await enclosure.find_broken_limit()) == (0, None)
    killed, enclosure = run(EAT.format(200), limits=Limits(memory_bytes=64 * 2**20))
    assert killed.returncode in (-9, 137)
    assert await enclosure.find_broken_limit() == "the step used more memory than its limit of 64 MiB and was killed"


async def test_small_memory_limit_leaves_room_for_our_own_programs(host: Host, run: Run, person: JobUser) -> None:
    """The program that enters, and the proxy, are not the step's."""
    needs(host.groups.limits("memory") and host.has_networks)
    limits = Limits(memory_bytes=4 * 2**20, network=(("a.example",),))
    ended, enclosure = run("echo fits", limits=limits, person=person)
    assert (ended.stdout, await enclosure.find_broken_limit()) == ("fits\n", None)


def test_step_cannot_start_more_processes(host: Host, run: Run) -> None:
    needs(host.groups.limits("pids"))
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 5 & done; wait"
    ended, enclosure = run(script, limits=Limits(pids=4))
    assert ended.returncode != 0
    assert "fork" in ended.stderr
    assert enclosure.hint() == "the step could not start more than 4 processes, which is its limit"


def test_step_is_slowed_down_to_its_processors(host: Host, run: Run) -> None:
    needs(host.groups.limits("cpu"))
    _, enclosure = run("true", limits=Limits(cpus=0.5))
    assert enclosure.group is not None
    folder = host.groups.v1.get("cpu")
    if folder is not None:
        assert (folder / enclosure.group.key / "cpu.cfs_quota_us").read_text() == "50000\n"


def test_usage_counts_what_the_step_started(host: Host, run: Run) -> None:
    needs(bool(host.groups.folders()))
    burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.2: pass\nx = bytearray(50 * 2**20)'"
    _, enclosure = run(f"({burn}) & wait")
    used = enclosure.usage()
    assert used["cpu_user_seconds"] + used["cpu_system_seconds"] >= 0.19
    if host.groups.limits("memory"):
        assert used["memory_peak_bytes"] > 50 * 2**20
    enclosure.remove()
    assert enclosure.usage() == {}


def test_file_cannot_grow_beyond_the_disk_limit(run: Run, tmp_path: Path) -> None:
    ended, enclosure = run(f"head -c 3000000 /dev/zero >{tmp_path}/big", limits=Limits(disk_bytes=1_000_000))
    assert ended.returncode != 0
    assert (tmp_path / "big").stat().st_size == 1_000_000
    assert list(enclosure.advisory) == ["steps", "disk"]


async def test_full_work_folder_is_noticed(host: Host, tmp_path: Path) -> None:
    enclosure = enclose(host, Limits(disk_bytes=50_000), key="job.1", work_dir=tmp_path)
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 40_000)
    expected = "the step put 120 KiB on the disk, in the work folder; its limit is 48.83 KiB"
    async with asyncio.timeout(10):
        assert await enclosure.until_exceeded(os.getpid(), SystemClock()) == expected
    assert await enclosure.find_broken_limit() == expected
    enclosure.remove()


async def test_memory_is_measured_where_there_are_no_groups(tmp_path: Path) -> None:
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
    ended, enclosure = run(script, person=person)
    assert ended.stdout.split() == ["123456", "123456", "123456", "NoNewPrivs:", "1"]
    assert "secret" not in ended.stdout
    assert "Permission denied" in ended.stderr
    assert enclosure.enforced == ("steps",)


def test_variables_of_the_job_do_not_reach_programs_that_run_as_root(run: Run, person: JobUser, tmp_path: Path) -> None:
    """LD_PRELOAD and the like would let the job decide what root does."""
    env = {"LD_PRELOAD": str(tmp_path / "evil.so"), "PYTHONPATH": str(tmp_path), "VALUE": "seen"}
    ended, _ = run("echo $VALUE", env=env, person=person)
    assert ended.stdout == "seen\n"
    # The shell of the step complains, once; Python, as root, was not asked to load it.
    assert ended.stderr.count("evil.so") == 1
    assert not (tmp_path / "env").exists()


def test_another_user_cannot_leave_its_groups_or_network(host: Host, run: Run, person: JobUser) -> None:
    needs(host.groups.limits("memory") and host.has_networks)
    folder = next(iter(host.groups.v1.values()), host.groups.v2)
    assert folder is not None
    script = f"echo 0 >{folder.parent}/cgroup.procs; nsenter --net=/proc/1/ns/net true"
    ended, enclosure = run(script, limits=Limits(memory_bytes=2**26, network=((),)), person=person)
    assert ended.returncode != 0
    assert ended.stderr.count("ermission denied") == 2
    assert set(enclosure.enforced) == {"steps", "memory", "network"}


def test_as_the_agents_own_user_all_is_advisory(host: Host, tmp_path: Path) -> None:
    enclosure = enclose(host, Limits(memory_bytes=2**26, timeout_seconds=5), key="job.1", work_dir=tmp_path)
    assert enclosure.enforced == ()
    assert list(enclosure.report()["advisory"]) == ["steps", "memory", "timeout"]
    enclosure.remove()


def test_in_a_container_limits_are_the_containers(host: Host, tmp_path: Path) -> None:
    enclosure = enclose(
        host, Limits(memory_bytes=2**20, timeout_seconds=5), key="job.1", work_dir=tmp_path, inside=True, apart=True
    )
    assert enclosure.enforced == ("steps", "timeout")
    assert list(enclosure.advisory) == ["memory"]
    assert enclosure.wrap(["x"], {}, tmp_path / "env") == (["x"], {})
    enclosure.remove()


async def test_sweep_ends_what_left_its_session(host: Host, run: Run) -> None:
    needs(bool(host.groups.folders()))
    _, enclosure = run("setsid sleep 300 >/dev/null 2>&1 & echo $!")
    enclosure.remove()
    assert enclosure.usage()
    async with asyncio.timeout(10):
        await sweep(host, "job", SystemClock())
    assert enclosure.usage() == {}


async def test_what_is_killed_starts_nothing_any_more(host: Host, run: Run) -> None:
    """So that one that becomes another process all the time does not flee."""
    needs(host.groups.limits("pids"))
    _, enclosure = run("setsid sleep 300 >/dev/null 2>&1 &")
    assert enclosure.group is not None
    enclosure.group.kill()
    folder = host.groups.v1.get("pids") or host.groups.v2
    assert folder is not None
    assert (folder / enclosure.group.key / "pids.max").read_text() == "0\n"
    await sweep(host, "job", SystemClock())


def test_command_that_is_not_there_is_said(run: Run, person: JobUser, host: Host, tmp_path: Path) -> None:
    enclosure = enclose(host, key="job.9", work_dir=tmp_path, person=person)
    command, env = enclosure.wrap(["no-such-program"], {"PATH": "/bin"}, tmp_path / "env")
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (127, "ERROR: no-such-program: not found\n")
    enclosure.remove()


def test_what_the_host_can_do_is_described(host: Host) -> None:
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


def _proxies(text: str) -> list[str]:
    """The proxies of running steps with this in their command: they are what is left of the program that enters."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "remuda.steps.process.enclosure_entry" in words and any(text in word for word in words):
                found.append(folder.name)
    return found
