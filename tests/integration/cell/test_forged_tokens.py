"""Calls every endpoint that takes a token with invalid tokens: each is refused, and nothing changes.

The endpoints come from the cell's own table, so a new one is tested as soon as it exists.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import sqlite3
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from msgspec.structs import replace
from tests.support.cells.people import (
    Person,
    add_member,
    create_group,
    create_group_project,
    create_organization,
    create_person,
)
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell, commit_file

from remuda.cell.core.waiting.usage import ring_names
from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.app import DIRECT, ENDPOINTS
from remuda.cell.http.edge.endpoints import Endpoint
from remuda.cell.secrets.key_ring import load_job_token_keys
from remuda.cell.store.open import open_store
from remuda.cell.store.ports import Store
from remuda.model.job import RunnerId
from remuda.wire.job_token import SigningKey, new_key
from remuda.wire.routable_token import decode, encode, token_hash

PIPELINE = "a: {script: [echo]}\nb: {script: [echo]}\n"
CHANGING_TABLES = ("probe", "managers", "audit_events", "sequences")
"""Tables that change by themselves, or record refused requests. Of the settings, the history of usage does."""


@dataclass
class Scene:
    """A cell with a runner, and with running jobs of two projects."""

    cell: ServedCell
    project: int
    runner: ScriptedRunner
    runner_id: int
    job: dict[str, Any]
    """A job that the runner has."""
    sibling: dict[str, Any]
    """Another running job of the same project."""
    foreign: dict[str, Any]
    """A job of another project, which the user who started `job` cannot see."""
    keys: list[SigningKey] = field(default_factory=list)

    def rows(self) -> dict[str, list[Any]]:
        """Return all stored rows, except of tables that change by themselves."""
        with closing(sqlite3.connect(f"file:{self.cell.settings.data}/cell.sqlite?mode=ro", uri=True)) as db:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
        rows["settings"] = [row for row in rows["settings"] if row[0] not in ring_names()]
        return {name: sorted(found, key=repr) for name, found in rows.items() if name not in CHANGING_TABLES}

    def path(self, endpoint: Endpoint) -> str:
        """Return the endpoint's path with ids of objects that exist."""
        is_group = endpoint.path.startswith("/api/v4/groups/")
        values = {
            "id": 2 if is_group else self.project,
            "job_id": self.job["id"],
            "pipeline_id": self.job["job_info"]["pipeline_id"],
            "runner_id": self.runner_id,
            "path": "acme/shop" if endpoint.path.startswith("/{path}.git") else "README.md",
            "ref": "main",
            "branch": "main",
            "sha": self.job["git_info"]["sha"],
        }
        path = endpoint.path.replace(":path}", "}")
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", str(value))
        while "{" in path:
            path = path[: path.index("{")] + "1" + path[path.index("}") + 1 :]
        if path.endswith("info/refs"):
            path += "?service=git-upload-pack"
        return path + "?service=container_registry" if path == "/jwt/auth" else path


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One scene for all tests, none of which changes it."""
    folder = tmp_path_factory.mktemp("forged") / "cell"
    # The default limit for callers without a valid token would refuse thousands of calls within seconds. On a slow
    # machine the tests take longer than a lease, whose end changes a job.
    settings: dict[str, Any] = {"anonymous_requests_per_minute": 600_000, "upkeep_seconds": 3600, "lease_seconds": 3600}
    with ServedCell(folder, registry="http://127.0.0.1:1", **settings) as cell:
        runner = cell.new_runner()
        project, job, sibling = a_running_project(cell, runner, "ada", "acme", "shop")
        other, foreign, _ = a_running_project(cell, runner, "bob", "other", "secret")
        for running in (foreign, job, sibling):
            assert runner.put(running, "running").status == 200
        assert foreign["job_info"]["project_id"] == other
        verified = cell.send("POST", "/api/v4/runners/verify", {"token": runner.token}).json()
        keys = asyncio.run(load_signing_keys(cell))
        yield Scene(cell, project, runner, verified["id"], job, sibling, foreign, keys)


def a_running_project(
    cell: ServedCell, runner: ScriptedRunner, person: str, group: str, name: str
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Create a project with a single user and take two of its jobs."""
    group_id = create_group(cell, group)
    project = create_group_project(cell, group_id, name)
    maker = create_person(cell, person)
    add_member(cell, f"groups/{group_id}", maker, 40)
    commit_file(maker, project, PIPELINE)
    return project, runner.take(), runner.take()


@asynccontextmanager
async def open_store_of(cell: ServedCell) -> AsyncIterator[Store]:
    """Open the store of a running cell a second time."""
    store, _ = await open_store(cell.settings)
    try:
        yield store
    finally:
        await store.close()


