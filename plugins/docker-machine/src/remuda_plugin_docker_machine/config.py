"""Settings of the plugin (`plugin_config`), and their checks. A wrong setting is a PermanentError."""

import os
import re
import shutil
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from remuda.fleeting import PermanentError

PREFIX = "remuda-"
"""Prefix of all machines' names, to recognise them at the provider."""
PROGRAMS = ("setsid", "sh", "timeout")
MOST_NAME = 63
_SAMPLE = "0123456789"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]*")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a group, the content of `plugin_config`."""

    machine_driver: Annotated[str, Meta(description="docker-machine's driver, such as `google` or `amazonec2`.")] = ""
    machine_name: Annotated[
        str, Meta(description="Name of machines; `%s` becomes a random text. `remuda-` is put before the name.")
    ] = "machine-%s"
    machine_options: Annotated[
        tuple[str, ...],
        Meta(description="Options of the driver, without the dashes, such as `google-zone=europe-west1-b`."),
    ] = ()
    machine_options_with_name: Annotated[
        tuple[str, ...], Meta(description="Further options, in which `%s` becomes the name of the machine.")
    ] = ()
    name: Annotated[
        str,
        Meta(
            description="Name of the group, unique among groups of one owner, or of one gitlab-runner, in a store.",
            pattern="^[a-z][a-z0-9-]{0,30}$",
        ),
    ] = "docker-machine"
    program: Annotated[str, Meta(description="docker-machine, by its path or by its name on PATH.")] = "docker-machine"
    storage_path: Annotated[
        str,
        Meta(description="docker-machine's store; empty: `$MACHINE_STORAGE_PATH`, or `~/.docker/machine`."),
    ] = ""
    max_size: Annotated[int, Meta(description="Maximum number of machines.", ge=0, le=100_000)] = 10_000
    create_at_once: Annotated[
        int, Meta(description="Maximum number of machines that are created at the same time.", ge=1)
    ] = 10
    create_timeout: Annotated[
        int, Meta(description="Seconds after which the creation of a machine is given up.", ge=1)
    ] = 1200
    remove_timeout: Annotated[
        int, Meta(description="Time limit of one attempt to remove a machine, in seconds.", ge=1)
    ] = 300
    remove_attempts: Annotated[
        int,
        Meta(
            description="Attempts to remove a machine; then docker-machine forgets it, even if it still exists.", ge=1
        ),
    ] = 30

    @property
    def place(self) -> Path:
        path = self.storage_path or os.environ.get("MACHINE_STORAGE_PATH")
        return Path(path).expanduser() if path else Path.home() / ".docker/machine"

    def new_name(self, mark: str) -> str:
        return PREFIX + self.machine_name.replace("%s", mark)


def check(config: Config) -> None:
    """Check the settings on this host. Raises PermanentError for the first that is wrong."""
    if not config.machine_driver:
        raise PermanentError("machine_driver is missing: name the driver of docker-machine that makes the machines")
    if "%s" not in config.machine_name:
        raise PermanentError(
            f"machine_name = {config.machine_name!r} has no %s in it, so all machines would have one name; add it"
        )
    name = config.new_name(_SAMPLE)
    if not _NAME.fullmatch(name) or len(name) > MOST_NAME:
        raise PermanentError(
            f"machine_name = {config.machine_name!r} makes names such as {name}: names of hosts are needed, "
            f"{MOST_NAME} letters, digits, dots and dashes at most"
        )
    if not config.place.is_absolute():
        raise PermanentError(f"storage_path = {str(config.place)!r}: an absolute path is needed")
    if shutil.which(config.program) is None:
        raise PermanentError(f"there is no {config.program}: install docker-machine, or name its path in program")
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise PermanentError(f"programs are missing: {', '.join(absent)}; install util-linux and coreutils")
