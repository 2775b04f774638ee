"""Settings of the plugin (`plugin_config`), and their checks.

A wrong setting is a PermanentError that says what is right. The checks only read the file system."""

import os
import re
import shutil
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from remuda.fleeting import PermanentError
from remuda_plugin_local.addresses import parse_network

PROGRAMS = ("env", "hostname", "ip", "mount", "nsenter", "pivot_root", "setsid", "unshare")
SSHD = "usr/sbin/sshd"
HIDDEN = (
    *("/root", "/home", "/srv", "/var/tmp", "/var/lib/docker", "/etc/gitlab-runner", "/etc/remuda"),
    *("/var/lib/gitlab-runner", "/var/lib/remuda", "/var/lib/remuda-local", "/var/lib/remuda-machine"),
)
FOLDER = "/var/lib/remuda-local"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class QemuConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of machines of kind `qemu`."""

    disk: Annotated[
        str,
        Meta(description="Image of the first disk. It is never written to: changes are removed with the machine."),
    ] = ""
    disk_format: Annotated[str, Meta(description="Format of the image: `qcow2`, `raw` ...")] = "qcow2"
    kernel: Annotated[str, Meta(description="Kernel to boot; empty: the disk has a boot loader.")] = ""
    initrd: Annotated[str, Meta(description="Initial RAM disk for that kernel.")] = ""
    append: Annotated[str, Meta(description="Command line for that kernel.")] = "console=ttyS0 quiet"
    machine: Annotated[str, Meta(description="QEMU's `-machine`.")] = "pc"
    accel: Annotated[str, Meta(description="QEMU's `-accel`; `kvm` if this host has it.")] = "tcg,thread=multi"
    restrict: Annotated[bool, Meta(description="The machine cannot open connections; it only accepts SSH.")] = False
    arguments: Annotated[tuple[str, ...], Meta(description="Further arguments for QEMU.")] = ()
    program: Annotated[str, Meta(description="QEMU's program.")] = "qemu-system-x86_64"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a group, the content of `plugin_config`."""

    kind: Annotated[
        Literal["namespace", "qemu"],
        Meta(
            description="`namespace`: own network, processes and disk, this host's kernel. `qemu`: a virtual machine."
        ),
    ] = "namespace"
    name: Annotated[
        str,
        Meta(description="Name of the group; its machines are called NAME-1a2b3c4d.", pattern="^[a-z][a-z0-9-]{0,30}$"),
    ] = "local"
    folder: Annotated[
        str, Meta(description=f"State and disks of the machines; empty: `{FOLDER}/NAME`. Each group needs its own.")
    ] = ""
    max_size: Annotated[int, Meta(description="Maximum number of machines.", ge=0, le=10_000)] = 100
    memory: Annotated[
        str,
        Meta(
            description="Memory of each machine, such as `2g`; empty: no limit, and 1g for `qemu`.",
            pattern="^([0-9]+[kmgKMG]?)?$",
        ),
    ] = ""
    cpus: Annotated[float, Meta(description="Processors of each machine; 0: no limit, and 1 for `qemu`.", ge=0)] = 0
    root: Annotated[
        str,
        Meta(description="`namespace`: folder with the root file system, never written to; empty: this host's own."),
    ] = ""
    network: Annotated[
        str,
        Meta(description="`namespace`: addresses of machines; the first is this host. Groups may share it."),
    ] = "10.250.0.0/16"
    nameserver: Annotated[
        str, Meta(description="`namespace`: DNS server of machines; empty: name lookups fail at once.")
    ] = ""
    hidden: Annotated[
        tuple[str, ...],
        Meta(description="`namespace` without `root`: folders of this host that are empty on machines."),
    ] = HIDDEN
    start: Annotated[
        str, Meta(description="`namespace`: command line that root runs on a machine before logins are possible.")
    ] = ""
    lease_seconds: Annotated[
        int,
        Meta(
            description="A machine ends if no manager lists the machines for this time; 0: never, else at least 180.",
            ge=0,
        ),
    ] = 0
    qemu: Annotated[QemuConfig, Meta(description="Settings of machines of kind `qemu`.")] = QemuConfig()

    @property
    def place(self) -> Path:
        return Path(self.folder or f"{FOLDER}/{self.name}")

    @property
    def memory_bytes(self) -> int:
        """Memory of each machine in bytes; 0: no limit."""
        digits = self.memory.rstrip("kmgKMG")
        return int(digits or 0) * _UNITS[self.memory[len(digits) :].lower()]


def check(config: Config) -> None:
    """Check the settings on this host. Raises PermanentError for the first that is wrong."""
    if not config.place.is_absolute():
        raise PermanentError(f"folder = {config.folder!r}: an absolute path is needed")
    if "," in str(config.place) or ":" in str(config.place) or re.search(r"\s", str(config.place)):
        raise PermanentError(f"folder = {str(config.place)!r}: a path without blanks, commas and colons is needed")
    if 0 < config.lease_seconds < 180:
        raise PermanentError(
            f"lease_seconds = {config.lease_seconds}: managers list machines about once a minute, so at least 180 "
            "is needed, or 0 for no lease"
        )
    if config.kind == "namespace":
        _check_namespace(config)
    else:
        _check_qemu(config.qemu)


def _check_namespace(config: Config) -> None:
    if os.geteuid() != 0:
        raise PermanentError(
            'kind = "namespace" needs root, and this is user '
            f'{os.geteuid()}: run the runner manager as root, or use kind = "qemu"'
        )
    parse_network(config.network)
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise PermanentError(f"programs are missing: {', '.join(absent)}; install util-linux, iproute2 and coreutils")
    root = Path(config.root or "/")
    if not root.is_absolute() or re.search(r"[\s,:]", config.root) or not root.is_dir():
        raise PermanentError(
            f"root = {config.root!r}: a folder is needed, by an absolute path without blanks, commas and colons"
        )
    if not (root / SSHD).exists():
        raise PermanentError(f"there is no {root / SSHD}: install openssh-server there")


def _check_qemu(qemu: QemuConfig) -> None:
    if shutil.which(qemu.program) is None:
        raise PermanentError(f"there is no {qemu.program}: install qemu-system-x86, or name it in qemu.program")
    if not qemu.disk:
        raise PermanentError('kind = "qemu" needs qemu.disk, the image of a disk')
    for key in ("disk", "kernel", "initrd"):
        path = getattr(qemu, key)
        if path and not (os.path.isabs(path) and os.access(path, os.R_OK)):
            raise PermanentError(f"qemu.{key} = {path!r}: the file cannot be read; an absolute path is needed")
    if "," in qemu.disk:
        raise PermanentError(f"qemu.disk = {qemu.disk!r}: a path without commas is needed")
