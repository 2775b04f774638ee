"""Every endpoint that takes a token, and every kind of token that it must not take: the right refusal, nothing changed.

The endpoints come from the table that the cell itself serves, so a new one is in these tests from its first day.
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
from tests.support.cells.people import Person, a_group, a_member, a_person, a_project_in, an_organization
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

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
IN_MOTION = ("probe", "managers", "audit_events", "sequences")
"""Tables that change by themselves, or tell of what was refused."""


@dataclass
class Scene:
    """A cell with a bit of everything."""

    cell: ServedCell
    project: int
    runner: ScriptedRunner
    runner_id: int
    job: dict[str, Any]
    """A runner has it."""
    sibling: dict[str, Any]
    """Another job of its project, that runs too."""
    foreign: dict[str, Any]
    """A job of another project that the person who started the first one may not see."""
    keys: list[SigningKey] = field(default_factory=list)

    def rows(self) -> dict[str, list[Any]]:
        """Everything that is stored."""
        with closing(sqlite3.connect(f"file:{self.cell.settings.data}/cell.sqlite?mode=ro", uri=True)) as db:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
                for name in tables
                if name not in IN_MOTION
            }

    def path(self, endpoint: Endpoint) -> str:
        """The endpoint's, about things that are there."""
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
    """One for all tests: each of them leaves it as it was."""
    folder = tmp_path_factory.mktemp("forged") / "cell"
    # Thousands of calls with bad tokens within seconds are what the limit for callers without a good one is there for.
    settings: dict[str, Any] = {"anonymous_requests_per_minute": 600_000, "upkeep_seconds": 3600}
    with ServedCell(folder, registry="http://127.0.0.1:1", **settings) as cell:
        runner = cell.new_runner()
        project, job, sibling = a_running_project(cell, runner, "ada", "acme", "shop")
        other, foreign, _ = a_running_project(cell, runner, "bob", "other", "secret")
        for one in (foreign, job, sibling):
            assert runner.put(one, "running").status == 200
        assert foreign["job_info"]["project_id"] == other
        verified = cell.send("POST", "/api/v4/runners/verify", {"token": runner.token}).json()
        keys = asyncio.run(stored_keys(cell))
        yield Scene(cell, project, runner, verified["id"], job, sibling, foreign, keys)


def a_running_project(
    cell: ServedCell, runner: ScriptedRunner, person: str, group: str, name: str
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """A project that one person alone works on, and two of its jobs."""
    group_id = a_group(cell, group)
    project = a_project_in(cell, group_id, name)
    maker = a_person(cell, person)
    a_member(cell, f"groups/{group_id}", maker, 40)
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": PIPELINE}]
    body = {"branch": "main", "commit_message": "x", "actions": actions}
    assert maker.api("POST", f"/projects/{project}/repository/commits", body).status == 201
    return project, runner.take(), runner.take()


@asynccontextmanager
async def opened(cell: ServedCell) -> AsyncIterator[Store]:
    """The cell's store, as somebody beside it sees it."""
    store, _ = await open_store(cell.settings)
    try:
        yield store
    finally:
        await store.close()


async def stored_keys(cell: ServedCell) -> list[SigningKey]:
    """What only a thief would have."""
    async with opened(cell) as store:
        return list(await load_job_token_keys(store))


def of_kind(*kinds: Kind, or_job: bool = False) -> list[Any]:
    found = [one for one in (*ENDPOINTS, *DIRECT) if one.access.kind in kinds or (or_job and one.access.or_job)]
    return [pytest.param(one, id=f"{one.method} {one.path}") for one in found]


def basic(name: str, password: str) -> str:
    return f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"


# job tokens


def forged_job_tokens(scene: Scene) -> dict[str, str]:
    """Tokens for the job of the scene that are not the one it was given."""
    good = scene.job["token"].removeprefix("glcbt-")
    head, body, signature = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})
    [key] = scene.keys
    public = key.private.public_key()
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    rsa, thief = generate_private_key(65537, 2048), new_key(key.kid)

    def signed(by: Any = key.private, algorithm: str = "EdDSA", kid: Any = key.kid, **changed: Any) -> str:
        told = {name: value for name, value in (claims | changed).items() if value is not None}
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(told, by, algorithm=algorithm, headers=headers)

    def hashed(secret: bytes) -> str:
        """By hand: the library refuses to sign with what looks like a public key."""
        told = _encoded({"alg": "HS256", "kid": key.kid, "typ": "JWT"})
        text = f"{told}.{body}"
        mac = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        return f"{text}.{urlsafe_b64encode(mac).decode().rstrip('=')}"

    tokens = {
        "no algorithm": f"{_encoded({'alg': 'none', 'kid': key.kid})}.{body}.",
        "no algorithm, in capitals": f"{_encoded({'alg': 'NONE', 'kid': key.kid})}.{body}.{signature}",
        "hashed with the public key": hashed(raw),
        "hashed with the public key as PEM": hashed(pem),
        "another algorithm": signed(rsa, "RS256"),
        "another key under the same name": signed(thief.private),
        "another key": signed(thief.private, kid="cell1-1"),
        "a key of no name": signed(kid=None),
        "a name of a key that is none": f"{_encoded({'alg': 'EdDSA', 'kid': [key.kid]})}.{body}.{signature}",
        "a path for a name": signed(kid="../../../dev/null"),
        "another key's name": f"{_encoded({'alg': 'EdDSA', 'kid': 'id-1'})}.{body}.{signature}",
        "a key brought along": jwt.encode(
            claims, thief.private, algorithm="EdDSA", headers={"kid": "x", "jwk": thief.public_jwk()}
        ),
        "critical words": f"{_encoded({'alg': 'EdDSA', 'kid': key.kid, 'crit': ['exp']})}.{body}.{signature}",
        "expired": signed(exp=1),
        "another cell": signed(c="2"),
        "another project": signed(p="zz"),
        "an earlier hand-out": signed(epoch=0),
        "a later hand-out": signed(epoch=claims["epoch"] + 1),
        "for somebody else": signed(aud="https://vault.example"),
        "no time": signed(exp=None),
        "no scopes": signed(scopes=[]),
        "other scopes": signed(scopes=["api"]),
        "changed claims": f"{head}.{_encoded(claims | {'epoch': 7})}.{signature}",
        "another signature": f"{head}.{body}.{urlsafe_b64encode(secrets.token_bytes(64)).decode().rstrip('=')}",
        "no signature": f"{head}.{body}.",
        "a piece": f"{head}.{body}",
        "a bit longer": good + "A",
        "a bit shorter": good[:-2],
    }
    tokens = {name: f"glcbt-{token}" for name, token in tokens.items()}
    return tokens | {
        "without its beginning": good,
        "an opaque one": f"glcbt-{scene.job['id']:x}_{'A' * 20}",
        "a runner's": scene.runner.token,
        "a person's": scene.cell.token,
        "nonsense": "nonsense",
        "very long": "glcbt-" + "A" * 7000,
    }


