"""The OpenAPI document holds: schemathesis makes requests of it, and the cell answers each as it says, never with 5xx.

Every identity makes requests of every operation: an administrator, a developer, a runner, a job, nobody. What stands in
paths and in some parameters is mostly what there is, so that the requests get beyond 404. The examples are the same in
every run; `REMUDA_FUZZ_EXAMPLES` asks for more of them, from another beginning each time.
"""

import contextlib
import io
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Any
from urllib.parse import quote, urlencode

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.servers.postgres_server import PostgresServer

EXAMPLES = int(os.environ.get("REMUDA_FUZZ_EXAMPLES", "0"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
PIPELINE = """
make:
  script: [make]
  artifacts:
    paths: [out]
wait:
  script: [wait]
hand:
  script: [hand]
  when: manual
"""
LAST = ("PUT /api/v4/jobs/{job_id}", "POST /api/v4/runners/reset_authentication_token", "DELETE /api/v4/runners")
"""What ends the identity that makes the request."""


def settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True, kw_only=True)
class World:
    """A cell with one of everything."""

    cell: ServedCell
    paths: Mapping[str, Any]
    """What stands in a path, by the words before it."""
    spare: Mapping[str, Any]
    """The same for requests that remove something."""
    identities: Mapping[str, Mapping[str, str]]
    runner_token: str
    running: int
    """The job whose token the identity has."""


def an_archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("out/made.txt", "made")
    return out.getvalue()


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """On the store that the test names."""
    settings: dict[str, Any] = {"poll_hold_seconds": 0.05, "body_silent_seconds": 5}
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            settings["database"] = stack.enter_context(server.database())
        yield a_world(stack.enter_context(ServedCell(tmp_path_factory.mktemp("fuzzed") / "cell", **settings)))


def a_world(cell: ServedCell) -> World:
    def made(path: str, body: object, **headers: str) -> Any:
        answer = cell.api("POST", path, body, **headers)
        assert answer.status == 201, (path, answer)
        return answer.json()

    group, spare_group = (made("/groups", {"name": name, "path": name}) for name in ("group", "spare-group"))
    user = made("/users", {"username": "dev", "name": "Dev", "email": "dev@example.com"})
    made("/admin/ci/variables", {"key": "KEY", "value": "value"})
    for one in (group, spare_group):
        made(f"/groups/{one['id']}/variables", {"key": "KEY", "value": "value"})
        made(f"/groups/{one['id']}/members", {"user_id": user["id"], "access_level": 50})
    tokens = [
        made(f"/users/{user['id']}/personal_access_tokens", {"name": name, "scopes": ["api"]}) for name in ("a", "b")
    ]
    runner = made("/user/runners", {"runner_type": "instance_type"})
    places = []
    for name in ("app", "spare"):
        project = cell.new_project(name, PIPELINE)
        root = f"/projects/{project}"
        made(f"{root}/members", {"user_id": user["id"], "access_level": 40})
        made(f"{root}/variables", {"key": "KEY", "value": "value"})
        schedule = made(f"{root}/pipeline_schedules", {"description": "x", "ref": "main", "cron": "@daily"})
        made(f"{root}/pipeline_schedules/{schedule['id']}/variables", {"key": "KEY", "value": "value"})
        trigger = made(f"{root}/triggers", {"description": "x"})
        made(f"{root}/releases", {"tag_name": "v1", "ref": "main"})
        made(f"{root}/repository/branches", {"branch": "side", "ref": "main"})
        own = made("/user/runners", {"runner_type": "project_type", "project_id": project})
        [pipeline] = [one for one in cell.until_pipelines(3, f"root/{name}") if one["ref"] == "main"]
        places.append((project, schedule["id"], trigger["id"], own["id"], pipeline["id"]))
    scripted = ScriptedRunner(cell, runner["token"])
    done, running = scripted.take(), scripted.take()
    scripted.patch(done, 0, b"section_start:1:script\r\x1b[0Kmaking\n")
    scripted.upload(done, an_archive())
    scripted.put(done, "success")
    scripted.put(running, "running")
    made(f"/projects/{places[0][0]}/pipeline", {"ref": "main"})

    def named(place: tuple[int, ...], of_group: Any, token: Any) -> dict[str, Any]:
        project, schedule, trigger, own, pipeline = place
        return {
            "projects": project,
            "groups": of_group["id"],
            "namespaces": of_group["id"],
            "users": user["id"],
            "organizations": 1,
            "project": project,
            "group": of_group["id"],
            "organization": 1,
            "jobs": done["id"],
            "pipelines": pipeline,
            "runners": own,
            "members": user["id"],
            "all": user["id"],
            "pipeline_schedules": schedule,
            "triggers": trigger,
            "personal_access_tokens": token["id"],
            "variables": "KEY",
            "audit_events": 1,
            "releases": "v1",
            "tags": "v1",
            "branches": "side",
            "commits": "main",
            "files": ".gitlab-ci.yml",
            "ref": "main",
            "artifacts": "main",
            "raw": "out/made.txt",
            "merge_requests": 1,
        }

    return World(
        cell=cell,
        paths=named(places[0], group, tokens[0]),
        spare=named(places[1], spare_group, tokens[0]),
        identities={
            "nobody": {},
            "runner": {"RUNNER-TOKEN": runner["token"]},
            "developer": {"PRIVATE-TOKEN": tokens[1]["token"]},
            "administrator": {"PRIVATE-TOKEN": cell.token},
            "job": {"JOB-TOKEN": running["token"]},
        },
        runner_token=runner["token"],
        running=running["id"],
    )


def mark(value: object) -> int:
    """A number that is the same for the same value, in every run."""
    return zlib.crc32(repr(value).encode(errors="replace"))


def often(value: object) -> bool:
    """Three times in four."""
    return mark(value) % 4 != 0


def plausible(world: World, name: str, value: object) -> object:
    """What a person might have given instead."""
    known: dict[str, object] = {
        "ref": "main",
        "branch": "main",
        "job": "make",
        "token": world.runner_token,
        "user_id": world.paths["users"],
        "project_id": world.paths["projects"],
        "runner_id": world.paths["runners"],
        "parent_id": world.paths["groups"],
        "group_id": world.paths["groups"],
        "namespace_id": world.paths["groups"],
        "organization_id": 1,
        "cron": "@daily",
        "cron_timezone": "UTC",
        "scopes": ["read_api"],
        "runner_type": "instance_type",
        "variable_type": "file",
        "visibility": "private",
        "expires_at": "2999-01-31",
        "environment_scope": "*",
        "email": "somebody@example.com",
        "priority": mark(value) % 100,
        "name": f"name {mark(value)}",
        "path": f"path-{mark(value)}",
        "username": f"user-{mark(value)}",
        "key": f"KEY_{mark(value)}",
        "tag_name": f"tag-{mark(value)}",
    }
    if name == "access_level" and isinstance(value, int):
        return 30
    return known.get(name, value)


def with_what_there_is(world: World, case: Case[Any]) -> None:
    """Let the request be about something that is there, mostly, and what it gives be taken."""
    words = case.operation.path.split("/")
    table = world.spare if case.operation.method.upper() == "DELETE" else world.paths
    places: Any = case.path_parameters or {}
    for name, value in places.items():
        before = words[next(at for at, word in enumerate(words) if f"{{{name}}}" in word) - 1]
        before = str(places.get("scope", before)) if before == "{scope}" else before
        if before in table and often(value):
            places[name] = table[before]
    body: Any = case.body
    if isinstance(body, dict) and case.operation.path.startswith(("/api/v4/runners", "/api/v4/jobs/request")):
        body.setdefault("token", "")
    for given in (case.query, body):
        for name in [name for name in given if often(given[name])] if isinstance(given, dict) else []:
            given[name] = plausible(world, name, given[name])


def in_turn(operation: APIOperation[Any, Any, Any, Any]) -> tuple[bool, bool, int]:
    """Removals come last, of what is inside before what it is in; then what ends the identity that asks."""
    is_removal = operation.method.upper() == "DELETE"
    return operation.label in LAST, is_removal, -len(operation.path) if is_removal else 0


def explore(world: World) -> tuple[list[str], Counter[str]]:
    """What was not answered as the document says, and how often each operation was answered with success."""
    schema = schemathesis.openapi.from_url(f"{world.cell.url}/api/remuda/v1/openapi.json")
    found = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
    assert len(found) == schema.statistic.operations.total
    operations = [one for one in found if not one.path.endswith("/events")]  # such a stream does not end
    wrong: list[str] = []
    good: Counter[str] = Counter()
    with requests.Session() as session:

        def attempt(case: Case[Any]) -> None:
            make(case, world.identities)

        def attempt_more(case: Case[Any]) -> None:
            # Only who may do it is asked about what is wrong with it.
            make(case, ["administrator"])

        def make(case: Case[Any], identities: Iterable[str]) -> None:
            with_what_there_is(world, case)
            for identity in identities:
                places: Any = case.path_parameters or {}
                if identity == "job" and "job_id" in places:
                    places["job_id"] = world.running
                answer = case.call(session=session, headers=dict(world.identities[identity]), timeout=30)
                good[case.operation.label] += answer.status_code < 400
                # Where the document says so, 501 is an answer: there is no job router, and runners know that word.
                checks = CHECKS[1:] if answer.status_code == HTTPStatus.NOT_IMPLEMENTED else CHECKS
                try:
                    case.validate_response(answer, checks=checks)
                except FailureGroup as failures:
                    wrong.append(f"{case.operation.label}, {identity}: {failures}")

        for operation in sorted(operations, key=in_turn):
            valid, invalid = (operation.as_strategy(mode) for mode in GenerationMode)
            settings(EXAMPLES or 2)(hypothesis.given(case=valid)(attempt))()
            with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # where nothing is taken nothing is invalid
                settings(EXAMPLES or 1)(hypothesis.given(case=invalid)(attempt_more))()
            if EXAMPLES:
                modes, config = list(GenerationMode), schema.config.generation_for(operation=operation)
                edges = schema.iter_coverage_cases(operation, generation_modes=modes, generation_config=config)
                for case in islice(edges, 10 * EXAMPLES):
                    attempt(case)
                print(f"{operation.label}: {good[operation.label]} successes, wrong so far: {len(wrong)}", flush=True)
    return wrong, good


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(3600 if EXAMPLES else 240)
@pytest.mark.long
def test_every_answer_is_as_the_document_says(world: World) -> None:
    wrong, good = explore(world)
    assert not wrong, f"{len(wrong)} answers:\n" + "\n\n".join(wrong)
    never = sorted(label for label, count in good.items() if not count)
    print(f"never answered with success: {never}")
    assert len(never) < len(good) / 4, never


HOSTILE: Mapping[str, Sequence[object]] = {
    "integer": (0, -1, 2**31, 2**63 - 1, 2**63, 2**64, -(10**30), 10**400),
    "number": (-1.5, 1e308, 10**400),
    "string": ("", " ", "\0", "\u202e\x1b[0m\r\n", "\ufffe\U0001f40e", "../../etc", "-x", "'\";--", "x" * 200_000),
    "boolean": ("maybe", 2),
    "array": ([], [None], [[]], [{}], ["\0"] * 50),
    "object": ({}, {"": ""}, {"\0": "\0"}, {"a": {"b": [{}]}}),
}


@pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)
@pytest.mark.timeout(240)
@pytest.mark.long
def test_no_single_value_breaks_the_cell(world: World) -> None:
    """Each field of each body, and each parameter of each query, with what is at the edge of its type and beyond."""
    document = world.cell.send("GET", "/api/remuda/v1/openapi.json").json()
    schemas = document["components"]["schemas"]
    broken = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method == "delete" or path.endswith("/events"):
                continue
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = schemas[content["schema"]["$ref"].rpartition("/")[2]] if content else {}
            start = {name: plausible(world, name, "x") for name in schema.get("required", ())}
            queried = {one["name"]: one["schema"] for one in operation["parameters"] if one["in"] == "query"}
            words = path.split("/")
            address = "/".join(
                quote(str(world.paths.get(words[at - 1], "x")), safe="") if word.startswith("{") else word
                for at, word in enumerate(words)
            )
            attempts: list[tuple[str, object]] = [
                (address, {**start, name: value})
                for name, field in schema.get("properties", {}).items()
                for value in values_for(field)
            ]
            attempts += [
                (f"{address}?{urlencode({name: str(value)[:2000]})}", None)
                for name, field in queried.items()
                for value in values_for(field)
            ]
            for target, body in attempts:
                answer = world.cell.send(method.upper(), target, body, PRIVATE_TOKEN=world.cell.token)
                if answer.status >= 500 and answer.status != HTTPStatus.NOT_IMPLEMENTED:
                    broken.append(f"{method} {target[:200]} {str(body)[:200]}: {answer}")
    assert not broken, "\n".join(broken)


def values_for(schema: Mapping[str, Any]) -> Iterator[object]:
    """What may be hard to bear where a schema is asked for."""
    for kind in (schema, *schema.get("anyOf", ())):
        types = kind.get("type", [])
        for name in [types] if isinstance(types, str) else types:
            yield from HOSTILE.get(name, ())
