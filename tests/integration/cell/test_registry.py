"""Images in a real Docker registry that takes the cell's tokens: who may push and pull, and for how long."""

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.support.cells.people import a_group, a_member, a_person, a_project_in
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.servers.registry_server import RegistryClient, RegistryServer

from remuda.cell.errors import CellError
from remuda.wire.registry_token import RegistryKey

PIPELINE = "job: {script: [echo]}\n"
LAYER = b"a layer of an image" * 1000


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    if not RegistryServer.is_there():
        pytest.skip("docker-registry is not installed: make packages")
    with RegistryServer(tmp_path / "registry") as server:
        yield server


@pytest.fixture
def cell(tmp_path: Path, registry: RegistryServer) -> Iterator[ServedCell]:
    """A cell with a registry."""
    with ServedCell(tmp_path / "cell", registry=registry.url) as served:
        trusted = served.send("GET", "/jwt/certificate")
        assert trusted.status == 200
        registry.serve(cell=served.url, certificate=trusted.body)
        yield served


def basic(name: str, password: str) -> str:
    return f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"


def an_rsa_key() -> RegistryKey:
    private = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tokens")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, private.public_key(), 1, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    return RegistryKey(private=private, certificate=certificate)


def of_job(registry: RegistryServer, job: dict[str, Any]) -> RegistryClient:
    """A client with what the payload says."""
    [given] = job["credentials"]
    assert (given["type"], given["url"]) == ("registry", registry.host)
    return RegistryClient(registry, given["username"], given["password"])


def test_a_job_pushes_and_pulls_images_of_its_project(
    cell: ServedCell, runner: ScriptedRunner, registry: RegistryServer
) -> None:
    cell.new_project("App", PIPELINE)
    cell.new_project("other", PIPELINE)
    first, second = runner.take(), runner.take()
    own, foreign = (of_job(registry, job) for job in (first, second))
    variables = {one["key"]: one["value"] for one in first["variables"]}
    assert variables["CI_REGISTRY"] == registry.host
    assert variables["CI_REGISTRY_IMAGE"] == f"{registry.host}/root/app"
    assert (variables["CI_REGISTRY_USER"], variables["CI_REGISTRY_PASSWORD"]) == ("gitlab-ci-token", first["token"])
    for image in ("root/app", "root/app/tools/builder"):
        assert own.push(image, LAYER) == 201
        assert own.pull(image) == LAYER
        assert foreign.push(image, b"bad") == 401
        assert foreign.pull(image) == 401
    assert own.push("root/other", b"bad") == 401
    assert own.push("root/none", b"bad") == 401
    nobody = RegistryClient(registry)
    assert (nobody.pull("root/app"), nobody.push("root/app", b"bad")) == (401, 401)
    assert runner.put(first, "success").status == 200
    assert (own.pull("root/app"), own.push("root/app", b"bad")) == (401, 401)
    assert foreign.push("root/other", LAYER) == 201


def test_people_use_images_by_their_level_and_scopes(cell: ServedCell, registry: RegistryServer) -> None:
    acme = a_group(cell, "acme")
    a_project_in(cell, acme, "shop", PIPELINE)
    people = {level: a_person(cell, f"p{level}") for level in (10, 20, 30)}
    for level, one in people.items():
        a_member(cell, f"groups/{acme}", one, level)
    people[0] = a_person(cell, "stranger")

    def client(level: int, *scopes: str) -> RegistryClient:
        person = people[level].with_scopes(*scopes)
        return RegistryClient(registry, person.username, person.token)

    assert client(30, "read_registry", "write_registry").push("acme/shop", LAYER) == 201
    for level, scopes, pulls in (
        (20, ["read_registry"], True),
        (20, ["read_api"], True),
        (20, ["api"], True),
        (30, ["write_registry"], False),
        (30, ["read_repository"], False),
        (10, ["api"], False),
        (0, ["api"], False),
    ):
        assert client(level, *scopes).pull("acme/shop") == (LAYER if pulls else 401), (level, scopes)
    for level, scopes in ((20, ["api"]), (30, ["read_registry"]), (30, ["read_api"]), (0, ["api"])):
        assert client(level, *scopes).push("acme/shop", b"bad") == 401, (level, scopes)
    assert client(30, "api").push("acme/shop", LAYER, "v2") == 201
    blocked = client(30, "api")
    assert cell.api("POST", f"/users/{people[30].id}/block").status == 201
    assert blocked.pull("acme/shop") == 401
    assert RegistryClient(registry, "p20", "glpat-nonsense").pull("acme/shop") == 401


