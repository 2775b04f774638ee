"""Parses the handshake line of an environment plugin, and chooses the protocol version. Pure.

`remuda-environment|VERSIONS|unix|PATH` is the first line on stdout, printed once the plugin accepts calls. VERSIONS are
the protocol versions that it speaks, separated by commas; PATH is its socket."""

import re
from collections.abc import Collection

from remuda.environments.errors import PluginError
from remuda.lib.dataclass import dataclass

MAGIC = "remuda-environment"
VERSIONS = (1, 2)
"""Versions of this host, and of the SDK unless a plugin names others."""
HOOKS_AND_USAGE = 2
"""First version with Before, After and Usage."""
COOKIE = "REMUDA_ENVIRONMENT_PLUGIN"
"""Variable with the versions of the host. Without it a plugin was not started by a host."""
SOCKETS = "REMUDA_ENVIRONMENT_SOCKETS"
"""Variable with a folder for the plugin's socket, which only the host's user can open."""
_VERSIONS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    versions: tuple[int, ...]
    path: str

    @property
    def line(self) -> str:
        return f"{MAGIC}|{join_versions(self.versions, ',')}|unix|{self.path}"


def read_handshake(line: str) -> Handshake:
    """Parse the handshake line. Raises PluginError, which says what is wrong with it."""
    shape = f"the first line on stdout has to be {MAGIC}|VERSIONS|unix|PATH"
    magic, *rest = line.strip().split("|")
    if magic != MAGIC or len(rest) != 3:
        raise PluginError(f"this is no handshake: {line.strip()[:200]!r}; {shape}, and nothing may be printed before")
    versions, network, path = rest
    if not _VERSIONS.fullmatch(versions):
        raise PluginError(f"the handshake has invalid versions: {versions!r}; write numbers separated by commas")
    if network != "unix" or not path.startswith("/"):
        raise PluginError(f"the handshake has {network!r} and {path!r}; only unix and an absolute path are supported")
    return Handshake(versions=tuple(int(version) for version in versions.split(",")), path=path)


def common_version(plugin: Collection[int], host: Collection[int] = VERSIONS) -> int:
    """The highest protocol version that plugin and host have in common. Raises PluginError if there is none."""
    shared = set(plugin) & set(host)
    if not shared:
        newer = "Remuda" if max(plugin) > max(host) else "plugin"
        raise PluginError(
            f"no protocol version in common: the plugin speaks {join_versions(plugin)}, "
            f"this Remuda {join_versions(host)}; use a newer {newer}"
        )
    return max(shared)


def join_versions(versions: Collection[int], between: str = ", ") -> str:
    return between.join(str(version) for version in sorted(versions))
