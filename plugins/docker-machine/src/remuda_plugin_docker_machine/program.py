"""Runs docker-machine, and reads its files of a machine.

Every run has a deadline, which `timeout` enforces even if this process is gone. Creates and removes run detached from
this process: an interrupted create would leave a machine at the provider that is in no record."""

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
"""A run that does not end by SIGTERM is killed after this time."""
TIMED_OUT = (124, 137)
"""Exit codes of `timeout` at the deadline: ended by SIGTERM, killed."""
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
    """Result of a run of docker-machine."""

    code: int
    output: str

    @property
    def cause(self) -> str:
        """The error as one line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        text = " / ".join(lines[-3:])[-500:] or "no output"
        return f"it took too long: {text}" if self.code in TIMED_OUT else f"exit code {self.code}: {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """docker-machine's data for the login to a machine."""

    address: str
    """Empty: docker-machine has not stored it."""
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
    """Arguments with which docker-machine makes a machine."""
    options = [*config.machine_options, *(text.replace("%s", name) for text in config.machine_options_with_name)]
    words = [option if option.startswith("-") else f"--{option}" for option in options]
    return ["create", "--driver", config.machine_driver, *words, name]


def environment(store: Path) -> Mapping[str, str]:
    """Environment for docker-machine with the store `store` and without crash reports to third parties."""
    return os.environ | {"MACHINE_STORAGE_PATH": str(store), "MACHINE_BUGSNAG_API_TOKEN": "no-report"}


async def run(config: Config, words: Sequence[str], *, seconds: int) -> Ran:
    """Run docker-machine with the arguments `words` and wait for its end. It is stopped after `seconds`."""
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
    """Start docker-machine with the arguments `words`, detached from this process. It is stopped after `seconds`. It
    inherits the descriptor `lock`, so the lock is held until its end. Then `folder` has `VERB.exit` with the exit code
    and `VERB.log` with the output. Blocks for a moment."""
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
    """Make the certificates of the store with a dummy machine `name`, because concurrent creates would each make their
    own. Raises PermanentError if docker-machine fails."""
    made = await run(config, ["create", "--driver", "none", "--url", "tcp://127.0.0.1:2376", name], seconds=60)
    await run(config, ["rm", "-f", name], seconds=60)
    if made.code != 0:
        raise PermanentError(f"{config.program} cannot make its certificates: {made.cause}")


async def state_of(config: Config, name: str) -> str:
    """State of a machine as docker-machine prints it; "nothing" if docker-machine fails or prints none."""
    words = ["ls", "-t", str(LIST_SECONDS), "--filter", f"name=^{re.escape(name)}$", "--format", "{{.State}}"]
    ran = await run(config, words, seconds=3 * LIST_SECONDS)
    return ran.output.strip() if ran.code == 0 and ran.output.strip() else "nothing"


async def ask_address(config: Config, name: str) -> str:
    """Ask docker-machine for the address of a machine. Raises TemporaryError if there is none yet."""
    ran = await run(config, ["ip", name], seconds=30)
    address = ran.output.strip().rpartition("\n")[2]
    if ran.code != 0 or not address:
        raise TemporaryError(f"{name} has no address yet: {ran.cause}")
    return host_of(address)


def read_login(folder: Path) -> Login:
    """Read the login data in docker-machine's folder of a machine. Raises TemporaryError if it cannot be read."""
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
    """The host of an address, without the port of the engine that the driver `none` adds."""
    return urlsplit(f"//{address}").hostname or "" if address.count(":") == 1 else address
