"""Everybody on every page: a page answers exactly as the API does for what it is about, and offers only what the API
allows.

`CASES` has one entry for each route of the pages. A new page fails the test until it is listed: with an address that
exists in the cell below, and the call of the API that decides who may see it."""

import html
import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.routing import compile_path
from tests.support.cells.page_client import PageClient
from tests.support.cells.people import add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.cell.core.access.rights import ADMINISTRATOR
from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.app import ENDPOINTS
from remuda.cell.values.people import Level
from remuda.cell.web.app import PAGES
from remuda.cell.web_settings import WebSettings

PIPELINE = """
build:
  script: make
  environment: {name: prod, url: "https://prod.example"}
  artifacts: {paths: [site]}
  only: [branches]
"""
LEVELS = {
    "guest": Level.GUEST,
    "developer": Level.DEVELOPER,
    "maintainer": Level.MAINTAINER,
    "owner": Level.OWNER,
    "administrator": ADMINISTRATOR,
    "stranger": 0,
}
"""People, and their levels in the group and its project. The stranger is a user of the cell without any membership."""


class Case(NamedTuple):
    address: str
    """A page that exists, with names of objects in braces."""
    decides: str
    """The call of the API (GET) whose status the page must have."""
    about: str = ""
    """A call about what contains it: if that is refused, the page has its status."""


_P = "/api/v4/projects/{project}"
_G = "/api/v4/groups/{group}"
_USER = "/api/v4/user"
_POLICIES = "/api/remuda/v1/policies"
_ADMIN = "/api/v4/application/settings"
_PIPELINE = f"{_P}/pipelines/{{pipeline}}"
_JOB = f"{_P}/jobs/{{job}}"
_BADGES = ("pipeline.svg", "coverage.svg")
OPEN = frozenset({"/-/sign-in", "/-/sign-in/link", "/-/sign-in/oidc", "/-/sign-in/oidc/callback"}) | {
    f"/{{path:path}}/badges/{ref}{badge}" for ref in ("", "{ref:path}/") for badge in _BADGES
}
"""Addresses for people who are not signed in, too; their own tests are about them."""
ELSEWHERE = frozenset({"/{project:path}/-/releases/{tag}/downloads/{file:path}"})
"""Addresses that only redirect to other servers."""


def _sections() -> dict[str, Case]:
    """The pages of settings: of a project, and of a group where both have them."""
    cases = {}
    for name, of_project, of_group in (
        ("general", f"{_P}/variables", f"{_G}/variables"),
        ("policy", f"{_POLICIES}/project/{{project}}", f"{_POLICIES}/group/{{group}}"),
        ("members", f"{_P}/members", f"{_G}/members"),
        ("variables", f"{_P}/variables", f"{_G}/variables"),
        ("access_tokens", f"{_P}/access_tokens", f"{_G}/access_tokens"),
        ("deploy_tokens", f"{_P}/deploy_tokens", f"{_G}/deploy_tokens"),
        ("hooks", f"{_P}/hooks", f"{_G}/hooks"),
        ("hooks/{hook_id}", f"{_P}/hooks/{{hook}}", f"{_G}/hooks/{{group_hook}}"),
        ("job_tokens", f"{_P}/job_token_scope", ""),
        ("schedules", f"{_P}/pipeline_schedules", ""),
        ("schedules/{schedule_id}", f"{_P}/pipeline_schedules/{{schedule}}", ""),
        ("triggers", f"{_P}/triggers", ""),
        ("protected_refs", f"{_P}/protected_branches", ""),
        ("resource_groups", f"{_P}/resource_groups", ""),
    ):
        section = name.replace("{hook_id}", "{hook}").replace("{schedule_id}", "{schedule}")
        cases[f"/{{project:path}}/-/settings/{name}"] = Case(f"/acme/{{name}}/-/settings/{section}", of_project, _P)
        if of_group:
            section = section.replace("{hook}", "{group_hook}")
            cases[f"/groups/{{group:path}}/-/settings/{name}"] = Case(
                f"/groups/acme/-/settings/{section}", of_group, _G
            )
    return cases


