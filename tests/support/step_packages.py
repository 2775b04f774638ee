"""Publishes steps for tests: in repositories on a `StepServer`, and as images in a real docker-registry.

The registry is open, or requires basic authentication, or tokens of a token server. Blobs and manifests are pushed by
plain HTTP requests, so that a test controls every byte of an image.
"""

import base64
import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.support.git_client import git
from tests.support.isolation.relay import forward_connection
from tests.support.servers.http_server import PlainHandler, run_http_server
from tests.support.servers.registry_server import PROGRAM, Answer, send
from tests.support.servers.step_server import TOKEN, StepServer

from remuda.testing.lab import free_port
from remuda.testing.waiting import wait_until

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
STEP_LAYER = "application/vnd.gitlab.step.layer.v1.tar+zstd"
USER, PASSWORD = "steps", "step-secret"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
_HTPASSWD = f"{USER}:$2b$04$qiOEAou4JrNRir//RWD4/OGHW49gyz3Dkp0MVbDijI9OY07B1UcjS\n"
_START_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Project:
    """A bare repository on the server, and a working copy of it."""

    server: StepServer
    path: str
    work: Path

    @classmethod
    def new(cls, server: StepServer, work: Path, path: str = "group/project.git", *options: str) -> "Project":
        """Create an empty repository. `options` are passed to `git init`."""
        project = cls(server=server, path=path, work=work)
        for folder, kind in ((project.bare, ["--bare"]), (project.work, [])):
            folder.mkdir(parents=True)
            git(folder, "init", "-q", "-b", "main", *kind, *options)
        return project

    @property
    def bare(self) -> Path:
        return self.server.root / self.path

    @property
    def address(self) -> str:
        """URL with the credentials to read it."""
        return f"http://gitlab-ci-token:{TOKEN}@127.0.0.1:{self.server.port}/{self.path}"

    @property
    def plain(self) -> str:
        """URL without credentials."""
        return f"http://127.0.0.1:{self.server.port}/{self.path}"

    @property
    def head(self) -> str:
        """Hash of the last commit."""
        return git(self.work, "rev-parse", "HEAD")

    def commit(self, ref: str = "refs/heads/main", *, files: Mapping[str, str] | None = None) -> str:
        """Commit these files and push to this ref. Returns the hash."""
        for name, text in (files or {}).items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_text(text)
        git(self.work, "add", ".")
        git(self.work, "commit", "-q", "--allow-empty", "-m", "x")
        self.push(f"HEAD:{ref}")
        return self.head

    def push(self, *refs: str) -> None:
        git(self.work, "push", "-q", "-f", str(self.bare), *refs)


@dataclass(kw_only=True)
class StepRegistry:
    """A running registry, and a client for it."""

    host: str
    log: Path
    authorization: str = ""
    """Authorization header of the requests of this client."""
    token_requests: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        if self.authorization:
            headers["Authorization"] = self.authorization
        return send(f"http://{self.host}", method, path, body, **headers)

    def blobs_sent(self) -> int:
        """Number of blob downloads so far."""
        return sum("GET /v2/" in line and "/blobs/" in line for line in self.log.read_text().splitlines())

    def blob(self, repository: str, content: bytes, media_type: str) -> dict[str, Any]:
        """Push a blob. Returns its descriptor."""
        started = self.call("POST", f"/v2/{repository}/blobs/uploads/", b"")
        location = urlsplit(started.headers["Location"])
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        path = f"{location.path}?{location.query}&{urlencode({'digest': digest})}"
        stored = self.call("PUT", path, content, Content_Type="application/octet-stream")
        assert stored.status == 201, stored
        return {"mediaType": media_type, "size": len(content), "digest": digest}

    def manifest(self, repository: str, tag: str, document: dict[str, Any]) -> dict[str, Any]:
        """Push a manifest or an index; without a tag, by its digest. Returns its descriptor."""
        body = json.dumps(document).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        path = f"/v2/{repository}/manifests/{tag or digest}"
        stored = self.call("PUT", path, body, Content_Type=document["mediaType"])
        assert stored.status == 201, stored
        return {"mediaType": document["mediaType"], "size": len(body), "digest": digest}

    def image(self, repository: str, *layers: bytes, tag: str = "", media_type: str = LAYER) -> dict[str, Any]:
        """Push an image with these layers. Returns its descriptor."""
        config = self.blob(repository, b'{"os":"linux","architecture":"amd64"}', CONFIG)
        blobs = [self.blob(repository, layer, media_type) for layer in layers]
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": blobs}
        return self.manifest(repository, tag, document)

    def index(self, repository: str, tag: str, **images: dict[str, Any]) -> dict[str, Any]:
        """Push an index of images by platform, such as `linux_amd64`. Returns its descriptor."""
        entries = []
        for platform, image in images.items():
            system, _, machine = platform.partition("_")
            entries.append(image | {"platform": {"os": system, "architecture": machine or "generic"}})
        return self.manifest(repository, tag, {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})


