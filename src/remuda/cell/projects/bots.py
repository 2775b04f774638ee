"""Removes the bots of access tokens: with their project or group, and a month after their token became unusable."""

from itertools import count

from remuda.cell.store.ports import Store
from remuda.cell.values import Page, UserToken
from remuda.cell.values.people import User
from remuda.lib.clock import Clock
from remuda.model.job import ProjectId
from remuda.model.runner import Pool

KEPT_SECONDS = 30 * 24 * 3600
"""How long a bot without a usable token is listed with that token, as in GitLab."""
_PAGE = 100


async def remove_bots(store: Store, owner: Pool) -> None:
    """Remove the bots of a project or group that is deleted, with their tokens."""
    for member in await store.people.list_members(owner):
        user = await store.people.load_user(member.user_id)
        if user is not None and user.bot_of == owner:
            await store.people.remove_user(user.id)


def is_unused(tokens: list[UserToken], now: float) -> bool:
    """True if no token of a bot was usable within KEPT_SECONDS. For a revoked token the last known use counts."""
    return all(
        (token.revoked and (token.last_used_at or token.created_at) + KEPT_SECONDS < now)
        or (token.expires_at is not None and token.expires_at + KEPT_SECONDS < now)
        for token in tokens
    )


async def remove_unused_bots(store: Store, clock: Clock) -> int:
    """Remove bots whose project or group is gone or whose tokens are unused (`is_unused`). Returns how many."""
    unused: list[User] = []
    for number in count(1):
        users, _ = await store.people.list_users(Page(number=number, size=_PAGE, counted=False))
        bots = [(user, user.bot_of) for user in users if user.bot_of is not None]
        unused += [user for user, owner in bots if await _is_removable(store, user, owner, clock.wall())]
        if len(users) < _PAGE:
            break
    for user in unused:
        await store.people.remove_user(user.id)
    return len(unused)


async def _is_removable(store: Store, bot: User, owner: Pool, now: float) -> bool:
    kind, number = owner
    if kind == "project":
        project = await store.projects.load_project(ProjectId(number))
        is_gone = project is None or project.removed_at is not None
    else:
        is_gone = await store.people.load_namespace(number) is None
    return is_gone or is_unused(list(await store.people.list_user_tokens_of(bot.id)), now)