CASES = {
    "/": Case("/", _USER),
    "/-/profile": Case("/-/profile", _USER),
    "/queue": Case("/queue", _USER),
    "/projects": Case("/projects", _USER),
    "/projects/new": Case("/projects/new", _USER),
    "/groups": Case("/groups", _USER),
    "/groups/new": Case("/groups/new", _USER),
    "/search": Case("/search?q=shop", _USER),
    "/runners": Case("/runners", _USER),
    "/runners/new": Case("/runners/new", _USER),
    "/runners/{id}": Case("/runners/{runner}", "/api/v4/runners/{runner}"),
    "/admin": Case("/admin", _ADMIN),
    "/admin/health": Case("/admin/health", _ADMIN),
    "/admin/settings": Case("/admin/settings", _ADMIN),
    "/admin/variables": Case("/admin/variables", "/api/v4/admin/ci/variables"),
    "/admin/users": Case("/admin/users", _ADMIN),
    "/admin/organizations": Case("/admin/organizations", _ADMIN),
    "/admin/audit": Case("/admin/audit", "/api/v4/audit_events"),
    "/admin/audit/download": Case("/admin/audit/download", "/api/v4/audit_events"),
    "/groups/{group:path}": Case("/groups/acme", _G),
    "/groups/{group:path}/-/runners": Case("/groups/acme/-/runners", f"{_G}/runners"),
    "/groups/{group:path}/-/settings": Case("/groups/acme/-/settings", _G),
    "/{project:path}/-/pipelines": Case("/acme/{name}/-/pipelines", f"{_P}/pipelines"),
    "/{project:path}/-/pipelines/{number}": Case("/acme/{name}/-/pipelines/{pipeline}", _PIPELINE),
    "/{project:path}/-/pipelines/new": Case("/acme/{name}/-/pipelines/new", f"{_P}/pipelines"),
    "/{project:path}/-/jobs": Case("/acme/{name}/-/jobs", f"{_P}/jobs"),
    "/{project:path}/-/jobs/{number}": Case("/acme/{name}/-/jobs/{job}", _JOB),
    "/{project:path}/-/jobs/{number}/artifacts": Case("/acme/{name}/-/jobs/{job}/artifacts", _JOB),
    "/{project:path}/-/jobs/{number}/artifacts/browse/{path:path}": Case(
        "/acme/{name}/-/jobs/{job}/artifacts/browse/site", _JOB
    ),
    "/{project:path}/-/jobs/{number}/artifacts/file/{path:path}": Case(
        "/acme/{name}/-/jobs/{job}/artifacts/file/site/a.txt", f"{_JOB}/artifacts/site/a.txt"
    ),
    "/{project:path}/-/jobs/{number}/shell": Case("/acme/{name}/-/jobs/{job}/shell", _JOB),
    "/{project:path}/-/runners": Case("/acme/{name}/-/runners", f"{_P}/runners"),
    "/{project:path}/-/editor": Case("/acme/{name}/-/editor", f"{_P}/repository/tree"),
    "/{project:path}/-/tree": Case("/acme/{name}/-/tree", f"{_P}/repository/tree"),
    "/{project:path}/-/tree/{place:path}": Case("/acme/{name}/-/tree/main", f"{_P}/repository/tree"),
    "/{project:path}/-/blob/{place:path}": Case("/acme/{name}/-/blob/main/.gitlab-ci.yml", f"{_P}/repository/tree"),
    "/{project:path}/-/commits/{place:path}": Case("/acme/{name}/-/commits/main", f"{_P}/repository/commits"),
    "/{project:path}/-/commit/{sha}": Case("/acme/{name}/-/commit/{sha}", f"{_P}/repository/commits/{{sha}}"),
    "/{project:path}/-/compare/{range:path}": Case(
        "/acme/{name}/-/compare/main...main", f"{_P}/repository/compare?from=main&to=main"
    ),
    "/{project:path}/-/environments": Case("/acme/{name}/-/environments", f"{_P}/environments"),
    "/{project:path}/-/environments/{number}": Case(
        "/acme/{name}/-/environments/{environment}", f"{_P}/environments/{{environment}}"
    ),
    "/{project:path}/-/releases": Case("/acme/{name}/-/releases", f"{_P}/releases"),
    "/{project:path}/-/releases/{tag:path}": Case("/acme/{name}/-/releases/v1", f"{_P}/releases/v1"),
    "/{project:path}/-/tags/{tag:path}": Case("/acme/{name}/-/tags/v1", f"{_P}/repository/tags/v1"),
    "/{project:path}/-/settings": Case("/acme/{name}/-/settings", _P),
    "/{path:path}": Case("/acme/{name}", _P),
    **_sections(),
}
_ROUTES = [(compile_path(endpoint.path)[0], endpoint) for endpoint in ENDPOINTS]
_CALL = re.compile(r'data-call="([A-Z]+) ([^"]+)"')


class World(NamedTuple):
    cell: ServedCell
    visitors: dict[str, PageClient]
    private: dict[str, object]
    """Names of the objects of the private project acme/shop, for the addresses of `CASES`."""
    public: dict[str, object]
    """Those of the public project acme/open."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cell that shows public projects to all, with two projects that have one object of each kind, and everybody
    signed in."""
    folder = Path(tmp_path_factory.mktemp("matrix"))
    with ServedCell(folder / "cell", web=WebSettings(public_projects=True)) as cell:
        group = create_group(cell, "acme")
        runner = {"runner_type": "group_type", "group_id": group, "description": "anvil"}
        shared = {
            "group": group,
            "runner": create(cell, "/user/runners", **runner),
            "group_hook": create(cell, "/groups/acme/hooks", url="https://hooks.example/a"),
        }
        scripted = cell.new_runner()
        private = shared | fill_project(cell, scripted, group, "shop", "private")
        public = shared | fill_project(cell, scripted, group, "open", "public")
        visitors = {"nobody": PageClient(cell)}
        for name, level in LEVELS.items():
            person = create_person(cell, name, admin=name == "administrator")
            if 0 < level < ADMINISTRATOR:
                add_member(cell, f"groups/{group}", person, level)
            visitors[name] = PageClient(cell)
            visitors[name].sign_in(person.token)
        yield World(cell, visitors, private, public)