def a_layer(files: Mapping[str, str | tuple[str, int]], links: Mapping[str, str] | None = None) -> bytes:
    """A tar archive of files, by path their text or text and mode, and of symbolic links by path."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in files.items():
            text, mode = content if isinstance(content, tuple) else (content, 0o644)
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), mode
            archive.addfile(member, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return data.getvalue()


def zstd(data: bytes) -> bytes:
    """Compress data as GitLab compresses step layers."""
    return subprocess.run(["zstd", "-qc"], input=data, check=True, capture_output=True).stdout


def has_registry() -> bool:
    """True if docker-registry is installed."""
    return shutil.which(PROGRAM) is not None


@contextmanager
def step_registry(folder: Path, *, auth: str = "", address: str = "") -> Iterator[StepRegistry]:
    """Run a registry while the block runs. `auth` is a section of its configuration.

    With `address` it listens on port 80 there, so that its name has no port; otherwise on a free port of loopback.
    """
    folder.mkdir(parents=True, exist_ok=True)
    registry = StepRegistry(host=address or f"127.0.0.1:{free_port()}", log=folder / "log")
    file = folder / "registry.yml"
    file.write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: false}}\n"
        f'storage: {{filesystem: {{rootdirectory: "{folder}/images"}}}}\n'
        f'http: {{addr: "{f"{address}:80" if address else registry.host}", secret: test}}\n{auth}'
    )
    with registry.log.open("ab") as log, subprocess.Popen([PROGRAM, "serve", file], stdout=log, stderr=log) as process:
        registry.process = process
        try:
            until = time.monotonic() + _START_SECONDS
            while not _answers(registry.host):
                if time.monotonic() > until or process.poll() is not None:
                    raise AssertionError(f"docker-registry does not serve: {registry.log.read_text()}")
                time.sleep(0.02)
            yield registry
        finally:
            registry.stop()


@contextmanager
def misconfigured_registry(folder: Path, name: str) -> Iterator[tuple[str, list[str], Path]]:
    """A registry at https://`name` whose configuration says that its address begins with http://, as happens behind a
    proxy for TLS. Yields the address of an HTTP proxy that leads to it, the plain requests that this proxy gets, and
    the file of the registry's certificate."""
    key, certificate = a_certificate(name)
    folder.mkdir(parents=True)
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "htpasswd").write_text(_HTPASSWD)
    port = free_port()
    (folder / "registry.yml").write_text(
        f'version: 0.1\nstorage: {{filesystem: {{rootdirectory: "{folder}/images"}}}}\n'
        f'auth: {{htpasswd: {{realm: test, path: "{folder}/htpasswd"}}}}\n'
        f'http: {{addr: "127.0.0.1:{port}", host: "http://{name}", secret: test, '
        f'tls: {{certificate: "{folder}/certificate.pem", key: "{folder}/key.pem"}}}}\n'
    )
    plain: list[str] = []

    class Proxy(PlainHandler):
        def respond(self) -> None:
            plain.append(f"{self.command} {self.path}")
            self.answer(400)

        def do_CONNECT(self) -> None:  # noqa: N802 - a name of the base class
            self.send_response(200)
            self.end_headers()
            forward_connection(self.connection, port)
            self.close_connection = True

    command = [PROGRAM, "serve", str(folder / "registry.yml")]
    with (
        (folder / "log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
        run_http_server(Proxy) as proxy,
    ):
        try:
            wait_until(lambda: _is_listening(port), "docker-registry listens")
            yield f"http://127.0.0.1:{proxy.server_port}", plain, folder / "certificate.pem"
        finally:
            process.kill()


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def basic_registry(folder: Path) -> Iterator[StepRegistry]:
    """A registry with basic authentication for USER and PASSWORD."""
    folder.mkdir(parents=True)
    (folder / "htpasswd").write_text(_HTPASSWD)
    with step_registry(folder, auth=f'auth: {{htpasswd: {{realm: test, path: "{folder}/htpasswd"}}}}\n') as registry:
        registry.authorization = BASIC
        yield registry


@contextmanager
def token_registry(folder: Path, *, repository: str) -> Iterator[StepRegistry]:
    """A registry with a token server, which requires USER and PASSWORD. The test may push to `repository`."""
    key, certificate = a_certificate("tokens")
    folder.mkdir(parents=True)
    (folder / "tokens.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]
    token_requests: list[str] = []

    def token(scope: str) -> str:
        kind, name, actions = scope.split(":") if scope else ("", "", "")
        now = int(time.time())
        claims = {"iss": "test", "sub": USER, "aud": "registry", "exp": now + 60, "nbf": now - 60, "iat": now}
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        return jwt.encode(claims | {"jti": "1", "access": access}, key, algorithm="ES256", headers={"x5c": chain})

    class Handler(PlainHandler):
        def respond(self) -> None:
            token_requests.append(self.path)
            scope = parse_qs(urlsplit(self.path).query).get("scope", [""])[0]
            status = 200 if self.headers["Authorization"] == BASIC else 401
            self.answer(status, json.dumps({"token": token(scope)}).encode())

    with run_http_server(Handler) as server:
        realm = f"http://127.0.0.1:{server.server_port}/token"
        facts = f'realm: "{realm}", service: registry, issuer: test, rootcertbundle: "{folder}/tokens.pem"'
        with step_registry(folder, auth=f"auth: {{token: {{{facts}}}}}\n") as registry:
            registry.authorization = f"Bearer {token(f'repository:{repository}:pull,push')}"
            registry.token_requests = token_requests
            yield registry


def a_certificate(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A private key and a self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return key, builder.sign(key, hashes.SHA256())


def _answers(host: str) -> bool:
    try:
        send(f"http://{host}", "GET", "/v2/")
    except OSError:
        return False
    return True
