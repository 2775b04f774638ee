"""The part of the store in memory that keeps who there is and what is whose: people, tokens, projects, runners."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.values import Page, Project, ProjectVariable, Runner, RunnerManager, UserToken
from remuda.cell.values.people import (
    ALL_PROJECTS,
    ALL_RUNNERS,
    FIRST_NAMESPACE,
    FIRST_ORGANIZATION,
    FIRST_USER,
    Member,
    Namespace,
    NamespaceFilter,
    Organization,
    ProjectFilter,
    RunnerFilter,
    User,
)
from remuda.lib.ids import range_of_cell
from remuda.model.job import ProjectId, RunnerId
from remuda.model.runner import Pool

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_VariableKey = tuple[int, int, str, str]


class MemoryPeople:
    """Who there is, what is whose."""

    def __init__(self, cell_id: int = 1) -> None:
        self._ids = range_of_cell(cell_id)
        self._last_id: dict[str, int] = {}
        self._organizations = {FIRST_ORGANIZATION.id: FIRST_ORGANIZATION}
        self._namespaces = {FIRST_NAMESPACE.id: FIRST_NAMESPACE}
        self._users = {FIRST_USER.id: FIRST_USER}
        self._members: dict[tuple[Pool, int], Member] = {}
        self._user_tokens: dict[str, UserToken] = {}
        self._projects: dict[ProjectId, Project] = {}
        self._variables: dict[_VariableKey, ProjectVariable] = {}
        self._runners: dict[RunnerId, Runner] = {}
        self._managers: dict[tuple[RunnerId, str], RunnerManager] = {}

    def _draw(self, table: str) -> int:
        number = self._ids.after(self._last_id.get(table))
        self._last_id[table] = number
        return number

    def _draw_free(self, table: str, taken: Iterable[int]) -> int:
        numbers = set(taken)
        while (number := self._draw(table)) in numbers:
            pass
        return number

    # organizations and namespaces

    async def add_organization(self, organization: Organization) -> Organization:
        if any(one.path.casefold() == organization.path.casefold() for one in self._organizations.values()):
            raise ConflictError(f"there is an organization {organization.path} already")
        added = replace(organization, id=self._draw_free("organizations", self._organizations))
        self._organizations[added.id] = added
        return added

    async def load_organization(self, organization_id: int) -> Organization | None:
        return self._organizations.get(organization_id)

    async def list_organizations(self) -> Sequence[Organization]:
        return [self._organizations[number] for number in sorted(self._organizations)]

    async def add_namespace(self, namespace: Namespace, *, first: Member | None = None) -> Namespace:
        await self._check_path(namespace.path)
        added = replace(namespace, id=self._draw_free("namespaces", self._namespaces))
        self._namespaces[added.id] = added
        if first is not None:
            await self.put_member(replace(first, owner=("group", added.id)))
        return added

    async def _check_path(self, path: str, but: ProjectId | None = None) -> None:
        known = await self.find_project(path)
        if (known and known.id != but) or await self.find_namespace(path):
            raise ConflictError(f"there is a project or group {path} already")

    async def load_namespace(self, namespace_id: int) -> Namespace | None:
        return self._namespaces.get(namespace_id)

    async def find_namespace(self, path: str) -> Namespace | None:
        wanted = path.casefold()
        return next((one for one in self._namespaces.values() if one.path.casefold() == wanted), None)

    async def list_namespaces(self, page: Page, wanted: NamespaceFilter) -> tuple[Sequence[Namespace], int]:
        found = [one for one in self._namespaces.values() if wanted.fits(one)]
        return cut(sorted(found, key=lambda one: one.path.casefold()), page)

    async def put_namespace(self, namespace: Namespace) -> None:
        if namespace.id not in self._namespaces:
            raise NotFoundError(f"there is no group {namespace.id}")
        self._namespaces[namespace.id] = namespace

    async def remove_namespace(self, namespace_id: int) -> bool:
        full = any(p.namespace_id == namespace_id and p.removed_at is None for p in self._projects.values())
        if full or any(one.parent_id == namespace_id for one in self._namespaces.values()):
            raise ConflictError(f"there is something in group {namespace_id}")
        for at in [at for at in self._members if at[0] == ("group", namespace_id)]:
            del self._members[at]
        for key in [key for key in self._variables if key[:2] == (0, namespace_id)]:
            del self._variables[key]
        return removed(self._namespaces, namespace_id)

    # people

    async def add_user(self, user: User, namespace: Namespace) -> User:
        if await self.find_user(user.username):
            raise ConflictError(f"there is a user {user.username} already")
        await self._check_path(namespace.path)
        user_id = self._draw_free("users", self._users)
        own = await self.add_namespace(replace(namespace, owner_id=user_id))
        self._users[user_id] = replace(user, id=user_id, namespace_id=own.id)
        return self._users[user_id]

    async def load_user(self, user_id: int) -> User | None:
        return self._users.get(user_id)

    async def find_user(self, username: str) -> User | None:
        wanted = username.casefold()
        return next((user for user in self._users.values() if user.username.casefold() == wanted), None)

    async def list_users(
        self, page: Page, *, search: str = "", organization_id: int | None = None
    ) -> tuple[Sequence[User], int]:
        wanted = search.casefold()
        found = (
            user
            for user in self._users.values()
            if organization_id in (None, user.organization_id)
            and (wanted in f"{user.username}\n{user.name}".casefold() or wanted == user.email.casefold())
        )
        return page_of(found, page)

    async def put_user(self, user: User) -> None:
        if user.id not in self._users:
            raise NotFoundError(f"there is no user {user.id}")
        self._users[user.id] = user

    async def put_member(self, member: Member) -> None:
        self._members[member.owner, member.user_id] = member

    async def remove_member(self, owner: Pool, user_id: int) -> bool:
        return removed(self._members, (owner, user_id))

    async def list_members(self, owner: Pool) -> Sequence[Member]:
        return [self._members[at] for at in sorted(self._members) if at[0] == owner]

    async def list_memberships(self, user_id: int) -> Sequence[Member]:
        return [self._members[at] for at in sorted(self._members) if at[1] == user_id]

    # their tokens

    async def find_user_token(self, token_hash: str) -> UserToken | None:
        return self._user_tokens.get(token_hash)

    async def list_user_tokens(self) -> Sequence[UserToken]:
        return list(self._user_tokens.values())

    async def put_user_token(self, token: UserToken) -> None:
        self._user_tokens[token.token_hash] = token

    async def add_user_token(self, token: UserToken, *, instead_of: int | None = None) -> UserToken:
        if token.token_hash in self._user_tokens:
            raise ConflictError("there is such a token already")
        if instead_of is not None:
            old = await self.load_user_token(instead_of)
            if old is None or old.revoked:
                raise ConflictError("the token is revoked already")
            self._user_tokens[old.token_hash] = replace(old, revoked=True)
        added = replace(token, id=self._draw_free("user_tokens", (one.id for one in self._user_tokens.values())))
        self._user_tokens[added.token_hash] = added
        return added

    async def load_user_token(self, token_id: int) -> UserToken | None:
        return next((one for one in self._user_tokens.values() if one.id == token_id), None)

    async def list_user_tokens_of(self, user_id: int | None) -> Sequence[UserToken]:
        found = [one for one in self._user_tokens.values() if user_id in (None, one.user_id)]
        return sorted(found, key=lambda one: one.id)

    async def change_user_token(
        self, token_id: int, decide: Callable[[UserToken], UserToken | None]
    ) -> UserToken | None:
        token = await self.load_user_token(token_id)
        changed = decide(token) if token else None
        if changed is not None:
            self._user_tokens[changed.token_hash] = changed
        return changed

    # projects and variables

    async def add_project(self, project: Project) -> Project:
        await self._check_path(project.path)
        project = replace(project, id=ProjectId(self._draw("projects")))
        self._projects[project.id] = project
        return project

    async def load_project(self, project_id: ProjectId) -> Project | None:
        return self._projects.get(project_id)

    async def find_project(self, path: str) -> Project | None:
        wanted = path.casefold()
        return next((project for project in self._projects.values() if project.path.casefold() == wanted), None)

    async def list_projects(self, page: Page, wanted: ProjectFilter = ALL_PROJECTS) -> tuple[Sequence[Project], int]:
        return page_of((project for project in self._projects.values() if wanted.fits(project)), page)

    async def change_project(
        self, project_id: ProjectId, decide: Callable[[Project], Project | None]
    ) -> Project | None:
        project = self._projects.get(project_id)
        changed = decide(project) if project else None
        if changed is not None:
            await self._check_path(changed.path, but=project_id)
            self._projects[project_id] = changed
        return changed

    async def list_variables(self, project_id: ProjectId) -> Sequence[ProjectVariable]:
        return [self._variables[at] for at in sorted(self._variables) if at[:2] == (project_id, 0)]

    async def list_shared_variables(self, group_ids: Sequence[int]) -> Sequence[ProjectVariable]:
        groups = {0, *group_ids}
        return [self._variables[at] for at in sorted(self._variables) if at[0] == 0 and at[1] in groups]

    async def put_variable(self, variable: ProjectVariable, *, replace: bool) -> bool:
        at = (variable.project_id, variable.group_id, variable.key, variable.environment_scope)
        if (at in self._variables) is not replace:
            return False
        self._variables[at] = variable
        return True

    async def remove_variable(
        self, project_id: ProjectId, key: str, environment_scope: str = "*", *, group_id: int = 0
    ) -> bool:
        return removed(self._variables, (project_id, group_id, key, environment_scope))

    # runners

    async def add_runner(self, runner: Runner) -> Runner:
        if await self.find_runner(runner.token_hash):
            raise ConflictError("there is a runner with this token already")
        runner = replace(runner, id=RunnerId(self._draw("runners")))
        self._runners[runner.id] = runner
        return runner

    async def load_runner(self, runner_id: RunnerId) -> Runner | None:
        return self._runners.get(runner_id)

    async def find_runner(self, token_hash: str) -> Runner | None:
        return next((runner for runner in self._runners.values() if runner.token_hash == token_hash), None)

    async def list_runners(self, page: Page, wanted: RunnerFilter = ALL_RUNNERS) -> tuple[Sequence[Runner], int]:
        contacts: dict[RunnerId, float] = {}
        for (runner_id, _), manager in self._managers.items():
            contacts[runner_id] = max(contacts.get(runner_id, 0), manager.contacted_at)
        return page_of((one for one in self._runners.values() if wanted.fits(one, contacts.get(one.id))), page)

    async def put_runner(self, runner: Runner) -> None:
        if runner.id not in self._runners:
            raise NotFoundError(f"there is no runner {runner.id}")
        self._runners[runner.id] = runner

    async def change_runner(self, runner_id: RunnerId, decide: Callable[[Runner], Runner | None]) -> Runner | None:
        runner = self._runners.get(runner_id)
        changed = decide(runner) if runner else None
        if changed is not None:
            self._runners[runner_id] = changed
        return changed

    async def remove_runner(self, runner_id: RunnerId) -> bool:
        for at in [at for at in self._managers if at[0] == runner_id]:
            del self._managers[at]
        return removed(self._runners, runner_id)

    async def put_manager(self, manager: RunnerManager) -> None:
        if manager.runner_id not in self._runners:
            raise NotFoundError(f"there is no runner {manager.runner_id}")
        self._managers[manager.runner_id, manager.system_id] = manager

    async def load_manager(self, runner_id: RunnerId, system_id: str) -> RunnerManager | None:
        return self._managers.get((runner_id, system_id))

    async def list_managers(self, runner_id: RunnerId) -> Sequence[RunnerManager]:
        return [self._managers[at] for at in sorted(self._managers) if at[0] == runner_id]

    async def remove_manager(self, runner_id: RunnerId, system_id: str) -> bool:
        return removed(self._managers, (runner_id, system_id))


def page_of(values: Iterable[T], page: Page) -> tuple[list[T], int]:
    """Newest first: every dictionary here keeps the order in which things came."""
    return cut(list(values)[::-1], page)


def cut(ordered: list[T], page: Page) -> tuple[list[T], int]:
    """One page of a list of things that have ids."""
    found: list[Any] = ordered
    if page.ascending is not None:
        found = sorted(found, key=lambda one: one.id, reverse=not page.ascending)
    if page.after is not None:
        found = [one for one in found if one.id > page.after]
    if page.before is not None:
        found = [one for one in found if one.id < page.before]
    start = (page.number - 1) * page.size
    return found[start : start + page.size], len(found) if page.counted else 0


def removed(values: dict[K, T], key: K) -> bool:
    """Whether there was one to remove."""
    return values.pop(key, None) is not None