def _encoded(values: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def as_job(scene: Scene, endpoint: Endpoint, token: str) -> list[Answer]:
    """The call with this token, wherever it may stand."""
    send, path = scene.cell.send, scene.path(endpoint)
    if endpoint.access.kind is Kind.GIT:
        return [send(endpoint.method, path, _empty(endpoint), Authorization=basic("gitlab-ci-token", token))]
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


JOB_ENDPOINTS = of_kind(Kind.JOB, Kind.GIT, Kind.TRIGGER, or_job=True)


@pytest.mark.parametrize("endpoint", JOB_ENDPOINTS)
def test_no_forged_job_token_is_taken(scene: Scene, endpoint: Endpoint) -> None:
    expected = {Kind.GIT: 401, Kind.TRIGGER: 404}.get(endpoint.access.kind, 403)
    before = scene.rows()
    for name, token in forged_job_tokens(scene).items():
        for answer in as_job(scene, endpoint, token):
            assert answer.status == expected, (name, answer)
            assert b"Traceback" not in answer.body
    assert scene.rows() == before


@pytest.mark.parametrize("endpoint", JOB_ENDPOINTS)
def test_a_token_of_another_job_opens_none(scene: Scene, endpoint: Endpoint) -> None:
    before = scene.rows()
    by_number = endpoint.access.kind is Kind.JOB and "{job_id}" in endpoint.path
    for token, is_allowed in ((scene.foreign["token"], False), (scene.sibling["token"], not by_number)):
        if is_allowed or endpoint.path in ("/api/v4/job", "/jwt/auth"):
            continue  # what the job itself may do is tested elsewhere
        answers = as_job(scene, endpoint, token)
        assert all(answer.status in (403, 404) for answer in answers), answers
    assert scene.rows() == before


def test_the_right_token_is_taken(scene: Scene) -> None:
    """Or else all of the above would mean nothing."""
    path = f"/api/v4/jobs/{scene.job['id']}"
    assert scene.runner.put(scene.job, "running").status == 200
    assert scene.cell.send("GET", "/api/v4/job", JOB_TOKEN=scene.job["token"]).json()["id"] == scene.job["id"]
    assert scene.cell.send("PUT", path, {"token": scene.sibling["token"], "state": "running"}).status == 403
    shown = basic("gitlab-ci-token", scene.job["token"])
    assert scene.cell.send("GET", "/jwt/auth?service=container_registry", Authorization=shown).status == 200
    fetched = scene.cell.send("GET", "/acme/shop.git/info/refs?service=git-upload-pack", Authorization=shown)
    assert fetched.status == 200


# runner tokens


def forged_runner_tokens(scene: Scene) -> dict[str, str]:
    cell, good = scene.cell, scene.runner.token
    taken = decode(good)
    removed, renewed, expired = (cell.new_runner() for _ in range(3))
    asyncio.run(expire_runner(cell, expired.token))
    cell.send("DELETE", "/api/v4/runners", {"token": removed.token})
    assert cell.send("POST", "/api/v4/runners/reset_authentication_token", {"token": renewed.token}).status == 201
    return {
        "of a removed runner": removed.token,
        "that was reset": renewed.token,
        "that has expired": expired.token,
        "with the same routing": encode(prefix="glrt-", routing=taken.routing, random=secrets.token_bytes(16)),
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
    """What somebody would find who could read the store."""
    async with opened(cell) as store:
        runner = await store.runners.load_runner(RunnerId(runner_id))
        assert runner is not None
        return runner.token_hash


async def expire_runner(cell: ServedCell, token: str) -> None:
    async with opened(cell) as store:
        runner = await store.runners.find_runner(token_hash(token))
        assert runner is not None
        await store.runners.change_runner(runner.id, lambda row: replace(row, token_expires_at=1.0))


@pytest.mark.parametrize("endpoint", of_kind(Kind.RUNNER))
def test_no_forged_runner_token_is_taken(scene: Scene, endpoint: Endpoint) -> None:
    tokens = forged_runner_tokens(scene)
    before = scene.rows()
    for name, token in tokens.items():
        body = {"token": token, "system_id": "s_0123456789ab", "description": "thief"}
        header = {"RUNNER_TOKEN": token} if token.isprintable() and len(token) < 8000 else {}
        if endpoint.method != "GET" and "/shells/" not in endpoint.path:
            # The body counts; the right token in the header, which is for routers, helps nobody.
            answer = scene.cell.send(endpoint.method, endpoint.path, body, RUNNER_TOKEN=scene.runner.token)
        elif header:
            answer = scene.cell.send(endpoint.method, endpoint.path, **header)
        else:
            continue
        assert answer.status == 403, (name, answer)
    assert scene.rows() == before


def test_a_runner_of_another_organization_gets_nothing_of_this_one(scene: Scene) -> None:
    far = an_organization(scene.cell, "far")
    alien = scene.cell.new_runner(organization_id=far)
    paused = scene.cell.new_runner(paused=True)
    for runner in (alien, paused):
        # Known, so never 403: a third one would silence the runner for an hour.
        for _ in range(4):
            assert runner.ask().status == 204
        assert scene.cell.send("POST", "/api/v4/runners/verify", {"token": runner.token}).status == 200


# personal tokens

PERSONS = (
    Kind.USER,
    Kind.ADMINISTRATOR,
    Kind.PROJECT,
    Kind.GROUP,
    Kind.JOB_NUMBER,
    Kind.PIPELINE_NUMBER,
    Kind.RUNNER_NUMBER,
)


@pytest.fixture(scope="module")
def persons(scene: Scene) -> dict[str, tuple[str, int]]:
    """Tokens of people that open nothing, with the answer to each."""
    cell = scene.cell
    root = Person(cell, 1, "root", cell.token)
    blocked = a_person(cell, "blocked", admin=True)
    revoked = a_person(cell, "revoked", admin=True)
    assert cell.api("POST", f"/users/{blocked.id}/block").status == 201
    assert revoked.api("DELETE", "/personal_access_tokens/self").status == 204
    expired = root.with_scopes("api", expires_at="2099-01-01")
    asyncio.run(expire(cell, expired.token))
    narrow = root.with_scopes("ai_features")
    assert narrow.api("GET", "/personal_access_tokens/self").status == 200  # from now on it is known to be in use
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


async def expire(cell: ServedCell, token: str) -> None:
    async with opened(cell) as store:
        row = await store.people.find_user_token(token_hash(token))
        assert row is not None
        await store.people.change_user_token(row.id, lambda old: replace(old, expires_at=1.0))


@pytest.mark.parametrize("endpoint", of_kind(*PERSONS))
def test_no_personal_token_that_is_over_is_taken(
    scene: Scene, persons: dict[str, tuple[str, int]], endpoint: Endpoint
) -> None:
    before = scene.rows()
    for name, (token, status) in persons.items():
        for header in ({"PRIVATE_TOKEN": token}, {"Authorization": f"Bearer {token}"}):
            answer = scene.cell.send(endpoint.method, scene.path(endpoint), _body(endpoint, {}), **header)
            assert answer.status == status, (name, answer)
    assert scene.rows() == before