async def load_signing_keys(cell: ServedCell) -> list[SigningKey]:
    """Return the cell's private keys, which no client has."""
    async with open_store_of(cell) as store:
        return list(await load_job_token_keys(store))


def endpoints_of_kind(*kinds: Kind, or_job: bool = False) -> list[Any]:
    endpoints = [
        endpoint
        for endpoint in (*ENDPOINTS, *DIRECT)
        if endpoint.access.kind in kinds or (or_job and endpoint.access.or_job)
    ]
    return [pytest.param(endpoint, id=f"{endpoint.method} {endpoint.path}") for endpoint in endpoints]


def basic_auth(name: str, password: str) -> str:
    return f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"


# job tokens


def forged_job_tokens(scene: Scene) -> dict[str, str]:
    """Return tokens for the scene's job that are not its own, by what is wrong with them."""
    good = scene.job["token"].removeprefix("glcbt-")
    head, body, signature = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})
    [key] = scene.keys
    public = key.private.public_key()
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    rsa, thief = generate_private_key(65537, 2048), new_key(key.kid)

    def sign(by: Any = key.private, algorithm: str = "EdDSA", kid: Any = key.kid, **changes: Any) -> str:
        payload = {name: value for name, value in (claims | changes).items() if value is not None}
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(payload, by, algorithm=algorithm, headers=headers)

    def sign_with_hmac(secret: bytes) -> str:
        """Sign by hand, because the library refuses a public key as the secret."""
        header = _encode_json({"alg": "HS256", "kid": key.kid, "typ": "JWT"})
        text = f"{header}.{body}"
        mac = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        return f"{text}.{urlsafe_b64encode(mac).decode().rstrip('=')}"

    tokens = {
        "no algorithm": f"{_encode_json({'alg': 'none', 'kid': key.kid})}.{body}.",
        "no algorithm, in capitals": f"{_encode_json({'alg': 'NONE', 'kid': key.kid})}.{body}.{signature}",
        "hashed with the public key": sign_with_hmac(raw),
        "hashed with the public key as PEM": sign_with_hmac(pem),
        "another algorithm": sign(rsa, "RS256"),
        "another key with the same id": sign(thief.private),
        "another key": sign(thief.private, kid="cell1-1"),
        "no key id": sign(kid=None),
        "a key id that is no string": f"{_encode_json({'alg': 'EdDSA', 'kid': [key.kid]})}.{body}.{signature}",
        "a path as key id": sign(kid="../../../dev/null"),
        "the id of another key": f"{_encode_json({'alg': 'EdDSA', 'kid': 'id-1'})}.{body}.{signature}",
        "a key in the header": jwt.encode(
            claims, thief.private, algorithm="EdDSA", headers={"kid": "x", "jwk": thief.public_jwk()}
        ),
        "a critical header": f"{_encode_json({'alg': 'EdDSA', 'kid': key.kid, 'crit': ['exp']})}.{body}.{signature}",
        "expired": sign(exp=1),
        "another cell": sign(c="2"),
        "another project": sign(p="zz"),
        "an earlier hand-out": sign(epoch=0),
        "a later hand-out": sign(epoch=claims["epoch"] + 1),
        "another audience": sign(aud="https://vault.example"),
        "no expiry": sign(exp=None),
        "no scopes": sign(scopes=[]),
        "other scopes": sign(scopes=["api"]),
        "changed claims": f"{head}.{_encode_json(claims | {'epoch': 7})}.{signature}",
        "another signature": f"{head}.{body}.{urlsafe_b64encode(secrets.token_bytes(64)).decode().rstrip('=')}",
        "no signature": f"{head}.{body}.",
        "without the third part": f"{head}.{body}",
        "a bit longer": good + "A",
        "a bit shorter": good[:-2],
    }
    tokens = {name: f"glcbt-{token}" for name, token in tokens.items()}
    return tokens | {
        "without its prefix": good,
        "an opaque token": f"glcbt-{scene.job['id']:x}_{'A' * 20}",
        "a runner's": scene.runner.token,
        "a person's": scene.cell.token,
        "nonsense": "nonsense",
        "very long": "glcbt-" + "A" * 7000,
    }