def create(cell: ServedCell, path: str, **body: object) -> int:
    created = cell.api("POST", path, body)
    assert created.status == 201, created
    return int(created.json().get("id", 0))


def fill_project(cell: ServedCell, runner: ScriptedRunner, group: int, name: str, visibility: str) -> dict[str, object]:
    """Create a project with a finished job and one object of each kind. Returns the names of these."""
    project = create_group_project(cell, group, name, PIPELINE, visibility=visibility)
    api = f"/projects/{project}"
    job = runner.take()
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("site/a.txt", "hello")
    assert runner.upload(job, archive.getvalue()).status == 201
    assert runner.put(job, "success").status == 200
    link = {"name": "a", "url": "https://files.example/a", "filepath": "/bin/a"}
    create(cell, f"{api}/releases", tag_name="v1", ref="main", name="one", assets={"links": [link]})
    [shown] = cell.api("GET", f"{api}/jobs?scope=success").json()
    return {
        "name": name,
        "project": project,
        "pipeline": shown["pipeline"]["id"],
        "job": shown["id"],
        "sha": shown["commit"]["id"],
        "hook": create(cell, f"{api}/hooks", url="https://hooks.example/a"),
        "schedule": create(cell, f"{api}/pipeline_schedules", description="s", ref="main", cron="0 1 * * *"),
        "environment": cell.api("GET", f"{api}/environments").json()[0]["id"],
    }


def routes() -> list[str]:
    return [page.path for page in PAGES if page.method == "GET" and page.path not in OPEN | ELSEWHERE]


def test_every_page_is_listed() -> None:
    missing = sorted(set(routes()) - CASES.keys())
    assert not missing, f"add these pages to CASES: {missing}"


def case_of(route: str, names: dict[str, object]) -> Case:
    return Case(*(text.format(**names) for text in CASES[route]))


@pytest.mark.parametrize("route", [route for route in routes() if route in CASES])
def test_a_page_answers_as_the_api(route: str, world: World) -> None:
    case = case_of(route, world.private)
    answers = {}
    for name in LEVELS:
        visitor = world.visitors[name]
        page = visitor.get(case.address)
        status = page.status
        if status in (302, 303):
            # To the first part of a page or to another server, never to the sign-in form.
            address = page.headers["Location"]
            assert not address.startswith("/-/sign-in")
            status = visitor.get(address).status if address.startswith("/") else 200
        calls = [visitor.get(path).status for path in (case.about, case.decides) if path]
        answers[name] = (status, next((call for call in calls if call != 200), 200))
    wrong = {name: pair for name, pair in answers.items() if pair[0] != pair[1]}
    assert not wrong, f"(status of the page, status of {case.decides}): {wrong}"
    assert answers["administrator"][0] == 200


@pytest.mark.parametrize("route", [route for route in routes() if route in CASES])
def test_a_page_sends_nobody_to_the_sign_in_form(route: str, world: World) -> None:
    case = case_of(route, world.private)
    answer = world.visitors["nobody"].get(case.address)
    assert answer.status == 303
    assert answer.headers["Location"].startswith("/-/sign-in")
    assert b"shop" not in answer.body


@pytest.mark.parametrize("route", [route for route in routes() if route.startswith("/{")])
def test_a_public_project_shows_nobody_more_than_the_api(route: str, world: World) -> None:
    if route not in CASES:
        return
    case, nobody = case_of(route, world.public), world.visitors["nobody"]
    answer = nobody.get(case.address)
    is_refused = any(nobody.get(path).status != 200 for path in (case.about, case.decides) if path)
    leads_to_form = answer.status == 303 and answer.headers["Location"].startswith("/-/sign-in")
    assert leads_to_form or (answer.status in (200, 302, 303) and not is_refused), answer
    assert b"data-call" not in answer.body
    assert b"hooks.example" not in answer.body


@pytest.mark.parametrize("route", [route for route in routes() if route in CASES])
def test_a_page_offers_only_what_is_allowed(route: str, world: World) -> None:
    case = case_of(route, world.private)
    for name, level in LEVELS.items():
        page = world.visitors[name].get(case.address)
        for method, path in _CALL.findall(page.body.decode()) if page.status == 200 else ():
            assert may_call(method, html.unescape(path), level), f"{name} is offered {method} {path}"


def may_call(method: str, path: str, level: int) -> bool:
    """Whether the API admits somebody with this level in the group to a call about it or what is in it."""
    bare = path.partition("?")[0]
    endpoint = next((each for pattern, each in _ROUTES if each.method == method and pattern.match(bare)), None)
    assert endpoint is not None, f"there is no call {method} {path}"
    match endpoint.access.kind:
        case Kind.ADMINISTRATOR:
            return level == ADMINISTRATOR
        case Kind.USER:
            return True
        case _:
            return level >= endpoint.access.level
