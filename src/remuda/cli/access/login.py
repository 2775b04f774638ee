"""`remuda login` and `remuda logout`: keep addresses and tokens of cells as profiles in the user's configuration."""

import os
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from cyclopts import Parameter

from remuda.cli.access.cell_address import check_address, check_token
from remuda.cli.access.confirmation import read_secret
from remuda.cli.access.profiles import (
    Profile,
    Profiles,
    add_profile,
    profiles_file,
    read_profiles,
    remove_profile,
    write_profiles,
)
from remuda.cli.options import Output
from remuda.cli.render.listing import Columns, print_list
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient


def login(
    url: Annotated[str, Parameter(help="Address of the cell [default: that of --profile].", show_default=False)] = "",
    /,
    *,
    profile: Annotated[
        str, Parameter(help="Name of the profile [default: the host of the cell].", show_default=False)
    ] = "",
    list_profiles: Annotated[
        bool, Parameter(name=("--list", "-l"), negative=(), help="List the profiles. * marks the current one.")
    ] = False,
    use: Annotated[str, Parameter(help="Make this profile the current one.", show_default=False)] = "",
    output: Output = "text",
) -> None:
    """Sign in to a cell, so that commands find it without options.

    Reads a token (personal, of a project or of a group) from the terminal without echo, or from stdin, and asks the
    cell whether it is valid. Address and token become a profile in the file `profiles.json` in the user's configuration
    folder, which only its owner can read. It is then the current profile.

    A command uses, in this order: its options --url, --profile and --data (the cell of `remuda up` with this folder);
    the variables REMUDA_URL, REMUDA_TOKEN and REMUDA_PROFILE; the current profile; the cell of `remuda up`.

    Try:

        remuda login https://ci.example.org
        remuda login https://ci.example.org --profile work < token.txt
        remuda login --list
        remuda login --use work
        remuda job list --profile work
    """
    file = profiles_file()
    profiles = read_profiles(file)
    if list_profiles:
        _list(profiles, output)
    elif use:
        profiles.find(use)
        write_profiles(file, Profiles(current=use, profiles=profiles.profiles))
        print(f"{use} is the current profile now")
    else:
        address = _address(url, profile, profiles)
        token = read_secret(f"Token for {address}").strip()
        if not token:
            raise BadInputError(
                "no token was given; create one with `remuda token create`, or take the administrator's token that the "
                "cell printed when it first started"
            )
        check_token(token, "what was read")
        user = event_loop.run(_check(address, token))
        name = profile or urlsplit(address).netloc
        # Others may have signed in while the token was typed.
        profiles = add_profile(read_profiles(file), name, Profile(url=address, token=token, username=user["username"]))
        write_profiles(file, profiles)
        until = f"; the token ends at {user['expires_at']}" if user["expires_at"] else ""
        print(f"signed in to {address} as {user['username']}, profile {name}{until}")


def logout(
    *,
    profile: Annotated[str, Parameter(help="Name of the profile [default: the current one].", show_default=False)] = "",
    all_profiles: Annotated[bool, Parameter(name=("--all", "-a"), negative=(), help="Forget all profiles.")] = False,
) -> None:
    """Forget a profile of `remuda login`, with its token. The token stays valid; `remuda token revoke` ends it.

    Try:

        remuda logout
        remuda logout --profile work
    """
    file = profiles_file()
    profiles = read_profiles(file)
    if all_profiles:
        write_profiles(file, Profiles())
        print("all profiles are removed")
        return
    name = profile or os.environ.get("REMUDA_PROFILE") or profiles.current
    if not name:
        raise BadInputError("there is no current profile; name one with --profile (`remuda login --list` lists them)")
    write_profiles(file, remove_profile(profiles, name))
    print(f"the profile {name} is removed")


def _list(profiles: Profiles, output: str) -> None:
    entries: list[dict[str, Any]] = [
        {"name": name, "url": profile.url, "username": profile.username, "is_current": name == profiles.current}
        for name, profile in sorted(profiles.profiles.items())
    ]
    columns: Columns = {
        "": lambda entry: "*" if entry["is_current"] else "",
        "profile": "name",
        "address": "url",
        "user": "username",
    }
    print_list(entries, columns, output, nothing="there are no profiles; create one with `remuda login URL`")


def _address(url: str, profile: str, profiles: Profiles) -> str:
    if not url and profile in profiles.profiles:
        url = profiles.profiles[profile].url
    url = (url or os.environ.get("REMUDA_URL") or "").rstrip("/")
    if not url:
        raise BadInputError("which cell? Give its address: remuda login https://ci.example.org")
    check_address(url)
    return url


async def _check(url: str, token: str) -> dict[str, str]:
    """Return the name of the token's user, and when the token ends ('': never, or the cell does not say)."""
    from remuda.wire.user_client import RefusedError, UserClient

    async with UserClient(url, token) as client:
        try:
            user = await client.call("GET", "/api/v4/user")
        except RefusedError as error:
            if error.status == 401:
                raise BadInputError(
                    f"the cell at {url} does not accept this token; is it complete, and neither expired nor revoked?"
                ) from None
            raise
        return {"username": user["username"], "expires_at": await _end_of_token(client)}


async def _end_of_token(client: "UserClient") -> str:
    from remuda.wire.user_client import RefusedError

    try:
        token = await client.call("GET", "/api/v4/personal_access_tokens/self")
    except RefusedError:
        return ""
    return str(token.get("expires_at") or "")
