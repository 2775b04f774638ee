"""Fuzzes the API with schemathesis: every response conforms to the OpenAPI document, and none is 5xx.

Every operation is called as administrator, developer, runner and job, and without a token. Path parameters and some
other values are mostly those of existing objects, so that requests get beyond 404. The examples are the same in every
run; `REMUDA_FUZZ_EXAMPLES` asks for more of them, with another seed each time.
"""

import contextlib
import hashlib
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
from tests.support.cells.lfs_client import Lfs, basic
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
  resource_group: production
"""
HOOK_URL = "http://127.0.0.1:9/"
"""Nothing is sent to it, because the cell refuses local addresses."""
PAIRS = [{"key": "KEY", "value": "value"}]
GROUP_OBJECTS: dict[str, dict[str, Any]] = {
    "hooks": {"url": HOOK_URL, "custom_headers": PAIRS, "url_variables": PAIRS},
    "access_tokens": {"name": "x", "scopes": ["api"], "expires_at": "2999-01-31"},
    "deploy_tokens": {"name": "x", "scopes": ["read_repository"]},
}
LAST = (
    "POST /api/v4/projects/{id}/archive",
    "PUT /api/v4/jobs/{job_id}",
    "POST /api/v4/runners/reset_authentication_token",
    "DELETE /api/v4/runners",
)
"""Operations after which the token of the caller is not valid any more."""


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
    """A cell with at least one object of every kind."""

    cell: ServedCell
    paths: Mapping[str, Any]
    """Values of path parameters, by the path segment before them."""
    spare: Mapping[str, Any]
    """The same for requests that delete something."""
    identities: Mapping[str, Mapping[str, str]]
    runner_token: str
    running: int
    """The id of the job whose token the identity `job` has."""


def an_archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("out/made.txt", "made")
    return out.getvalue()


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world on the store that the test names."""
    settings: dict[str, Any] = {"poll_hold_seconds": 0.05, "body_silent_seconds": 5}
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            settings["database"] = stack.enter_context(server.database())
        yield a_world(stack.enter_context(ServedCell(tmp_path_factory.mktemp("fuzzed") / "cell", **settings)))


