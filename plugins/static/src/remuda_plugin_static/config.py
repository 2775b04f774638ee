"""Settings of the plugin (`plugin_config`), and their checks. A wrong setting is a PermanentError."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from remuda.fleeting import PermanentError
from remuda_plugin_static.reach import parse_address

MOST_NAME = 80


class Instance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one machine in `instances`."""

    username: Annotated[str, Meta(description="User to log in as; empty: that of connector_config.")] = ""
    password: Annotated[str, Meta(description="That user's password.")] = ""
    key_path: Annotated[str, Meta(description="File with that user's private key.")] = ""
    external_addr: Annotated[str, Meta(description="Host, or HOST:PORT, as seen from outside.")] = ""
    internal_addr: Annotated[str, Meta(description="Host, or HOST:PORT, as seen from the network of the machine.")] = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The configured addresses, the internal one first."""
        return tuple(dict.fromkeys(address for address in (self.internal_addr, self.external_addr) if address))

    def __repr__(self) -> str:
        return f"Instance({', '.join(self.addresses)})"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a group, the content of `plugin_config`."""

    instances: Annotated[dict[str, Instance], Meta(description="The machines, by name.")] = {}
    name: Annotated[
        str,
        Meta(
            description="Name of the group. Groups of one gitlab-runner that share machines need different ones.",
            pattern="^[a-z][a-z0-9-]{0,30}$",
        ),
    ] = "static"
    folder: Annotated[
        str,
        Meta(description="Records of who has which machine; empty: `~/.local/state/fleeting-plugin-static`."),
    ] = ""

    @property
    def place(self) -> Path:
        if self.folder:
            return Path(self.folder).expanduser()
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        return Path(state, "fleeting-plugin-static")


def check(config: Config) -> None:
    """Check the settings. Raises PermanentError for the first that is wrong."""
    if not config.instances:
        raise PermanentError("instances is empty: list the machines, by name, with external_addr or internal_addr")
    if not config.place.is_absolute():
        raise PermanentError(f"folder = {config.folder!r}: an absolute path is needed")
    for name, instance in config.instances.items():
        where = f"instances.{name}"
        if not name or len(name) > MOST_NAME or "/" in name or name.startswith("."):
            raise PermanentError(
                f"instances has a machine called {name!r}: a name of {MOST_NAME} letters at most, which does not begin "
                "with a dot and has no / in it, is needed"
            )
        if not instance.addresses:
            raise PermanentError(f"{where} has neither internal_addr nor external_addr, and so cannot be reached")
        for address in instance.addresses:
            try:
                parse_address(address, 22)
            except ValueError as error:
                raise PermanentError(f"{where}: {error}") from None
        if instance.key_path and not os.access(os.path.expanduser(instance.key_path), os.R_OK):
            raise PermanentError(f"{where}.key_path = {instance.key_path!r}: the file cannot be read")
