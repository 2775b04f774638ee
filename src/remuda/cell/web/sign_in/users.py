"""The user of the cell for somebody who signs in with an OpenID Connect provider: found by the provider's id of the
user, linked or created at the first sign-in, and given the rights that the provider decides."""

from msgspec.structs import replace

from remuda.cell.errors import ConflictError
from remuda.cell.store.ports import Store
from remuda.cell.values import ORGANIZATION_ID, USER_ID
from remuda.cell.values.people import Member, Namespace, User
from remuda.cell.values.sessions import Identity
from remuda.cell.web.sign_in.claims import Profile
from remuda.cell.web.sign_in.errors import SignInError
from remuda.cell.web_settings import OidcSettings
from remuda.telemetry.logs import logger

_log = logger("cell")


async def find_or_create_user(store: Store, settings: OidcSettings, profile: Profile, now: float) -> User:
    """Return the user for a profile, with the rights that the provider decides stored. Raises SignInError if there is
    none and none may be created, or if the user is blocked."""
    user = await _find(store, settings, profile) or await _link_or_create(store, settings, profile, now)
    if user.state != "active":
        raise SignInError(
            "Your account has been blocked. Ask an administrator of this cell.",
            reason=f"user {user.username} is blocked",
        )
    # The first user stays an administrator, so that a mistake in the settings locks nobody out.
    if profile.is_admin is not None and profile.is_admin is not user.is_admin and user.id != USER_ID:
        user = replace(user, is_admin=profile.is_admin)
        await store.people.put_user(user)
    await _update_memberships(store, user, profile, now)
    return user


async def _find(store: Store, settings: OidcSettings, profile: Profile) -> User | None:
    identity = await store.sessions.find_identity(settings.issuer, profile.subject)
    return await store.people.load_user(identity.user_id) if identity else None


async def _link_or_create(store: Store, settings: OidcSettings, profile: Profile, now: float) -> User:
    if not profile.username:
        raise SignInError(
            f"{settings.name} sent no user name (claim {settings.username_claim}) that can be one here: letters, "
            "digits, '_', '-' and '.'. An administrator must correct web.oidc.username_claim or web.oidc.scopes.",
            reason=f"claim {settings.username_claim} is missing or no user name",
        )
    identity = Identity(issuer=settings.issuer, subject=profile.subject, user_id=0, created_at=now)
    present = await store.people.find_user(profile.username)
    try:
        if present is None:
            return await _create(store, settings, profile, identity)
        await _link(store, settings, present, identity)
    except ConflictError:
        # A second sign-in at the same time was faster.
        if (user := await _find(store, settings, profile)) is not None:
            return user
        raise SignInError(
            f"The name {profile.username} is taken here by a group or project. Ask an administrator of this cell.",
            reason=f"the name {profile.username} is taken",
        ) from None
    return present


async def _create(store: Store, settings: OidcSettings, profile: Profile, identity: Identity) -> User:
    if not settings.create_users:
        raise SignInError(
            f"There is no user {profile.username} here. Ask an administrator of this cell to create one for you.",
            reason=f"there is no user {profile.username}",
        )
    now = identity.created_at
    user = User(
        id=0,
        username=profile.username,
        name=profile.name,
        email=profile.email,
        created_at=now,
        organization_id=ORGANIZATION_ID,
        is_admin=bool(profile.is_admin),
    )
    namespace = Namespace(
        id=0, path=profile.username, name=profile.name, created_at=now, organization_id=ORGANIZATION_ID
    )
    return await store.people.add_user(user, namespace, identity)


async def _link(store: Store, settings: OidcSettings, user: User, identity: Identity) -> None:
    """Store that a user who exists is somebody at the provider, if the settings allow it and it is nobody else."""
    is_free = user.bot_of is None and not await store.sessions.list_identities(user.id)
    if not (settings.link_users and is_free):
        raise SignInError(
            f"There is a user {user.username} here already, who does not sign in with your account of {settings.name}. "
            "Ask an administrator of this cell: web.oidc.link_users connects them.",
            reason=f"user {user.username} exists already",
        )
    await store.sessions.add_identity(replace(identity, user_id=user.id))


async def _update_memberships(store: Store, user: User, profile: Profile, now: float) -> None:
    """Add, change and remove memberships in the groups of `web.oidc.members`, and in no others."""
    present = {member.owner: member for member in await store.people.list_memberships(user.id)}
    for path, level in profile.levels.items():
        group = await store.people.find_namespace(path)
        if group is None or not group.is_group or group.organization_id != user.organization_id:
            _log.warning("web.oidc.members names a group that does not exist", group=path)
            continue
        member = present.get(("group", group.id))
        if level is None and member is not None:
            await store.people.remove_member(member.owner, user.id)
        elif level is not None and (member is None or (member.level, member.expires_at) != (level, None)):
            created_at = member.created_at if member else now
            await store.people.put_member(
                Member(owner=("group", group.id), user_id=user.id, level=level, created_at=created_at)
            )
