"""Contract tests of the store: organizations, namespaces, users, members, tokens, lists and audit events."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.ports import Store
from remuda.cell.values import Page, Project, ProjectVariable, Runner, RunnerManager, UserToken
from remuda.cell.values.audit_events import AuditEvent, AuditFilter
from remuda.cell.values.people import (
    FIRST_NAMESPACE,
    FIRST_ORGANIZATION,
    FIRST_USER,
    ONLINE_SECONDS,
    STALE_SECONDS,
    STATUSES,
    Level,
    Member,
    Namespace,
    NamespaceFilter,
    Organization,
    ProjectFilter,
    RunnerFilter,
    Sight,
    User,
)
from remuda.lib.ids import range_of_cell
from remuda.model.job import ProjectId, RunnerId
from remuda.model.runner import RunnerType
from remuda.testing.builders import a_project, a_runner

NOW = 1_700_000_000.0


def a_group(path: str, **changes: object) -> Namespace:
    return replace(Namespace(id=0, path=path, name=path.title(), created_at=1), **changes)


async def a_user(store: Store, name: str, organization_id: int = 1) -> User:
    user = User(
        id=0, username=name, name=name.title(), email=f"{name}@x.org", created_at=1, organization_id=organization_id
    )
    own = Namespace(id=0, path=name, name=name, created_at=1, organization_id=organization_id)
    return await store.people.add_user(user, own)


class TestNamespaces:
    async def test_a_new_store_has_the_first_organization_namespace_and_user(self, store: Store) -> None:
        assert await store.people.load_organization(1) == FIRST_ORGANIZATION
        assert await store.people.load_namespace(1) == await store.people.find_namespace("ROOT") == FIRST_NAMESPACE
        assert await store.people.load_user(1) == await store.people.find_user("Root") == FIRST_USER

    async def test_organizations(self, store: Store) -> None:
        added = await store.people.add_organization(Organization(id=0, path="Acme", name="Acme", created_at=1))
        assert added.id != 1
        assert await store.people.list_organizations() == [FIRST_ORGANIZATION, added]
        with pytest.raises(ConflictError):
            await store.people.add_organization(Organization(id=0, path="acme", name="Other", created_at=1))

    async def test_a_path_is_a_group_or_a_project(self, store: Store) -> None:
        group = await store.people.add_namespace(a_group("Acme"))
        await store.projects.add_project(a_project(path="acme/shop", namespace_id=group.id))
        for path in ("ACME", "acme/Shop"):
            with pytest.raises(ConflictError):
                await store.people.add_namespace(a_group(path))
        with pytest.raises(ConflictError):
            await store.projects.add_project(a_project(path="acme"))

    async def test_lists_of_groups(self, store: Store) -> None:
        ada = Member(owner=("group", 0), user_id=7, level=50, created_at=NOW)
        acme = await store.people.add_namespace(a_group("acme", visibility="internal"), first=ada)
        assert await store.people.list_members(("group", acme.id)) == [replace(ada, owner=("group", acme.id))]
        tools = await store.people.add_namespace(a_group("acme/tools", parent_id=acme.id, above=(acme.id,)))
        deep = await store.people.add_namespace(a_group("acme/tools/x", parent_id=tools.id, above=(tools.id, acme.id)))
        far = await store.people.add_namespace(a_group("far", organization_id=7, visibility="public"))
        user = await a_user(store, "ada")
        own = await store.people.load_namespace(user.namespace_id)
        assert own is not None

        async def list_paths(**filters: object) -> list[str]:
            namespaces, total = await store.people.list_namespaces(Page(), NamespaceFilter(**filters))  # type: ignore[arg-type]
            assert total == len(namespaces)
            return [namespace.path for namespace in namespaces]

        groups = ["acme", "acme/tools", "acme/tools/x", "far"]
        assert await list_paths(is_group=True) == groups
        assert await list_paths() == ["acme", "acme/tools", "acme/tools/x", "ada", "far", "root"]
        assert await list_paths(is_group=False, search="AD") == ["ada", "root"]  # "Administrator"
        assert await list_paths(parent_id=acme.id) == ["acme/tools"]
        assert await list_paths(inside=acme.id) == ["acme/tools", "acme/tools/x"]
        assert await list_paths(top_level=True, is_group=True) == ["acme", "far"]
        stranger = Sight(organization_id=1, namespace_id=own.id)
        assert await list_paths(sight=stranger) == ["acme", "ada"]
        member = Sight(organization_id=1, namespace_id=own.id, group_ids=frozenset({tools.id, far.id}))
        assert await list_paths(sight=member) == ["acme", "acme/tools", "acme/tools/x", "ada"]
        await store.people.put_namespace(replace(deep, description="changed"))
        assert await store.people.load_namespace(deep.id) == replace(deep, description="changed")
        with pytest.raises(NotFoundError):
            await store.people.put_namespace(replace(deep, id=99))

    async def test_a_group_is_removed_when_nothing_is_in_it(self, store: Store) -> None:
        acme = await store.people.add_namespace(a_group("acme"))
        tools = await store.people.add_namespace(a_group("acme/tools", parent_id=acme.id, above=(acme.id,)))
        project = await store.projects.add_project(a_project(path="acme/tools/p", namespace_id=tools.id))
        await store.people.put_member(Member(owner=("group", tools.id), user_id=1, level=30, created_at=1))
        await store.projects.put_variable(ProjectVariable(group_id=tools.id, key="K", value="v"), replace=False)
        for group in (acme, tools):
            with pytest.raises(ConflictError):
                await store.people.remove_namespace(group.id)
        await store.projects.change_project(
            project.id, lambda row: replace(row, path="acme/tools/gone", removed_at=NOW)
        )
        assert await store.people.remove_namespace(tools.id)
        assert not await store.people.remove_namespace(tools.id)
        assert await store.people.list_members(("group", tools.id)) == []
        assert await store.projects.list_shared_variables([tools.id]) == []
        assert await store.people.remove_namespace(acme.id)


class TestPeople:
    async def test_users_have_a_namespace(self, store: Store) -> None:
        ada = await a_user(store, "ada")
        own = await store.people.load_namespace(ada.namespace_id)
        assert own is not None
        assert (own.path, own.owner_id, own.is_group) == ("ada", ada.id, False)
        for username in ("ADA", "root"):
            with pytest.raises(ConflictError):
                await a_user(store, username)
        await store.people.add_namespace(a_group("bob"))
        with pytest.raises(ConflictError):
            await a_user(store, "bob")
        assert await store.people.find_user("bob") is None

    async def test_lists_of_users(self, store: Store) -> None:
        ada, bob = await a_user(store, "ada"), await a_user(store, "bob", organization_id=7)
        assert await store.people.list_users(Page()) == ([bob, ada, FIRST_USER], 3)
        assert await store.people.list_users(Page(size=1, number=2)) == ([ada], 3)
        assert await store.people.list_users(Page(), search="AD") == ([ada, FIRST_USER], 2)
        assert await store.people.list_users(Page(), search="bob@x.org", organization_id=7) == ([bob], 1)
        assert await store.people.list_users(Page(), search="@x.org") == ([], 0)
        assert await store.people.list_users(Page(), organization_id=1) == ([ada, FIRST_USER], 2)
        await store.people.put_user(replace(ada, state="blocked", email="new@x.org"))
        assert (await store.people.list_users(Page(), search="new@x.org"))[0][0].state == "blocked"
        assert [user.id for user in (await store.people.list_users(Page(), state="blocked"))[0]] == [ada.id]
        assert await store.people.list_users(Page(), state="active") == ([bob, FIRST_USER], 2)
        assert await store.people.list_users(Page(), state="blocked", search="bob") == ([], 0)
        with pytest.raises(NotFoundError):
            await store.people.put_user(replace(ada, id=99))

    async def test_members(self, store: Store) -> None:
        first = Member(owner=("group", 5), user_id=2, level=Level.GUEST, created_at=1)
        second = Member(owner=("project", 5), user_id=2, level=Level.OWNER, created_at=1, expires_at=9.0)
        third = Member(owner=("group", 5), user_id=1, level=Level.OWNER, created_at=1)
        for member in (first, second, third):
            await store.people.put_member(member)
        assert await store.people.list_members(("group", 5)) == [third, first]
        assert await store.people.list_memberships(2) == [first, second]
        await store.people.put_member(replace(first, level=20))
        assert (await store.people.list_members(("group", 5)))[1].level == 20
        assert await store.people.remove_member(("group", 5), 2)
        assert not await store.people.remove_member(("group", 5), 2)
        assert await store.people.list_memberships(2) == [second]

    async def test_tokens(self, store: Store) -> None:
        first = await store.people.add_user_token(
            UserToken(token_hash="h1", name="one", user_id=2, scopes=("read_api",))
        )
        assert first.id > 0
        assert await store.people.find_user_token("h1") == await store.people.load_user_token(first.id) == first
        with pytest.raises(ConflictError):
            await store.people.add_user_token(UserToken(token_hash="h1", name="again"))
        other = await store.people.add_user_token(UserToken(token_hash="h2", name="two", user_id=3))
        assert await store.people.list_user_tokens_of(2) == [first]
        assert await store.people.list_user_tokens_of(None) == [first, other]

        new = await store.people.add_user_token(replace(first, token_hash="h3"), instead_of=first.id)
        assert new.id not in (first.id, other.id)
        assert await store.people.find_user_token("h1") == replace(first, revoked=True)
        with pytest.raises(ConflictError):
            await store.people.add_user_token(replace(first, token_hash="h4"), instead_of=first.id)
        assert await store.people.find_user_token("h4") is None

        assert await store.people.change_user_token(new.id, lambda _: None) is None
        assert await store.people.change_user_token(99, lambda row: row) is None
        changed = await store.people.change_user_token(new.id, lambda row: replace(row, last_used_at=5.0))
        assert changed == await store.people.find_user_token("h3") == replace(new, last_used_at=5.0)


class TestVariables:
    async def test_variables_of_projects_groups_and_the_cell(self, store: Store) -> None:
        project = await store.projects.add_project(a_project())
        variables = [
            ProjectVariable(key="A", value="all"),
            ProjectVariable(group_id=3, key="A", value="three"),
            ProjectVariable(group_id=4, key="A", value="four", environment_scope="prod"),
            ProjectVariable(project_id=project.id, key="A", value="own", environment_scope="*"),
            ProjectVariable(project_id=project.id, key="A", value="own in prod", environment_scope="prod"),
        ]
        for variable in variables:
            assert await store.projects.put_variable(variable, replace=False)
            assert not await store.projects.put_variable(variable, replace=False)
        assert await store.projects.list_variables(project.id) == variables[3:]
        assert await store.projects.list_shared_variables([]) == variables[:1]
        assert await store.projects.list_shared_variables([4, 3]) == variables[:3]
        assert await store.projects.put_variable(replace(variables[4], value="new"), replace=True)
        assert [row.value for row in await store.projects.list_variables(project.id)] == ["own", "new"]
        assert not await store.projects.remove_variable(project.id, "A", "staging")
        assert await store.projects.remove_variable(project.id, "A", "prod")
        assert await store.projects.remove_variable(ProjectId(0), "A", "prod", group_id=4)
        assert await store.projects.remove_variable(ProjectId(0), "A")
        assert await store.projects.list_shared_variables([3, 4]) == [variables[1]]


class TestProjects:
    @pytest.fixture
    async def projects(self, store: Store) -> dict[str, Project]:
        changes_by_name = {
            "own": {"namespace_id": 8},
            "near": {"namespace_id": 5, "group_ids": (5, 4)},
            "wide": {"namespace_id": 4, "group_ids": (4,), "visibility": "internal"},
            "far": {
                "organization_id": 7,
                "namespace_id": 6,
                "group_ids": (6,),
                "visibility": "public",
                "archived": True,
                "topics": ("steel", "robots"),
            },
        }
        return {
            name: await store.projects.add_project(a_project(path=f"x/{name}", **changes))  # type: ignore[arg-type]
            for name, changes in changes_by_name.items()
        }

    async def list_paths(self, store: Store, **filters: object) -> list[str]:
        projects, total = await store.projects.list_projects(Page(), ProjectFilter(**filters))  # type: ignore[arg-type]
        assert total == len(projects)
        return [project.path.removeprefix("x/") for project in projects]

    async def test_lists(self, store: Store, projects: dict[str, Project]) -> None:
        assert await self.list_paths(store) == ["far", "wide", "near", "own"]
        assert await self.list_paths(store, namespace_id=4) == ["wide"]
        assert await self.list_paths(store, group_id=4) == ["wide", "near"]
        assert await self.list_paths(store, visibility="private") == ["near", "own"]
        assert (
            await self.list_paths(store, archived=True) == await self.list_paths(store, topics=("robots",)) == ["far"]
        )
        assert await self.list_paths(store, archived=False) == ["wide", "near", "own"]
        assert await self.list_paths(store, topics=("robots", "steel")) == ["far"]
        assert await self.list_paths(store, topics=("robots", "stee")) == []
        nobody = Sight(organization_id=1, namespace_id=99)
        assert await self.list_paths(store, sight=nobody) == ["wide"]
        assert await self.list_paths(store, sight=nobody, membership=True) == []
        member = Sight(organization_id=1, namespace_id=8, group_ids=frozenset({5, 6}))
        assert await self.list_paths(store, sight=member) == ["wide", "near", "own"]
        assert await self.list_paths(store, sight=member, membership=True) == ["near", "own"]
        direct = Sight(organization_id=1, namespace_id=99, project_ids=frozenset({projects["own"].id}))
        assert await self.list_paths(store, sight=direct, membership=True) == ["own"]

    async def test_deleted_project_is_unlisted_and_frees_path(self, store: Store, projects: dict[str, Project]) -> None:
        near = projects["near"]
        with pytest.raises(ConflictError):
            await store.projects.change_project(near.id, lambda row: replace(row, path="X/Wide"))
        assert await store.projects.change_project(near.id, lambda _: None) is None
        deleted = await store.projects.change_project(
            near.id, lambda row: replace(row, path="x/near-deleted", removed_at=NOW)
        )
        assert await store.projects.load_project(near.id) == deleted
        assert await store.projects.find_project("x/near") is None
        assert await self.list_paths(store, group_id=4) == ["wide"]
        assert await self.list_paths(store, removed=True) == ["near-deleted"]
        await store.projects.add_project(a_project(path="x/near"))


class TestRunners:
    @pytest.fixture
    async def runners(self, store: Store) -> dict[str, Runner]:
        new_runners = {
            "all": a_runner(tags=("a", "b"), paused=True),
            "other": a_runner(organization_ids=(7, 8)),
            "group": a_runner(type=RunnerType.GROUP, group_id=5, tags=("a",)),
            "project": a_runner(type=RunnerType.PROJECT, project_ids=(ProjectId(3), ProjectId(4))),
        }
        return {
            name: await store.runners.add_runner(replace(runner, token_hash=name, created_at=NOW))
            for name, runner in new_runners.items()
        }

    async def list_names(self, store: Store, **filters: object) -> list[str]:
        runners, total = await store.runners.list_runners(Page(), RunnerFilter(**filters))  # type: ignore[arg-type]
        assert total == len(runners)
        return [runner.token_hash for runner in runners]

    @pytest.mark.usefixtures("runners")
    async def test_lists(self, store: Store) -> None:
        assert await self.list_names(store) == ["project", "group", "other", "all"]
        assert await self.list_names(store, type="group_type") == ["group"]
        assert await self.list_names(store, paused=True) == ["all"]
        assert await self.list_names(store, paused=False) == ["project", "group", "other"]
        assert await self.list_names(store, tags=("a",)) == ["group", "all"]
        assert await self.list_names(store, tags=("b", "a")) == ["all"]
        assert await self.list_names(store, pools=()) == []
        assert await self.list_names(store, pools=(("cell", 0),)) == ["all"]
        assert await self.list_names(store, pools=(("organization", 1),)) == []
        assert await self.list_names(store, pools=(("cell", 0), ("organization", 8))) == ["other", "all"]
        assert await self.list_names(store, pools=(("group", 5), ("project", 4), ("group", 9))) == ["project", "group"]

    async def test_search_and_version(self, store: Store, runners: dict[str, Runner]) -> None:
        await store.runners.change_runner(runners["all"].id, lambda row: replace(row, description="Box Ä 1%"))
        await store.runners.change_runner(runners["group"].id, lambda row: replace(row, description="box ä"))
        for name, version in {"all": "17.5.0", "group": "17_5", "project": ""}.items():
            manager = RunnerManager(
                runner_id=runners[name].id, system_id="s_1", contacted_at=NOW, runner_version=version
            )
            await store.runners.put_manager(manager)
        assert await self.list_names(store, search="bOX") == ["group", "all"]
        # Only ASCII letters are folded, as SQLite does it.
        assert await self.list_names(store, search="BOX Ä") == ["all"]
        assert await self.list_names(store, search="%") == ["all"]
        assert await self.list_names(store, search=str(runners["other"].id)) == ["other"]
        assert await self.list_names(store, search="9" * 30) == []
        assert await self.list_names(store, version_prefix="17.") == ["all"]
        assert await self.list_names(store, version_prefix="17") == ["group", "all"]
        assert await self.list_names(store, version_prefix="7") == []

    async def test_lists_by_contact_status(self, store: Store, runners: dict[str, Runner]) -> None:
        contacts = {"all": NOW, "group": NOW - ONLINE_SECONDS, "project": NOW - STALE_SECONDS}
        for name, contacted_at in contacts.items():
            for system_id, seconds in (("s_1", 0), ("s_2", 1_000_000)):
                manager = RunnerManager(
                    runner_id=runners[name].id, system_id=system_id, contacted_at=contacted_at - seconds
                )
                await store.runners.put_manager(manager)
        by_status = {status: await self.list_names(store, status=status, now=NOW) for status in STATUSES}
        assert by_status == {
            "online": ["all"],
            "offline": ["group"],
            "stale": ["project"],
            "never_contacted": ["other"],
        }
        assert await self.list_names(store, status="stale", now=NOW + STALE_SECONDS) == [
            "project",
            "group",
            "other",
            "all",
        ]

    async def test_change_runner(self, store: Store, runners: dict[str, Runner]) -> None:
        runner = runners["all"]
        assert await store.runners.change_runner(runner.id, lambda _: None) is None
        assert await store.runners.change_runner(RunnerId(99), lambda row: row) is None
        changed = await store.runners.change_runner(runner.id, lambda row: replace(row, token_hash="new"))
        assert changed == await store.runners.find_runner("new") == replace(runner, token_hash="new")
        assert await store.runners.find_runner("all") is None


EVENTS = (
    AuditEvent(created_at=NOW, action="project_deleted", author_id=1, entity_type="Project", entity_id=7),
    AuditEvent(created_at=NOW + 1, action="variable_created", author_id=2, entity_type="Project", entity_id=7),
    AuditEvent(created_at=NOW + 2, action="runner_deleted", author_id=1, entity_type="Runner", entity_id=7),
    AuditEvent(
        created_at=NOW + 3,
        action="access_denied",
        ip_address="192.0.2.1",
        target="GET /x",
        details={"status": 401, "names": ["a", "ß\0"], "flag": True, "none": None},
        request_id="r",
    ),
)


async def add_events(store: Store) -> list[AuditEvent]:
    return [await store.settings.add_audit_event(event) for event in EVENTS]


async def test_events_get_ids_and_come_back_whole(store: Store) -> None:
    added = await add_events(store)
    assert [event.id for event in added] == sorted(event.id for event in added)
    assert added[0].id in range(range_of_cell(1).first, range_of_cell(1).last + 1)
    for event in added:
        assert await store.settings.load_audit_event(event.id) == event
    assert await store.settings.load_audit_event(added[-1].id + 1) is None


async def test_pages_are_newest_first(store: Store) -> None:
    added = await add_events(store)
    assert await store.settings.list_audit_events(Page(size=3)) == (added[:0:-1], 4)
    assert await store.settings.list_audit_events(Page(number=2, size=3)) == (added[:1], 4)
    later, _ = await store.settings.list_audit_events(Page(ascending=True, after=added[1].id, counted=False))
    assert later == added[2:]


@pytest.mark.parametrize(
    ("event_filter", "indexes"),
    [
        (AuditFilter(action="runner_deleted"), [2]),
        (AuditFilter(author_id=1), [2, 0]),
        (AuditFilter(entity_type="Project", entity_id=7), [1, 0]),
        (AuditFilter(created_after=NOW + 1, created_before=NOW + 3), [2, 1]),
        (AuditFilter(author_id=0), [3]),
        (AuditFilter(action="nothing"), []),
    ],
)
async def test_filters(store: Store, event_filter: AuditFilter, indexes: list[int]) -> None:
    added = await add_events(store)
    assert await store.settings.list_audit_events(Page(), event_filter) == (
        [added[index] for index in indexes],
        len(indexes),
    )


async def test_old_events_are_removed_in_batches(store: Store) -> None:
    added = await add_events(store)
    assert await store.settings.remove_audit_events(NOW + 2, limit=1) == 1
    assert await store.settings.remove_audit_events(NOW + 2, limit=5) == 1
    assert await store.settings.remove_audit_events(NOW + 2, limit=5) == 0
    assert (await store.settings.list_audit_events(Page()))[0] == [added[3], added[2]]
    later = await store.settings.add_audit_event(EVENTS[0])
    assert later.id > added[-1].id


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.text(), target=st.text(st.characters(codec="utf-8")))
async def test_any_text_is_stored_unchanged(store: Store, name: str, target: str) -> None:
    added = await store.settings.add_audit_event(
        AuditEvent(created_at=NOW, action="x", author_name=name, target=target)
    )
    assert await store.settings.load_audit_event(added.id) == added


class TestBots:
    async def test_a_bot_is_stored_with_its_membership_and_its_token(self, store: Store) -> None:
        bot = User(
            id=0, username="project_7_bot_a", name="deploy", email="b@x.org", created_at=1, bot_of=("project", 7)
        )
        member = Member(owner=("project", 7), user_id=0, level=Level.DEVELOPER, created_at=1)
        added, token = await store.people.add_bot(bot, member, UserToken(token_hash="h1", name="deploy"))
        assert await store.people.load_user(added.id) == added
        assert await store.people.list_memberships(added.id) == [replace(member, user_id=added.id)]
        assert await store.people.find_user_token("h1") == token
        assert token.user_id == added.id
        with pytest.raises(ConflictError):
            await store.people.add_bot(bot, member, UserToken(token_hash="h2", name="deploy"))
        with pytest.raises(ConflictError):
            await store.people.add_bot(replace(bot, username="b"), member, UserToken(token_hash="h1", name="deploy"))

    async def test_a_removed_user_leaves_no_rights(self, store: Store) -> None:
        ada = await a_user(store, "ada")
        await store.people.put_member(Member(owner=("group", 3), user_id=ada.id, level=Level.DEVELOPER, created_at=1))
        await store.people.add_user_token(UserToken(token_hash="h3", name="t", user_id=ada.id))
        project = await store.projects.add_project(
            replace(a_project(), id=ProjectId(0), path="ada/app", namespace_id=ada.namespace_id)
        )
        with pytest.raises(ConflictError):
            await store.people.remove_user(ada.id)
        await store.projects.change_project(project.id, lambda row: replace(row, removed_at=2.0))
        assert await store.people.remove_user(ada.id)
        assert await store.people.load_user(ada.id) is None
        assert await store.people.list_memberships(ada.id) == []
        assert await store.people.find_user_token("h3") is None
        assert await store.people.find_namespace("ada") is None
        assert not await store.people.remove_user(ada.id)
