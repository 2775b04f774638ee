"""The frozen agent, as `make frozen` builds it, runs jobs in root folders without Python and on this machine.

One root folder has busybox and no C library, another one Debian 11 with its older C library. On each the agent runs a
job with a script and a standard step. On this machine the agent is also killed, and the next one continues its job.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.built_programs import require_built
from tests.support.step_packages import STEP_LAYER, a_layer, has_registry, step_registry, zstd

from remuda.testing.agent_process import PROGRAM, READY, AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentClient, JobStart, unix_channel

FROZEN = Path(__file__).parents[2] / "build" / f"remuda-agent-linux-{os.uname().machine}"
OLD = "bullseye"
OLD_PACKAGES = (
    *("libc6", "dash", "bash", "coreutils", "libtinfo6", "libselinux1", "libpcre2-8-0"),
    *("libacl1", "libattr1", "libgmp10"),
)
APPLETS = ("sh", "cat", "chmod", "echo", "env", "ls", "mkdir", "mv", "rm", "sleep", "touch", "uname")
STEPS = steps_text(
    {"name": "hello", "script": "echo hello; ls / | cat; exit 0"},
    {"name": "sources", "step": "builtin://checkout", "inputs": {"strategy": "none"}},
)

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.getuid() != 0, reason="only root can change the root folder"),
]


@pytest.fixture(scope="module")
def frozen() -> Path:
    require_built(FROZEN, "system")
    return FROZEN


@pytest.fixture
def busybox_root(tmp_path: Path) -> Path:
    """A root folder with a static busybox and nothing else."""
    root = tmp_path / "r"
    make_base_folders(root)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    return root


@pytest.fixture(scope="module")
def old_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root folder with Debian 11, whose C library is older than the one that the agent was frozen with."""
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    mirror = re.search(r"^URIs: (\S+/debian)/?$", sources.read_text() if sources.exists() else "", re.MULTILINE)
    if mirror is None:
        pytest.skip("this is not a Debian with a known mirror")
    folder = tmp_path_factory.mktemp("old")
    apt = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (apt / "sources.list").write_text(f"deb [signed-by={keys}] {mirror[1]} {OLD} main\n")
    places = {"State::lists": apt / "lists", "Cache": apt / "cache", "Etc::sourcelist": apt / "sources.list"}
    options = [f"-oDir::{name}={place}" for name, place in places.items()]
    options += ["-oDir::Etc::sourceparts=-", "-oDir::State::status=/dev/null", "-oAPT::Sandbox::User=root", "-qq"]
    for words in (["update"], ["download", *OLD_PACKAGES]):
        done = subprocess.run(["apt-get", *options, *words], cwd=apt, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"packages of {OLD} cannot be downloaded: {done.stderr.strip()[-200:]}")
    root = folder / "r"
    for package in apt.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    make_base_folders(root)
    (root / "bin/sh").unlink(missing_ok=True)
    (root / "bin/sh").symlink_to("dash")
    return root


