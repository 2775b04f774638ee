"""The runner of `remuda up`: finds that of an earlier start, or creates it, and sets whether it takes jobs with tags.

Its token is stored in the data folder of the platform. A start that is interrupted leaves at most one unused runner."""

from pathlib import Path

from remuda.localrun.client_file import Access, read_access, write_access
from remuda.manager.registration.system_id import system_id
from remuda.model.runner import ANY_TAG
from remuda.wire.user_client import RefusedError, UserClient

RUNNER_FILE = "runner.json"
"""File with the URL and the token of the platform's own runner, in the format of `remuda.localrun.client_file`."""


async def ensure_runner(client: UserClient, folder: Path, *, url: str, manager_data: Path, is_tagged: bool) -> str:
    """Return the token of the platform's runner, which is stored in `folder`. Creates a runner if none is stored, or if
    the cell does not know it. `is_tagged`: the runner takes jobs with tags, whatever these are."""
    access = read_access(folder, RUNNER_FILE)
    runner_id = await _find_runner(client, access.token, manager_data) if access is not None else None
    if access is None or runner_id is None:
        runner = await client.add_instance_runner("remuda up", tags=[ANY_TAG] if is_tagged else [])
        access = Access(url=url, token=runner.token)
        # So that a push at once does not say that the runner was never seen.
        await _find_runner(client, runner.token, manager_data)
    else:
        tags = await client.list_runner_tags(runner_id)
        if is_tagged != (ANY_TAG in tags):
            others = [tag for tag in tags if tag != ANY_TAG]
            await client.tag_runner(runner_id, [*others, ANY_TAG] if is_tagged else others)
    write_access(folder, Access(url=url, token=access.token), RUNNER_FILE)
    return access.token


async def _find_runner(client: UserClient, token: str, manager_data: Path) -> int | None:
    """Return the id of the runner with this token; None if the cell does not know it. For the cell this is a call of
    the manager. Its system id is sent, because a call without one counts as that of another manager."""
    manager_data.mkdir(mode=0o700, parents=True, exist_ok=True)
    body = {"token": token, "system_id": system_id(manager_data)}
    try:
        answer = await client.call("POST", "/api/v4/runners/verify", body)
    except RefusedError:
        return None
    return int(answer["id"])
