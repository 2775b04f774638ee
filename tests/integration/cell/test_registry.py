"""Images in a real Docker registry that accepts tokens of the cell: who may push and pull, and for how long."""

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
from tests.support.cells.people import add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.servers.registry_server import RegistryClient, RegistryServer

from remuda.cell.errors import CellError
from remuda.wire.registry_token import RegistryKey

PIPELINE = "job: {script: [echo]}\n"
LAYER = b"a layer of an image" * 1000


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    if not RegistryServer.is_installed():
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


def basic_auth(name: str, password: str) -> str:
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


def client_of_job(registry: RegistryServer, job: dict[str, Any]) -> RegistryClient:
    """Create a client with the credentials of the job's payload."""
    [credentials] = job["credentials"]
    assert (credentials["type"], credentials["url"]) == ("registry", registry.host)
    return RegistryClient(registry, credentials["username"], credentials["password"])


def test_job_pushes_and_pulls_project_image(cell: ServedCell, runner: ScriptedRunner, registry: RegistryServer) -> None:
    cell.new_project("App", PIPELINE)
    cell.new_project("other", PIPELINE)
    first, second = runner.take(), runner.take()
    own, foreign = (client_of_job(registry, job) for job in (first, second))
    variables = {variable["key"]: variable["value"] for variable in first["variables"]}
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


def test_users_access_images_by_level_and_scopes(cell: ServedCell, registry: RegistryServer) -> None:
    acme = create_group(cell, "acme")
    create_group_project(cell, acme, "shop", PIPELINE)
    people = {level: create_person(cell, f"p{level}") for level in (10, 20, 30)}
    for level, member in people.items():
        add_member(cell, f"groups/{acme}", member, level)
    people[0] = create_person(cell, "stranger")

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


def test_a_token_grants_only_the_requested_access(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", PIPELINE)
    job = runner.take()
    authorization = basic_auth("gitlab-ci-token", job["token"])
    certificate = x509.load_pem_x509_certificate(cell.send("GET", "/jwt/certificate").body)

    def access(*scopes: str) -> list[dict[str, Any]]:
        query = urlencode([("service", "container_registry"), *(("scope", scope) for scope in scopes)])
        answer = cell.send("GET", f"/jwt/auth?{query}", Authorization=authorization)
        assert answer.status == 200, answer
        token = answer.json()["token"]
        public: Any = certificate.public_key()
        claims = jwt.decode(token, public, algorithms=["ES256"], audience="container_registry")
        assert (claims["iss"], claims["sub"]) == (cell.url, "gitlab-ci-token")
        assert claims["exp"] - claims["iat"] == answer.json()["expires_in"] == 300
        entries: list[dict[str, Any]] = claims["access"]
        return entries

    assert access() == []
    assert access("repository:root/app:pull") == [{"type": "repository", "name": "root/app", "actions": ["pull"]}]
    assert access("repository:root/app:delete,push,*") == [
        {"type": "repository", "name": "root/app", "actions": ["push"]}
    ]
    two = access("repository:root/app/a:pull repository:root/app/b:pull", "repository:root/other:pull")
    assert [entry["name"] for entry in two] == ["root/app/a", "root/app/b"]
    for invalid in (
        "registry:catalog:*",
        "repository:root:pull",
        "repository:../root/app:pull",
        "repository",
        ":::",
    ):
        assert access(invalid) == []
    assert cell.send("GET", "/jwt/auth?service=other", Authorization=authorization).status == 404
    assert cell.send("GET", "/jwt/auth?service=container_registry").status == 401
    # The cell does not accept a registry token.
    token = cell.send("GET", "/jwt/auth?service=container_registry", Authorization=authorization).json()["token"]
    for forged in (token, f"glcbt-{token}"):
        assert runner.put({"id": job["id"], "token": forged}, "success").status == 403


def test_a_configured_key(tmp_path: Path, registry: RegistryServer) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    generated = an_rsa_key()
    certificate.write_bytes(generated.certificate_pem())
    key.write_bytes(generated.pem().removesuffix(generated.certificate_pem()))
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    with ServedCell(tmp_path / "cell", registry=registry.url, registry_key=both) as cell:
        registry.serve(cell=cell.url, certificate=certificate.read_bytes())
        cell.new_project("app", PIPELINE)
        client = client_of_job(registry, cell.new_runner().take())
        assert client.push("root/app", LAYER) == 201
        assert client.pull("root/app") == LAYER
    for wrong in (key, certificate, tmp_path / "none.pem"):
        with (
            pytest.raises(CellError, match="registry key"),
            ServedCell(tmp_path / "cell", registry=registry.url, registry_key=wrong),
        ):
            pass


def test_a_cell_without_a_registry(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        cell.new_project("app", PIPELINE)
        job = cell.new_runner().take()
        assert job["credentials"] == []
        assert not [variable for variable in job["variables"] if variable["key"].startswith("CI_REGISTRY")]
        for path in ("/jwt/auth?service=container_registry", "/jwt/certificate"):
            assert cell.send("GET", path, Authorization=basic_auth("gitlab-ci-token", job["token"])).status == 404