def a_world(cell: ServedCell) -> World:
    def create(path: str, body: object, **headers: str) -> Any:
        answer = cell.api("POST", path, body, **headers)
        assert answer.status == 201, (path, answer)
        return answer.json()

    group, spare_group = (create("/groups", {"name": name, "path": name}) for name in ("group", "spare-group"))
    user = create("/users", {"username": "dev", "name": "Dev", "email": "dev@example.com"})
    create("/admin/ci/variables", {"key": "KEY", "value": "value"})
    of_groups: dict[int, dict[str, Any]] = {}
    for parent in (group, spare_group):
        create(f"/groups/{parent['id']}/variables", {"key": "KEY", "value": "value"})
        create(f"/groups/{parent['id']}/members", {"user_id": user["id"], "access_level": 50})
        of_groups[parent["id"]] = {
            f"groups {kind}": create(f"/groups/{parent['id']}/{kind}", body)["id"]
            for kind, body in GROUP_OBJECTS.items()
        }
    tokens = [
        create(f"/users/{user['id']}/personal_access_tokens", {"name": name, "scopes": ["api"]}) for name in ("a", "b")
    ]
    runner = create("/user/runners", {"runner_type": "instance_type"})
    places = []
    for name in ("app", "spare"):
        project = cell.new_project(name, PIPELINE)
        root = f"/projects/{project}"
        create(f"{root}/members", {"user_id": user["id"], "access_level": 40})
        create(f"{root}/variables", {"key": "KEY", "value": "value"})
        schedule = create(f"{root}/pipeline_schedules", {"description": "x", "ref": "main", "cron": "@daily"})
        create(f"{root}/pipeline_schedules/{schedule['id']}/variables", {"key": "KEY", "value": "value"})
        trigger = create(f"{root}/triggers", {"description": "x"})
        create(f"{root}/releases", {"tag_name": "v1", "ref": "main"})
        create(f"{root}/repository/branches", {"branch": "side", "ref": "main"})
        own = create("/user/runners", {"runner_type": "project_type", "project_id": project})
        [pipeline] = [row for row in cell.until_pipelines(3, f"root/{name}") if row["ref"] == "main"]
        create(f"{root}/protected_tags", {"name": "v1"})
        lfs = Lfs(cell, f"root/{name}", basic(cell.token))
        assert lfs.put(b"large").status == 200
        lock = lfs.send("POST", "info/lfs/locks", {"path": "a.psd"}).json()["lock"]
        access_token = create(f"{root}/access_tokens", {"name": "x", "scopes": ["api"], "expires_at": "2999-01-31"})
        deploy_token = create(f"{root}/deploy_tokens", {"name": "x", "scopes": ["read_repository"]})
        hook = create(f"{root}/hooks", GROUP_OBJECTS["hooks"])
        environment = create(f"{root}/environments", {"name": "production"})
        deployed = {"environment": "production", "ref": "main", "sha": pipeline["sha"], "tag": False}
        deployment = create(f"{root}/deployments", {**deployed, "status": "failed" if name == "spare" else "running"})
        if name == "spare":
            assert cell.api("POST", f"{root}/environments/{environment['id']}/stop", {"force": True}).status == 200
        things = (schedule, trigger, own, pipeline, lock, access_token, deploy_token, environment, deployment, hook)
        ids = (thing["id"] for thing in things)
        places.append((project, *map(int, ids)))
    scripted = ScriptedRunner(cell, runner["token"])
    done, running = scripted.take(), scripted.take()
    scripted.patch(done, 0, b"section_start:1:script\r\x1b[0Kmaking\n")
    scripted.upload(done, an_archive())
    scripted.put(done, "success")
    scripted.put(running, "running")
    create(f"/projects/{places[0][0]}/pipeline", {"ref": "main"})

    def path_values(place: tuple[int, ...], of_group: Any, token: Any) -> dict[str, Any]:
        project, schedule, trigger, own, pipeline, lock, access_token, *deploying = place
        return {
            **of_groups[of_group["id"]],
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
            "access_tokens": access_token,
            "": f"root/{'app' if project == places[0][0] else 'spare'}",
            "objects": hashlib.sha256(b"large").hexdigest(),
            "locks": lock,
            "deploy_tokens": deploying[0],
            "environments": deploying[1],
            "deployments": deploying[2],
            "hooks": deploying[3],
            "custom_headers": "KEY",
            "url_variables": "KEY",
            "test": "push_events",
            "resource_groups": "production",
            "statuses": "main",
            "gitlab_ci_ymls": "Bash",
            "protected_branches": "main",
            "protected_tags": "v1",
        }

    return World(
        cell=cell,
        paths=path_values(places[0], group, tokens[0]),
        spare=path_values(places[1], spare_group, tokens[0]),
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


def stable_hash(value: object) -> int:
    """Return a number that is the same for equal values in every run."""
    return zlib.crc32(repr(value).encode(errors="replace"))


def is_replaced(value: object) -> bool:
    """True for three out of four values."""
    return stable_hash(value) % 4 != 0


def plausible(world: World, name: str, value: object) -> object:
    """Return a value that the cell is likely to accept for a field of this name."""
    values: dict[str, object] = {
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
        "oid": hashlib.sha256(b"large").hexdigest(),
        "size": 5,
        "target_project_id": world.spare["projects"],
        "target_group_id": world.spare["groups"],
        "state": "success",
        "status": "success",
        "environment": "production",
        "cron": "@daily",
        "cron_timezone": "UTC",
        "scopes": ["read_repository"],
        "scope": "projects",
        "search": "app",
        "ci_config_path": ".gitlab-ci.yml",
        "ci_default_git_depth": 20,
        "build_timeout": 3600,
        "build_git_strategy": "fetch",
        "auto_cancel_pending_pipelines": "enabled",
        "ci_pipeline_variables_minimum_override_role": "developer",
        "topics": ["topic"],
        "tag_list": ["topic"],
        "runner_type": "instance_type",
        "variable_type": "file",
        "visibility": "private",
        "expires_at": "2999-01-31",
        "environment_scope": "*",
        "email": "somebody@example.com",
        "priority": stable_hash(value) % 100,
        "name": f"name {stable_hash(value)}",
        "path": f"path-{stable_hash(value)}",
        "username": f"user-{stable_hash(value)}",
        "key": f"KEY_{stable_hash(value)}",
        "url": HOOK_URL,
        "tag_name": f"tag-{stable_hash(value)}",
    }
    if name == "access_level" and isinstance(value, int):
        return 30
    return values.get(name, value)


def use_existing_objects(world: World, case: Case[Any]) -> None:
    """Replace most generated values by those of existing objects and by values that are likely accepted."""
    words = case.operation.path.split("/")
    table = world.spare if case.operation.method.upper() == "DELETE" else world.paths
    places: Any = case.path_parameters or {}
    for name, value in places.items():
        before = words[next(index for index, word in enumerate(words) if f"{{{name}}}" in word) - 1]
        before = str(places.get("scope", before)) if before == "{scope}" else before
        # A path has many forms, so that a generated one of a project rarely reaches the handler.
        if before in table and (name == "path" or is_replaced(value)):
            of_group = f"groups {before}" if case.operation.path.startswith("/api/v4/groups/") else before
            places[name] = table.get(of_group, table[before])
    body: Any = case.body
    if isinstance(body, dict) and case.operation.path.startswith(("/api/v4/runners", "/api/v4/jobs/request")):
        body.setdefault("token", "")
    for fields in (case.query, body):
        for name in [name for name in fields if is_replaced(fields[name])] if isinstance(fields, dict) else []:
            fields[name] = plausible(world, name, fields[name])


def call_order(operation: APIOperation[Any, Any, Any, Any]) -> tuple[bool, bool, int]:
    """Sort deletions to the end, inner objects before outer ones; operations in `LAST` come after them."""
    is_removal = operation.method.upper() == "DELETE"
    return operation.label in LAST, is_removal, -len(operation.path) if is_removal else 0


def explore(world: World) -> tuple[list[str], Counter[str]]:
    """Call all operations; return the responses that do not conform, and the number of successes by operation."""
    schema = schemathesis.openapi.from_url(f"{world.cell.url}/api/remuda/v1/openapi.json")
    documented = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    assert len(documented) == schema.statistic.operations.total
    operations = [each for each in documented if not each.path.endswith("/events")]  # such a stream does not end
    wrong: list[str] = []
    good: Counter[str] = Counter()
    with requests.Session() as session:

        def attempt(case: Case[Any]) -> None:
            make(case, world.identities)

        def attempt_more(case: Case[Any]) -> None:
            # Only a caller with all rights gets beyond 403 with an invalid request.
            make(case, ["administrator"])

        def make(case: Case[Any], identities: Iterable[str]) -> None:
            use_existing_objects(world, case)
            for identity in identities:
                places: Any = case.path_parameters or {}
                if identity == "job" and "job_id" in places:
                    places["job_id"] = world.running
                answer = case.call(session=session, headers=dict(world.identities[identity]), timeout=30)
                good[case.operation.label] += answer.status_code < 400
                # The document contains 501 responses, which tell runners that there is no job router.
                checks = CHECKS[1:] if answer.status_code == HTTPStatus.NOT_IMPLEMENTED else CHECKS
                try:
                    case.validate_response(answer, checks=checks)
                except FailureGroup as failures:
                    wrong.append(f"{case.operation.label}, {identity}: {failures}")

        for operation in sorted(operations, key=call_order):
            valid, invalid = (operation.as_strategy(mode) for mode in GenerationMode)
            settings(EXAMPLES or 2)(hypothesis.given(case=valid)(attempt))()
            with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # without parameters no request is invalid
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
def test_every_response_conforms_to_the_document(world: World) -> None:
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
    """Sends boundary values and invalid values in each field of each body, and in each query parameter."""
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
            queried = {
                parameter["name"]: parameter["schema"]
                for parameter in operation["parameters"]
                if parameter["in"] == "query"
            }
            words = path.split("/")
            address = "/".join(
                quote(str(world.paths.get(words[index - 1], "x")), safe="") if word.startswith("{") else word
                for index, word in enumerate(words)
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
    """Yield values that may be hard to handle where a value of this schema is expected."""
    for kind in (schema, *schema.get("anyOf", ())):
        types = kind.get("type", [])
        for name in [types] if isinstance(types, str) else types:
            yield from HOSTILE.get(name, ())