def _encode_json(values: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def as_job(scene: Scene, endpoint: Endpoint, token: str) -> list[Answer]:
    """Call the endpoint with this token in every place where it can be sent."""
    send, path = scene.cell.send, scene.path(endpoint)
    if endpoint.access.kind is Kind.GIT:
        return [send(endpoint.method, path, _empty(endpoint), Authorization=basic_auth("gitlab-ci-token", token))]
    if endpoint.access.kind is Kind.TRIGGER:
        return [send("POST", path, {"token": token, "ref": "main"})]
    body = {"state": "success", "results": [], "version": 1, "tag_name": "v1", "name": "v1"}
    answers = [send(endpoint.method, path, _body(endpoint, body), JOB_TOKEN=token)]
    if endpoint.access.kind is Kind.JOB and endpoint.method == "PUT":
        answers.append(send("PUT", path, body | {"token": token}, JOB_TOKEN=scene.job["token"]))
    elif endpoint.access.kind is Kind.JOB and len(token) < 2000:
        query = f"{path}?token={token}"
        answers.append(send(endpoint.method, query, _body(endpoint, body), JOB_TOKEN=scene.job["token"]))
    return answers


def _empty(endpoint: Endpoint) -> bytes | None:
    return b"" if endpoint.method == "POST" else None


def _body(endpoint: Endpoint, values: dict[str, Any]) -> Any:
    if endpoint.method in ("GET", "DELETE"):
        return None
    return b"bytes" if endpoint.method == "PATCH" or endpoint.path.endswith("/artifacts") else values


JOB_ENDPOINTS = endpoints_of_kind(Kind.JOB, Kind.GIT, Kind.TRIGGER, or_job=True)


@pytest.mark.parametrize("endpoint", JOB_ENDPOINTS)
def test_no_forged_job_token_is_accepted(scene: Scene, endpoint: Endpoint) -> None:
    expected = {Kind.GIT: 401, Kind.TRIGGER: 404}.get(endpoint.access.kind, 403)
    before = scene.rows()
    for name, token in forged_job_tokens(scene).items():
        for answer in as_job(scene, endpoint, token):
            assert answer.status == expected, (name, answer)
            assert b"Traceback" not in answer.body
    assert scene.rows() == before


@pytest.mark.parametrize("endpoint", JOB_ENDPOINTS)
def test_a_token_of_another_job_is_refused(scene: Scene, endpoint: Endpoint) -> None:
    before = scene.rows()
    by_job_id = endpoint.access.kind is Kind.JOB and "{job_id}" in endpoint.path
    for token, is_allowed in ((scene.foreign["token"], False), (scene.sibling["token"], not by_job_id)):
        if is_allowed or endpoint.path in ("/api/v4/job", "/jwt/auth"):
            continue  # what the job itself may do is tested elsewhere
        answers = as_job(scene, endpoint, token)
        assert all(answer.status in (403, 404) for answer in answers), answers
    assert scene.rows() == before


def test_the_valid_token_is_accepted(scene: Scene) -> None:
    """If it were not, the refusals in the other tests would prove nothing."""
    path = f"/api/v4/jobs/{scene.job['id']}"
    assert scene.runner.put(scene.job, "running").status == 200
    assert scene.cell.send("GET", "/api/v4/job", JOB_TOKEN=scene.job["token"]).json()["id"] == scene.job["id"]
    assert scene.cell.send("PUT", path, {"token": scene.sibling["token"], "state": "running"}).status == 403
    authorization = basic_auth("gitlab-ci-token", scene.job["token"])
    assert scene.cell.send("GET", "/jwt/auth?service=container_registry", Authorization=authorization).status == 200
    fetched = scene.cell.send("GET", "/acme/shop.git/info/refs?service=git-upload-pack", Authorization=authorization)
    assert fetched.status == 200


# runner tokens


def forged_runner_tokens(scene: Scene) -> dict[str, str]:
    cell, good = scene.cell, scene.runner.token
    decoded = decode(good)
    removed, renewed, expired = (cell.new_runner() for _ in range(3))
    asyncio.run(expire_runner(cell, expired.token))
    cell.send("DELETE", "/api/v4/runners", {"token": removed.token})
    assert cell.send("POST", "/api/v4/runners/reset_authentication_token", {"token": renewed.token}).status == 201
    return {
        "of a removed runner": removed.token,
        "that was reset": renewed.token,
        "that has expired": expired.token,
        "with the same routing": encode(prefix="glrt-", routing=decoded.routing, random=secrets.token_bytes(16)),
        "with another prefix": "glrtr-" + good.removeprefix("glrt-"),
        "without its check sum": good[:-9],
        "with another end": good[:-1] + ("0" if good[-1] != "0" else "1"),
        "in capitals": good.upper(),
        "with a space": good + " ",
        "its hash": asyncio.run(stored_hash(cell, scene.runner_id)),
        "a person's": cell.token,
        "a job's": scene.job["token"],
        "nonsense": "nonsense",
        "very long": "glrt-" + "A" * 9000,
        "with a null character": "glrt-\0",
    }


async def stored_hash(cell: ServedCell, runner_id: int) -> str:
    """Return the hash of the runner's token, as it is stored."""
    async with open_store_of(cell) as store:
        runner = await store.runners.load_runner(RunnerId(runner_id))
        assert runner is not None
        return runner.token_hash


async def expire_runner(cell: ServedCell, token: str) -> None:
    async with open_store_of(cell) as store:
        runner = await store.runners.find_runner(token_hash(token))
        assert runner is not None
        await store.runners.change_runner(runner.id, lambda row: replace(row, token_expires_at=1.0))


@pytest.mark.parametrize("endpoint", endpoints_of_kind(Kind.RUNNER))
def test_no_forged_runner_token_is_accepted(scene: Scene, endpoint: Endpoint) -> None:
    tokens = forged_runner_tokens(scene)
    before = scene.rows()
    for name, token in tokens.items():
        body = {"token": token, "system_id": "s_0123456789ab", "description": "thief"}
        header = {"RUNNER_TOKEN": token} if token.isprintable() and len(token) < 8000 else {}
        if endpoint.method != "GET" and "/shells/" not in endpoint.path:
            # Only the token in the body counts; the valid one in the header is for routers.
            answer = scene.cell.send(endpoint.method, endpoint.path, body, RUNNER_TOKEN=scene.runner.token)
        elif header:
            answer = scene.cell.send(endpoint.method, endpoint.path, **header)
        else:
            continue
        assert answer.status == 403, (name, answer)
    assert scene.rows() == before


def test_a_runner_of_another_organization_gets_nothing_of_this_one(scene: Scene) -> None:
    far = create_organization(scene.cell, "far")
    alien = scene.cell.new_runner(organization_id=far)
    paused = scene.cell.new_runner(paused=True)
    for runner in (alien, paused):
        # The cell knows these runners, so it never answers 403: the third one would stop a runner for an hour.
        for _ in range(4):
            assert runner.ask().status == 204
        assert scene.cell.send("POST", "/api/v4/runners/verify", {"token": runner.token}).status == 200


# personal tokens

USER_KINDS = (
    Kind.USER,
    Kind.ADMINISTRATOR,
    Kind.PROJECT,
    Kind.GROUP,
    Kind.JOB_NUMBER,
    Kind.PIPELINE_NUMBER,
    Kind.RUNNER_NUMBER,
)


@pytest.fixture(scope="module")
def refused_tokens(scene: Scene) -> dict[str, tuple[str, int]]:
    """Tokens that are not valid for users, with the status of the refusal."""
    cell = scene.cell
    root = Person(cell, 1, "root", cell.token)
    blocked = create_person(cell, "blocked", admin=True)
    revoked = create_person(cell, "revoked", admin=True)
    assert cell.api("POST", f"/users/{blocked.id}/block").status == 201
    assert revoked.api("DELETE", "/personal_access_tokens/self").status == 204
    expired = root.with_scopes("api", expires_at="2099-01-01")
    asyncio.run(expire_user_token(cell, expired.token))
    narrow = root.with_scopes("ai_features")
    assert narrow.api("GET", "/personal_access_tokens/self").status == 200  # its first use is recorded in the store
    return {
        "blocked": (blocked.token, 403),
        "without a scope for it": (narrow.token, 403),
        "revoked": (revoked.token, 401),
        "expired": (expired.token, 401),
        "cut off": (cell.token[:-1], 401),
        "longer": (cell.token + "x", 401),
        "a runner's": (scene.runner.token, 401),
        "a job's": (scene.job["token"], 401),
        "nonsense": ("nonsense", 401),
        "nothing": ("", 401),
    }


async def expire_user_token(cell: ServedCell, token: str) -> None:
    async with open_store_of(cell) as store:
        row = await store.people.find_user_token(token_hash(token))
        assert row is not None
        await store.people.change_user_token(row.id, lambda old: replace(old, expires_at=1.0))


@pytest.mark.parametrize("endpoint", endpoints_of_kind(*USER_KINDS))
def test_invalid_personal_tokens(scene: Scene, refused_tokens: dict[str, tuple[str, int]], endpoint: Endpoint) -> None:
    before = scene.rows()
    for name, (token, status) in refused_tokens.items():
        for header in ({"PRIVATE_TOKEN": token}, {"Authorization": f"Bearer {token}"}):
            answer = scene.cell.send(endpoint.method, scene.path(endpoint), _body(endpoint, {}), **header)
            assert answer.status == status, (name, answer)
    assert scene.rows() == before
