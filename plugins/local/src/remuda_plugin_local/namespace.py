"""Start of a machine of kind `namespace`: its files, and its command."""

from importlib.resources import files
from ipaddress import IPv4Network
from pathlib import Path

from remuda_plugin_local.addresses import LINK_PREFIX, candidates, host_address
from remuda_plugin_local.cgroups import PARENT, Hierarchy
from remuda_plugin_local.config import Config
from remuda_plugin_local.keys import new_key

_BOOT = (files(__package__) / "boot.sh").read_text()
# In version 2 a group with processes cannot have subgroups with controllers. The machine's own group, which is the top
# of what it sees, needs them for its jobs. So its processes move into a subgroup, and their children start there. A
# process that forks before it is moved leaves its child behind, so the list is read again until it is empty.
_LEAVE_TOP = """
for top in $TOPS; do
    mkdir -p "$top/machine"
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        processes=$(cat "$top/cgroup.procs")
        [ -n "$processes" ] || break
        for process in $processes; do
            echo "$process" >"$top/machine/cgroup.procs" || :
        done 2>/dev/null
    done
done
exec "$@"
"""
_SSHD = """
HostKey /run/machine-sshd/host_key
AuthorizedKeysFile /run/machine-sshd/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
UseDNS no
PrintMotd no
PidFile none
LogLevel ERROR
MaxStartups 200
MaxSessions 1000
Subsystem sftp internal-sftp
"""


def link_name(machine: str) -> str:
    """Name of the network link to a machine on this host, at most 15 characters."""
    return f"{LINK_PREFIX}{machine.rpartition('-')[2]}"


def prepare(folder: Path, authorized: str) -> None:
    """Write the files that `boot.sh` reads into a machine's folder. `authorized`: public key that may log in."""
    (folder / "host_key").write_bytes(new_key())
    (folder / "host_key").chmod(0o600)
    (folder / "authorized_keys").write_text(f"{authorized}\n")
    (folder / "sshd_config").write_text(_SSHD)


def command(
    config: Config, machine: str, folder: Path, *, login: str, cgroups: tuple[Hierarchy, ...]
) -> tuple[dict[str, str], list[str]]:
    """Environment and arguments of the command that starts a machine. `login`: name of the user who logs in."""
    network = IPv4Network(config.network)
    environment = {
        "MACHINE": machine,
        "STORE": str(config.place),
        "ROOT": config.root,
        "LINK": link_name(machine),
        "HOST": host_address(network),
        "ADDRESSES": " ".join(candidates(network, machine)),
        "NAMESERVER": config.nameserver,
        "LOGIN": login,
        "HIDDEN": " ".join(config.hidden),
        "CGROUPS": " ".join(_mounts(cgroups)),
        "START": config.start,
        "TOPS": " ".join(str(hierarchy.path / PARENT / machine) for hierarchy in cgroups if not hierarchy.options),
    }
    spaces = ["--mount", "--net", "--pid", "--uts", "--ipc"]
    leave = ["unshare", "--cgroup", "sh", "-c", _LEAVE_TOP, "leave"]
    return environment, [*leave, "unshare", *spaces, "--fork", "--kill-child", "sh", "-c", _BOOT, "boot"]


def _mounts(cgroups: tuple[Hierarchy, ...]) -> list[str]:
    """Mount points of `cgroups` at or below /sys/fs/cgroup, as PATH:OPTIONS with PATH relative to that folder."""
    above = Path("/sys/fs/cgroup")
    mounts = []
    for hierarchy in cgroups:
        if hierarchy.path == above:
            mounts.append(f":{hierarchy.options}")
        elif hierarchy.path.is_relative_to(above):
            mounts.append(f"/{hierarchy.path.relative_to(above)}:{hierarchy.options}")
    return mounts