def test_a_token_is_for_nothing_but_what_was_asked_for(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", PIPELINE)
    job = runner.take()
    shown = basic("gitlab-ci-token", job["token"])
    certificate = x509.load_pem_x509_certificate(cell.send("GET", "/jwt/certificate").body)

    def access(*scopes: str) -> list[dict[str, Any]]:
        query = urlencode([("service", "container_registry"), *(("scope", scope) for scope in scopes)])
        answer = cell.send("GET", f"/jwt/auth?{query}", Authorization=shown)
        assert answer.status == 200, answer
        token = answer.json()["token"]
        public: Any = certificate.public_key()
        claims = jwt.decode(token, public, algorithms=["ES256"], audience="container_registry")
        assert (claims["iss"], claims["sub"]) == (cell.url, "gitlab-ci-token")
        assert claims["exp"] - claims["iat"] == answer.json()["expires_in"] == 300
        found: list[dict[str, Any]] = claims["access"]
        return found

    assert access() == []
    assert access("repository:root/app:pull") == [{"type": "repository", "name": "root/app", "actions": ["pull"]}]
    assert access("repository:root/app:delete,push,*") == [
        {"type": "repository", "name": "root/app", "actions": ["push"]}
    ]
    two = access("repository:root/app/a:pull repository:root/app/b:pull", "repository:root/other:pull")
    assert [one["name"] for one in two] == ["root/app/a", "root/app/b"]
    for odd in (
        "registry:catalog:*",
        "repository:root:pull",
        "repository:../root/app:pull",
        "repository",
        ":::",
    ):
        assert access(odd) == []
    assert cell.send("GET", "/jwt/auth?service=other", Authorization=shown).status == 404
    assert cell.send("GET", "/jwt/auth?service=container_registry").status == 401
    # A registry token opens nothing in the cell.
    token = cell.send("GET", "/jwt/auth?service=container_registry", Authorization=shown).json()["token"]
    for forged in (token, f"glcbt-{token}"):
        assert runner.put({"id": job["id"], "token": forged}, "success").status == 403


def test_a_key_of_ones_own(tmp_path: Path, registry: RegistryServer) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = an_rsa_key()
    certificate.write_bytes(made.certificate_pem())
    key.write_bytes(made.pem().removesuffix(made.certificate_pem()))
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    with ServedCell(tmp_path / "cell", registry=registry.url, registry_key=both) as cell:
        registry.serve(cell=cell.url, certificate=certificate.read_bytes())
        cell.new_project("app", PIPELINE)
        client = of_job(registry, cell.new_runner().take())
        assert client.push("root/app", LAYER) == 201
        assert client.pull("root/app") == LAYER
    for wrong in (key, certificate, tmp_path / "none.pem"):
        with (
            pytest.raises(CellError, match="registry key"),
            ServedCell(tmp_path / "cell", registry=registry.url, registry_key=wrong),
        ):
            pass


def test_a_cell_without_a_registry_says_so(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        cell.new_project("app", PIPELINE)
        job = cell.new_runner().take()
        assert job["credentials"] == []
        assert not [one for one in job["variables"] if one["key"].startswith("CI_REGISTRY")]
        for path in ("/jwt/auth?service=container_registry", "/jwt/certificate"):
            assert cell.send("GET", path, Authorization=basic("gitlab-ci-token", job["token"])).status == 404
