"""The first line of a plugin, and which protocol version both sides speak. Pure.

`remuda-environment|VERSIONS|unix|PATH`: that this is a plugin, the versions it speaks with commas between, where it
listens. It comes on stdout, alone and first, once the plugin can be called.
"""

import re
from collections.abc import Collection

from remuda.environments.errors import PluginError
from remuda.lib.dataclass import dataclass

MAGIC = "remuda-environment"
VERSIONS = (1, 2)
"""What this host speaks, and what the SDK does unless a plugin says otherwise."""
HOOKS_AND_USAGE = 2
"""The version that brought Before, After and Usage."""
COOKIE = "REMUDA_ENVIRONMENT_PLUGIN"
"""The variable by which a plugin knows that a host started it: the versions that the host speaks."""
SOCKETS = "REMUDA_ENVIRONMENT_SOCKETS"
"""The variable with a folder for the plugin's socket, which only the host's user can open."""
_VERSIONS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """What the line says."""

    versions: tuple[int, ...]
    path: str

    @property
    def line(self) -> str:
        return f"{MAGIC}|{join_versions(self.versions, ',')}|unix|{self.path}"


def read_handshake(line: str) -> Handshake:
    """PluginError says what is wrong with the line."""
    shape = f"the first line on stdout has to be {MAGIC}|VERSIONS|unix|PATH"
    magic, *rest = line.strip().split("|")
    if magic != MAGIC or len(rest) != 3:
        raise PluginError(f"this is no handshake: {line.strip()[:200]!r}; {shape}, and nothing may be printed before")
    versions, network, path = rest
    if not _VERSIONS.fullmatch(versions):
        raise PluginError(f"the handshake names no versions, but {versions!r}; write numbers with commas between")
    if network != "unix" or not path.startswith("/"):
        raise PluginError(f"the handshake names {network!r} and {path!r}; only unix and a whole path are known")
    return Handshake(versions=tuple(int(one) for one in versions.split(",")), path=path)


def common_version(plugin: Collection[int], host: Collection[int] = VERSIONS) -> int:
    """The highest that both speak."""
    shared = set(plugin) & set(host)
    if not shared:
        newer = "Remuda" if max(plugin) > max(host) else "plugin"
        raise PluginError(
            f"no protocol version in common: the plugin speaks {join_versions(plugin)}, "
            f"this Remuda {join_versions(host)}; use a newer {newer}"
        )
    return max(shared)


def join_versions(versions: Collection[int], between: str = ", ") -> str:
    return between.join(str(one) for one in sorted(versions))