def make_base_folders(root: Path) -> None:
    for folder in ("bin", "dev", "proc", "tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    os.mknod(root / "dev/null", 0o020666, os.makedev(1, 3))


def root_command(root: Path) -> list[str]:
    """Prefix that runs a command in a root folder, in its own process namespace."""
    return [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc"),
        *(shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin") or "chroot", str(root)),
    ]


@asynccontextmanager
async def agent_in(root: Path) -> AsyncIterator[AgentClient]:
    process = await asyncio.create_subprocess_exec(
        *root_command(root),
        *("/opt/remuda-agent", "serve", "--data", "/data"),
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/bin:/usr/bin"},
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while not (line := await process.stderr.readline()).startswith(READY):
                assert line, await process.wait()
        async with AgentClient(unix_channel(root / "data/agent.sock")) as client:
            yield client
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("kind", ["busybox_root", "old_root"])
async def test_a_machine_without_python(kind: str, frozen: Path, request: pytest.FixtureRequest) -> None:
    """The bootstrap detects that there is no Python and installs the frozen agent, which then runs a job."""
    root: Path = request.getfixturevalue(kind)
    through = " ".join([*root_command(root), "/bin/sh", "-c"])
    bootstrap = await asyncio.create_subprocess_exec(
        *PROGRAM, "bootstrap", "--through", through, "--frozen", str(frozen), "/opt/remuda-agent", stdout=-1
    )
    out, _ = await bootstrap.communicate()
    assert bootstrap.returncode == 0
    assert b" frozen " in out
    async with agent_in(root) as client:
        about = await client.describe()
        assert (about.program, about.machine) == ("frozen", os.uname().machine)
        await client.start(JobStart(id="1", work_dir="/work", steps=STEPS))
        seen = await follow(client, "1")
        assert seen.check().status == "success", seen.agent_lines
        assert seen.lines[0] == b"hello"
        assert b"opt" in seen.lines
        assert seen.lines[-1] == b"Skipping Git repository setup"
        await client.close_job("1")


@pytest.mark.skipif(not has_registry(), reason="docker-registry is not installed: make packages")
async def test_an_image_with_zstd_layers(frozen: Path, busybox_root: Path, tmp_path: Path) -> None:
    """The machine has neither the library of zstd nor its program: the agent brings the library."""
    (busybox_root / "opt").mkdir()
    shutil.copy(frozen, busybox_root / "opt/remuda-agent")
    definition = 'spec: {}\n---\nexec: {command: [cat, "${{ func_dir }}/note"]}\n'
    layer = a_layer({"func.yml": definition, "note": "note in zstd\n", "rest": "x" * 3_000_000})
    with step_registry(tmp_path / "registry") as registry:
        registry.image("tools/note", zstd(layer), tag="1", media_type=STEP_LAYER)
        async with agent_in(busybox_root) as client:
            steps = steps_text({"name": "note", "step": f"{registry.host}/tools/note:1"})
            await client.start(JobStart(id="1", work_dir="/work", steps=steps))
            seen = await follow(client, "1")
            assert seen.check().status == "success", seen.log.decode()
            assert seen.lines == [b"note in zstd"]
            await client.close_job("1")


def test_the_c_library_of_the_old_root_is_older(old_root: Path) -> None:
    def version(*command: str) -> tuple[int, ...]:
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        match = re.search(r"version (\d+)\.(\d+)", text)
        assert match is not None
        return int(match[1]), int(match[2])

    (library,) = old_root.glob("lib/*/libc.so.6")
    (own,) = Path("/lib").glob("*/libc.so.6")
    assert version(*root_command(old_root), f"/{library.relative_to(old_root)}") < version(str(own))


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    return tmp_path / "t"


async def test_a_killed_agent_is_replaced_on_this_machine(frozen: Path, tmp_path: Path, temporary_folder: Path) -> None:
    """The agent process is killed, and its loader processes remain: the job goes on, and the next agent continues it.
    No temporary files are left."""
    script = f"env; echo a; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo b"
    async with AgentProcess(tmp_path / "data", program=(str(frozen),)) as agent:
        await agent.start(env={"LD_LIBRARY_PATH": "/its/own"})
        async with agent.client() as client:
            steps = steps_text({"name": "x", "script": script})
            await client.start(JobStart(id="1", work_dir=str(tmp_path / "w"), steps=steps))
            await until(lambda: any((tmp_path / "data/jobs").rglob("*.raw")))
            pid = (await client.hello()).pid
        os.kill(pid, 9)
        await agent.wait()
        await agent.start()
        (tmp_path / "go").touch()
        async with agent.client() as client:
            seen = await follow(client, "1")
        assert seen.check().status == "success"
        assert seen.lines[-2:] == [b"a", b"b"]
        # Variables that the loaders set for themselves are not in the environment of steps.
        assert not [line for line in seen.lines if line.startswith((b"STATICX", b"_PYI", b"_MEI")) or b"_MEI" in line]
        seen = await run_job(agent, JobStart(id="2", work_dir=str(tmp_path / "w"), steps=STEPS))
        assert seen.statuses == {"hello": "success", "sources": "success"}
    assert not list(temporary_folder.iterdir())


async def test_frozen_program_is_agent_proxy_and_delegate(frozen: Path, tmp_path: Path, temporary_folder: Path) -> None:
    """`delegate` starts `proxy --start`, which starts an agent; all of them are the frozen program."""
    order = {
        "command": [str(frozen), "proxy", "--start", "--idle-exit", "1", "--data", str(tmp_path / "data")],
        "key": "1",
        "results": str(tmp_path / "results"),
        "work_dir": str(tmp_path / "w"),
        "steps": steps_text({"name": "x", "script": "echo there; exit 3"}),
    }
    (tmp_path / "order").write_text(json.dumps(order))
    process = await asyncio.create_subprocess_exec(str(frozen), "delegate", str(tmp_path / "order"), stdout=-1)
    out, _ = await process.communicate()
    assert process.returncode == 3
    assert b"there\n" in out
    await until(lambda: not list(temporary_folder.iterdir()))
