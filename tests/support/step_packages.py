"""Where tests put steps for others to find: repositories on a `StepServer`, images in a real docker-registry.

The registry is open to all, or asks for name and password itself, or sends whoever asks to a token server. Blobs and
manifests are pushed by plain requests, so that a test decides about every byte of an image.
"""

import base64
import hashlib
import io
import json
import shutil
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
from cryptography.hazmat.primitives.serialization import Encoding
from tests.support.git_client import git
from tests.support.servers.http_server import PlainHandler, serving_http
from tests.support.servers.registry_server import PROGRAM, Answer, send
from tests.support.servers.step_server import TOKEN, StepServer

from remuda.testing.lab import free_port

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
    """A repository on the server, and a working copy of it."""

    server: StepServer
    path: str
    work: Path

    @classmethod
    def new(cls, server: StepServer, work: Path, path: str = "group/project.git", *options: str) -> "Project":
        """An empty one; `options` are for `git init`."""
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
        """With what is needed to read it."""
        return f"http://gitlab-ci-token:{TOKEN}@127.0.0.1:{self.server.port}/{self.path}"

    @property
    def plain(self) -> str:
        """Without."""
        return f"http://127.0.0.1:{self.server.port}/{self.path}"

    @property
    def head(self) -> str:
        """The last commit."""
        return git(self.work, "rev-parse", "HEAD")

    def commit(self, ref: str = "refs/heads/main", *, files: Mapping[str, str] | None = None) -> str:
        """A commit with these files, pushed to this ref; its hash."""
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
    """A registry that serves."""

    host: str
    log: Path
    authorization: str = ""
    """What the test's own requests say of themselves."""
    token_requests: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """From now on it is away."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        if self.authorization:
            headers["Authorization"] = self.authorization
        return send(f"http://{self.host}", method, path, body, **headers)

    def blobs_sent(self) -> int:
        """How many blobs it has handed out so far."""
        return sum("GET /v2/" in line and "/blobs/" in line for line in self.log.read_text().splitlines())

    def blob(self, repository: str, content: bytes, media_type: str) -> dict[str, Any]:
        """Push a blob; its descriptor."""
        begun = self.call("POST", f"/v2/{repository}/blobs/uploads/", b"")
        place = urlsplit(begun.headers["Location"])
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        path = f"{place.path}?{place.query}&{urlencode({'digest': digest})}"
        stored = self.call("PUT", path, content, Content_Type="application/octet-stream")
        assert stored.status == 201, stored
        return {"mediaType": media_type, "size": len(content), "digest": digest}

    def manifest(self, repository: str, tag: str, document: dict[str, Any]) -> dict[str, Any]:
        """Push a manifest or an index, under its digest where there is no tag; its descriptor."""
        body = json.dumps(document).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        path = f"/v2/{repository}/manifests/{tag or digest}"
        stored = self.call("PUT", path, body, Content_Type=document["mediaType"])
        assert stored.status == 201, stored
        return {"mediaType": document["mediaType"], "size": len(body), "digest": digest}

    def image(self, repository: str, *layers: bytes, tag: str = "", media_type: str = LAYER) -> dict[str, Any]:
        """Push an image of these layers; its descriptor."""
        config = self.blob(repository, b'{"os":"linux","architecture":"amd64"}', CONFIG)
        blobs = [self.blob(repository, layer, media_type) for layer in layers]
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": blobs}
        return self.manifest(repository, tag, document)

    def index(self, repository: str, tag: str, **images: dict[str, Any]) -> dict[str, Any]:
        """Push an index of images by platform, which are written linux_amd64; its descriptor."""
        entries = []
        for platform, image in images.items():
            system, _, machine = platform.partition("_")
            entries.append(image | {"platform": {"os": system, "architecture": machine or "generic"}})
        return self.manifest(repository, tag, {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})


def a_layer(files: Mapping[str, str | tuple[str, int]], links: Mapping[str, str] | None = None) -> bytes:
    """A tar of these texts, some with their permissions, and of links."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, given in files.items():
            text, mode = given if isinstance(given, tuple) else (given, 0o644)
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), mode
            archive.addfile(member, io.BytesIO(text.encode()))
        for name, where in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, where
            archive.addfile(member)
    return made.getvalue()


