"""Everybody on every page: a page answers exactly as the API does for what it is about, and offers only what the API
allows.

`CASES` has one entry for each route of the pages. A new page fails the test until it is listed: with an address that
exists in the cell below, and the call of the API that decides who may see it."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.routing import compile_path
from tests.support.cells.page_client import PageClient
from tests.support.cells.people import add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ServedCell

from remuda.cell.core.access.rights import ADMINISTRATOR
from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.app import ENDPOINTS
from remuda.cell.values.people import Level
from remuda.cell.web.app import PAGES

PIPELINE = "build:\n  script: make\n  environment: {name: prod, url: https://prod.example}\n"
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


_P = "/api/v4/projects/{project}"
_G = "/api/v4/groups/{group}"
_USER = "/api/v4/user"
_ADMIN = "/api/v4/application/settings"
_PIPELINE = f"{_P}/pipelines/{{pipeline}}"
_JOB = f"{_P}/jobs/{{job}}"
OPEN = frozenset({"/-/sign-in", "/-/sign-in/link", "/-/sign-in/oidc", "/-/sign-in/oidc/callback"})
"""Pages for people who are not signed in; `test_sign_in` and `test_oidc` are about them."""
CASES = {
    "/": Case("/", _USER),
    "/-/profile": Case("/-/profile", _USER),
    "/queue": Case("/queue", _USER),
    "/machines": Case("/machines", _USER),
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
    "/{project:path}/-/pipelines": Case("/acme/shop/-/pipelines", f"{_P}/pipelines"),
    "/{project:path}/-/pipelines/{number}": Case("/acme/shop/-/pipelines/{pipeline}", _PIPELINE),
    "/{project:path}/-/jobs": Case("/acme/shop/-/jobs", f"{_P}/jobs"),
    "/{project:path}/-/jobs/{number}": Case("/acme/shop/-/jobs/{job}", _JOB),
    "/{project:path}/-/jobs/{number}/artifacts": Case("/acme/shop/-/jobs/{job}/artifacts", _JOB),
    "/{project:path}/-/runners": Case("/acme/shop/-/runners", f"{_P}/runners"),
    "/{project:path}/-/editor": Case("/acme/shop/-/editor", f"{_P}/repository/tree"),
    "/{project:path}/-/tree": Case("/acme/shop/-/tree", f"{_P}/repository/tree"),
    "/{project:path}/-/tree/{place:path}": Case("/acme/shop/-/tree/main", f"{_P}/repository/tree"),
    "/{project:path}/-/blob/{place:path}": Case("/acme/shop/-/blob/main/.gitlab-ci.yml", f"{_P}/repository/tree"),
    "/{project:path}/-/commits/{place:path}": Case("/acme/shop/-/commits/main", f"{_P}/repository/commits"),
    "/{project:path}/-/commit/{sha}": Case("/acme/shop/-/commit/{sha}", f"{_P}/repository/commits/{{sha}}"),
    "/{project:path}/-/compare/{range:path}": Case(
        "/acme/shop/-/compare/main...main", f"{_P}/repository/compare?from=main&to=main"
    ),
    "/{project:path}/-/environments": Case("/acme/shop/-/environments", f"{_P}/environments"),
    "/{project:path}/-/releases": Case("/acme/shop/-/releases", f"{_P}/releases"),
    "/{project:path}/-/settings": Case("/acme/shop/-/settings", _P),
    "/{path:path}": Case("/acme/shop", _P),
}
_ROUTES = [(compile_path(endpoint.path)[0], endpoint) for endpoint in ENDPOINTS]
_CALL = re.compile(r'data-call="([A-Z]+) ([^"]+)"')


class World(NamedTuple):
    cell: ServedCell
    visitors: dict[str, PageClient]
    names: dict[str, object]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cell with a private project, its pipeline and job, a runner, and everybody signed in."""
    with ServedCell(Path(tmp_path_factory.mktemp("matrix")) / "cell") as cell:
        group = create_group(cell, "acme")
        project = create_group_project(cell, group, "shop", PIPELINE, visibility="private")
        [job] = cell.api("GET", f"/projects/{project}/jobs").json()
        body = {"runner_type": "group_type", "group_id": group, "description": "anvil"}
        runner = cell.api("POST", "/user/runners", body).json()["id"]
        visitors = {"nobody": PageClient(cell)}
        for name, level in LEVELS.items():
            person = create_person(cell, name, admin=name == "administrator")
            if 0 < level < ADMINISTRATOR:
                add_member(cell, f"groups/{group}", person, level)
            visitors[name] = PageClient(cell)
            visitors[name].sign_in(person.token)
        names = {"project": project, "group": group, "pipeline": job["pipeline"]["id"], "job": job["id"]}
        yield World(cell, visitors, names | {"runner": runner, "sha": job["commit"]["id"]})


def routes() -> list[str]:
    return [page.path for page in PAGES if page.method == "GET" and page.path not in OPEN]


def test_every_page_is_listed() -> None:
    missing = sorted(set(routes()) - CASES.keys())
    assert not missing, f"add these pages to CASES: {missing}"


def case_of(route: str, world: World) -> Case:
    case = CASES[route]
    return Case(case.address.format(**world.names), case.decides.format(**world.names))


@pytest.mark.parametrize("route", [route for route in routes() if route in CASES])
def test_a_page_answers_as_the_api(route: str, world: World) -> None:
    case = case_of(route, world)
    answers = {}
    for name in LEVELS:
        visitor = world.visitors[name]
        page = visitor.get(case.address)
        status = page.status
        if status in (302, 303):
            # To the first part of a page, never to the sign-in form.
            assert not page.headers["Location"].startswith("/-/sign-in")
            status = visitor.get(page.headers["Location"]).status
        answers[name] = (status, visitor.get(case.decides).status)
    wrong = {name: pair for name, pair in answers.items() if pair[0] != pair[1]}
    assert not wrong, f"(status of the page, status of {case.decides}): {wrong}"
    assert answers["administrator"][0] == 200


@pytest.mark.parametrize("route", [route for route in routes() if route in CASES])
def test_a_page_sends_nobody_to_the_sign_in_form(route: str, world: World) -> None:
    case = case_of(route, world)
    answer = world.visitors["nobody"].get(case.address)
    assert answer.status == 303
    assert answer.headers["Location"].startswith("/-/sign-in")
    assert b"shop" not in answer.body


@pytest.mark.parametrize("route", [route for route in routes() if route in CASES])
def test_a_page_offers_only_what_is_allowed(route: str, world: World) -> None:
    case = case_of(route, world)
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
