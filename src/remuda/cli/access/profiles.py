"""Profiles of `remuda login`: the addresses of cells with tokens, in one file that only its user can read.

One profile is the current one, which commands use without options. The file is replaced as a whole, so that a login
that is interrupted leaves the old one."""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from remuda.lib.exits import BadInputError
from remuda.lib.files import write_whole

FILE_NAME = "profiles.json"
VERSION = 1
OPEN_TO_OTHERS = 0o077


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    token: str
    username: str = ""


class Profiles(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    current: str = ""
    """Name of the profile that commands use if none is named."""
    profiles: dict[str, Profile] = {}

    def find(self, name: str) -> Profile:
        try:
            return self.profiles[name]
        except KeyError:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise BadInputError(
                f"there is no profile {name} (known: {known}); create it with `remuda login URL --profile {name}`"
            ) from None

    def find_by_url(self, url: str) -> Profile | None:
        """Return the profile of a cell; if several have its address, the current one, or else the first by name."""
        names = [name for name, profile in sorted(self.profiles.items()) if profile.url == url]
        names.sort(key=lambda name: name != self.current)
        return self.profiles[names[0]] if names else None


def profiles_file() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir("remuda")) / FILE_NAME


def read_profiles(file: Path) -> Profiles:
    """Read the profiles; none if there is no file. Raises BadInputError if it is damaged, or others can read it."""
    try:
        if file.stat().st_mode & OPEN_TO_OTHERS:
            raise BadInputError(f"{file} has tokens, and other users can access it; correct it: chmod 600 {file}")
        profiles = msgspec.json.decode(file.read_bytes(), type=Profiles)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except (msgspec.DecodeError, OSError) as error:
        raise BadInputError(f"{file} cannot be read: {error}; remove it and call `remuda login` again") from None
    if profiles.version > VERSION:
        raise BadInputError(f"{file} was written by a newer remuda; use that one, or give --url and REMUDA_TOKEN")
    return profiles


def write_profiles(file: Path, profiles: Profiles) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(file, msgspec.json.format(msgspec.json.encode(profiles)) + b"\n", durable=True)


def add_profile(profiles: Profiles, name: str, profile: Profile) -> Profiles:
    """Return the profiles with this one added or replaced, which becomes the current one."""
    return replace(profiles, current=name, profiles={**profiles.profiles, name: profile})


def remove_profile(profiles: Profiles, name: str) -> Profiles:
    """Return the profiles without this one. If it was the current one, there is no current one any more."""
    profiles.find(name)
    rest = {other: profile for other, profile in profiles.profiles.items() if other != name}
    return replace(profiles, current="" if profiles.current == name else profiles.current, profiles=rest)