def zstd(data: bytes) -> bytes:
    """Packed as GitLab packs steps."""
    return subprocess.run(["zstd", "-qc"], input=data, check=True, capture_output=True).stdout


def has_registry() -> bool:
    """Whether docker-registry is installed."""
    return shutil.which(PROGRAM) is not None


@contextmanager
def step_registry(folder: Path, *, auth: str = "", address: str = "") -> Iterator[StepRegistry]:
    """A registry as long as this lasts; `auth` is a part of its configuration.

    It is on a port of its own, or on that of HTTP at this address, so that its name has no port in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = StepRegistry(host=address or f"127.0.0.1:{free_port()}", log=folder / "log")
    file = folder / "registry.yml"
    file.write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: false}}\n"
        f'storage: {{filesystem: {{rootdirectory: "{folder}/images"}}}}\n'
        f'http: {{addr: "{f"{address}:80" if address else made.host}", secret: test}}\n{auth}'
    )
    with made.log.open("ab") as log, subprocess.Popen([PROGRAM, "serve", file], stdout=log, stderr=log) as process:
        made.process = process
        try:
            until = time.monotonic() + _START_SECONDS
            while not _answers(made.host):
                if time.monotonic() > until or process.poll() is not None:
                    raise AssertionError(f"docker-registry does not serve: {made.log.read_text()}")
                time.sleep(0.02)
            yield made
        finally:
            made.stop()


@contextmanager
def basic_registry(folder: Path) -> Iterator[StepRegistry]:
    """One that asks for USER and PASSWORD."""
    folder.mkdir(parents=True)
    (folder / "htpasswd").write_text(_HTPASSWD)
    with step_registry(folder, auth=f'auth: {{htpasswd: {{realm: test, path: "{folder}/htpasswd"}}}}\n') as made:
        made.authorization = BASIC
        yield made


@contextmanager
def token_registry(folder: Path, *, repository: str) -> Iterator[StepRegistry]:
    """One that sends to a token server, which asks for USER and PASSWORD; the test may push to this repository."""
    key, certificate = a_certificate("tokens")
    folder.mkdir(parents=True)
    (folder / "tokens.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]
    asked: list[str] = []

    def token(scope: str) -> str:
        kind, name, actions = scope.split(":") if scope else ("", "", "")
        now = int(time.time())
        claims = {"iss": "test", "sub": USER, "aud": "registry", "exp": now + 60, "nbf": now - 60, "iat": now}
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        return jwt.encode(claims | {"jti": "1", "access": access}, key, algorithm="ES256", headers={"x5c": chain})

    class Handler(PlainHandler):
        def respond(self) -> None:
            asked.append(self.path)
            scope = parse_qs(urlsplit(self.path).query).get("scope", [""])[0]
            status = 200 if self.headers["Authorization"] == BASIC else 401
            self.answer(status, json.dumps({"token": token(scope)}).encode())

    with serving_http(Handler) as server:
        realm = f"http://127.0.0.1:{server.server_port}/token"
        facts = f'realm: "{realm}", service: registry, issuer: test, rootcertbundle: "{folder}/tokens.pem"'
        with step_registry(folder, auth=f"auth: {{token: {{{facts}}}}}\n") as made:
            made.authorization = f"Bearer {token(f'repository:{repository}:pull,push')}"
            made.token_requests = asked
            yield made


def a_certificate(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A key and a certificate that nobody trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return key, builder.sign(key, hashes.SHA256())


def _answers(host: str) -> bool:
    try:
        send(f"http://{host}", "GET", "/v2/")
    except OSError:
        return False
    return True
