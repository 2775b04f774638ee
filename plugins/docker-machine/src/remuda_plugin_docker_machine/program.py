"""docker-machine as a program: its command lines, how it is run, and what it wrote down about a machine.

Every run has a deadline, which `timeout` keeps even when this process is gone. What makes and removes machines is run
so that it outlives us: a provider that is asked for a machine and then hung up on makes it all the same, and nobody
knows of it.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.fleeting import PermanentError, TemporaryError
from remuda.lib.dataclass import dataclass
from remuda_plugin_docker_machine.config import Config

KILL_SECONDS = 10
"""After which a run that was told to end is killed."""
TIMED_OUT = (124, 137)
LIST_SECONDS = 5
SSH_PORT = 22
SSH_USER = "root"
_DETACHED = """
exit=$1 kill=$2 deadline=$3; shift 3
timeout -k "$kill" "$deadline" "$@"
code=$?
echo "$code" >"$exit.new" && mv "$exit.new" "$exit"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run that has ended."""

    code: int
    output: str

    @property
    def cause(self) -> str:
        """What went wrong, as one line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        told = " / ".join(lines[-3:])[-500:] or "it said nothing"
        return f"it took too long: {told}" if self.code in TIMED_OUT else f"exit code {self.code}: {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a machine is logged in to, as docker-machine knows it."""

    address: str
    """Empty: it has not written it down."""
    port: int
    username: str
    key_path: Path


class _Driver(msgspec.Struct, rename="pascal"):
    ip_address: str = msgspec.field(default="", name="IPAddress")
    ssh_user: str = msgspec.field(default="", name="SSHUser")
    ssh_port: int = msgspec.field(default=0, name="SSHPort")
    ssh_key_path: str = msgspec.field(default="", name="SSHKeyPath")


class _Machine(msgspec.Struct, rename="pascal"):
    driver: _Driver = msgspec.field(default_factory=_Driver)


def create_words(config: Config, name: str) -> list[str]:
    """The words that make a machine."""
    options = [*config.machine_options, *(one.replace("%s", name) for one in config.machine_options_with_name)]
    words = [one if one.startswith("-") else f"--{one}" for one in options]
    return ["create", "--driver", config.machine_driver, *words, name]


def environment(store: Path) -> Mapping[str, str]:
    """A create that fails is not reported to anybody outside."""
    return os.environ | {"MACHINE_STORAGE_PATH": str(store), "MACHINE_BUGSNAG_API_TOKEN": "no-report"}


async def run(config: Config, words: Sequence[str], *, seconds: int) -> Ran:
    """Run docker-machine with these words, until it has ended; it ends with us."""
    process = await asyncio.create_subprocess_exec(
        *("timeout", "-k", str(KILL_SECONDS), str(seconds), config.program, *words),
        env=environment(config.place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return Ran(code=process.returncode or 0, output=output.decode(errors="replace"))


def start(config: Config, words: Sequence[str], *, seconds: int, folder: Path, verb: str, lock: int) -> None:
    """The same by a process that is nobody's child: `lock` is held until it has ended, and then there are a file
    `VERB.exit` with its exit code and `VERB.log` with its words in the folder. Blocking, but not for long."""
    line = ["setsid", "--fork", "sh", "-c", _DETACHED, verb, str(folder / f"{verb}.exit")]
    with (folder / f"{verb}.log").open("wb") as log:
        subprocess.run(
            [*line, str(KILL_SECONDS), str(seconds), config.program, *words],
            env=environment(config.place),
            stdin=lock,
            stdout=log,
            stderr=log,
            check=True,
        )


async def make_certificates(config: Config, name: str) -> None:
    """By one machine that is none: several creates at once would each make their own."""
    made = await run(config, ["create", "--driver", "none", "--url", "tcp://127.0.0.1:2376", name], seconds=60)
    await run(config, ["rm", "-f", name], seconds=60)
    if made.code != 0:
        raise PermanentError(f"{config.program} cannot make its certificates: {made.cause}")


async def state_of(config: Config, name: str) -> str:
    """What docker-machine says of a machine; only this one is looked at."""
    words = ["ls", "-t", str(LIST_SECONDS), "--filter", f"name=^{re.escape(name)}$", "--format", "{{.State}}"]
    ran = await run(config, words, seconds=3 * LIST_SECONDS)
    return ran.output.strip() if ran.code == 0 and ran.output.strip() else "nothing"


async def asked_address(config: Config, name: str) -> str:
    """Of a machine whose driver does not write it down."""
    ran = await run(config, ["ip", name], seconds=30)
    address = ran.output.strip().rpartition("\n")[2]
    if ran.code != 0 or not address:
        raise TemporaryError(f"{name} has no address yet: {ran.cause}")
    return host_of(address)


def read_login(folder: Path) -> Login:
    """Of docker-machine's folder of a machine. TemporaryError: it is not there yet, or broken."""
    try:
        driver = msgspec.json.decode((folder / "config.json").read_bytes(), type=_Machine).driver
    except (OSError, msgspec.DecodeError) as error:
        raise TemporaryError(f"{folder / 'config.json'} cannot be read: {error}") from error
    return Login(
        address=host_of(driver.ip_address),
        port=driver.ssh_port or SSH_PORT,
        username=driver.ssh_user,
        key_path=Path(driver.ssh_key_path) if driver.ssh_key_path else folder / "id_rsa",
    )


def host_of(address: str) -> str:
    """Without the engine's port, which the driver `none` leaves there."""
    return urlsplit(f"//{address}").hostname or "" if address.count(":") == 1 else address
