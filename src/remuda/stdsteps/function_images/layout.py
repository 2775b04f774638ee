"""The archive between `function/oci/build` and `function/oci/publish`: an OCI image layout in a tar file.

`index.json` names one image index, the function, with its version. The index has an image for each platform: the layer
of the common files, then the layer of the platform's own files. Without platforms there is one image for the system
`generic`. An archive that is read is not trusted: sizes are limited and digests are checked."""

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.lib.safe_paths import open_plain
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.function_images.layers import Layer, write_layer
from remuda.stdsteps.function_images.versions import check_version

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.gitlab.step.image.v1"
CREATED, VERSION = "org.opencontainers.image.created", "org.opencontainers.image.version"
REF_NAME = "org.opencontainers.image.ref.name"
GENERIC = "generic"
LARGEST_DOCUMENT_BYTES = 4 * 1024 * 1024
MOST_MANIFESTS = 100
_PLATFORM = re.compile(r"[a-z0-9_]{1,40}/[a-z0-9_]{1,40}(/[a-z0-9_]{1,40})?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i386": "386", "i686": "386"}

Files = Mapping[str, str]
Document = dict[str, Any]


def build_archive(
    archive: Path, root: Path, *, version: str, common: Files, platforms: Mapping[str, Files], created: str, work: Path
) -> str:
    """Write the archive of a function, and return the digest of its image index. `common` and `platforms` map paths in
    the image to paths below `root`. `created`: time in RFC 3339. `work`: a folder for temporary files."""
    check_version(version)
    blobs: dict[str, bytes | Path] = {}
    shared = [write_layer(root, common, work / "common")] if common else []
    images = []
    for number, (name, files) in enumerate(sorted(platforms.items())):
        own = [write_layer(root, files, work / str(number))] if files else []
        images.append(_add_image(blobs, [*shared, *own], parse_platform(name), created))
    if not platforms:
        images.append(_add_image(blobs, shared, {"os": GENERIC, "architecture": GENERIC}, created))
    index = _add_document(
        blobs,
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": images,
            "annotations": {CREATED: created, VERSION: version},
        },
    )
    top = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [index | {"annotations": {REF_NAME: version}}]}
    unfinished = archive.with_name(f"{archive.name}.new")
    with tarfile.open(unfinished, "w") as tar:
        _write(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _write(tar, "index.json", json.dumps(top).encode())
        for digest, content in blobs.items():
            _write(tar, blob_name(digest), content)
    os.replace(unfinished, archive)
    return str(index["digest"])


def parse_platform(name: str) -> dict[str, str]:
    """Return the platform of a name such as linux/amd64 or linux/arm/v7. Raises StepError if it is invalid."""
    lower = name.lower()
    if not _PLATFORM.fullmatch(lower):
        raise StepError(f"platforms: {name[:100]!r} must be a system and an architecture, such as linux/amd64")
    system, architecture, *variant = lower.split("/")
    platform = {"os": system, "architecture": _ARCHITECTURES.get(architecture, architecture)}
    return platform | ({"variant": variant[0]} if variant else {})


def blob_name(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _add_image(blobs: dict[str, bytes | Path], layers: list[Layer], platform: dict[str, str], created: str) -> Document:
    if not layers:
        raise StepError("an image needs files: give common, or files of each platform")
    for layer in layers:
        blobs[layer.digest] = layer.file
    config = {**platform, "rootfs": {"type": "layers", "diff_ids": [layer.plain_digest for layer in layers]}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _add_document(blobs, {"mediaType": CONFIG, **config}),
        "layers": [{"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size} for layer in layers],
        "annotations": {CREATED: created},
    }
    return _add_document(blobs, manifest) | {"platform": platform}


def _add_document(blobs: dict[str, bytes | Path], document: Document) -> Document:
    """Add a document to the blobs and return its descriptor."""
    media_type = document["mediaType"]
    if media_type == CONFIG:
        document = {key: value for key, value in document.items() if key != "mediaType"}
    data = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blobs[digest] = data
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _write(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o644
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        return
    with content.open("rb") as file:
        entry.size = os.fstat(file.fileno()).st_size
        tar.addfile(entry, file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A layer or configuration of an image in an archive."""

    digest: str
    size: int


class Archive:
    """A function's archive that is open for reading. Raises StepError if it is damaged or not such an archive."""

    def __init__(self, file: Path) -> None:
        try:
            self._file = open(open_plain(file, follow=True), "rb")  # noqa: SIM115 - closed by `close`
        except FileNotFoundError:
            raise StepError(f"archive: {file.name} does not exist; function/oci/build writes it") from None
        except OSError as error:
            raise StepError(f"archive: {file.name} is not a tar archive: {error.strerror}") from None
        try:
            # Not a packed one: a small file could unpack to any size.
            self._tar = tarfile.open(fileobj=self._file, mode="r:")  # noqa: SIM115 - closed by `close`
            self._members = {member.name.removeprefix("./"): member for member in self._tar if member.isreg()}
        except (tarfile.TarError, EOFError, OSError) as error:
            self._file.close()
            raise StepError(f"archive: {file.name} is not a tar archive: {error}") from None
        self._name = file.name
        try:
            self._read_index()
        except BaseException:
            self.close()
            raise

    def _read_index(self) -> None:
        top = self._parse(self._read("index.json"))
        entries = top.get("manifests")
        if not isinstance(entries, list) or len(entries) != 1:
            raise self._damage("index.json must name one image index")
        self.digest = self._digest_of(entries[0])
        self.index = self._document(self.digest)
        annotations = self._parse_annotations()
        self.version = str(annotations.get(VERSION, ""))
        check_version(self.version)
        self.manifests = [self._digest_of(entry) for entry in self._list(self._parse(self.index), "manifests")]

    def close(self) -> None:
        self._tar.close()
        self._file.close()

    def manifest(self, digest: str) -> bytes:
        return self._document(digest)

    def blobs(self, digest: str) -> Iterator[Blob]:
        """Yield configuration and layers of the image with this manifest."""
        manifest = self._parse(self._document(digest))
        for entry in (manifest.get("config"), *self._list(manifest, "layers")):
            blob = self._digest_of(entry)
            yield Blob(digest=blob, size=self._member(blob_name(blob)).size)

    def parts(self, blob: Blob, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the content of a blob in parts. Raises StepError at its end if the digest differs."""
        source = self._tar.extractfile(self._member(blob_name(blob.digest)))
        assert source is not None
        hasher = hashlib.sha256()
        while data := source.read(chunk_bytes):
            hasher.update(data)
            yield data
        if f"sha256:{hasher.hexdigest()}" != blob.digest:
            raise self._damage(f"{blob.digest} has another digest")

    def _document(self, digest: str) -> bytes:
        data = self._read(blob_name(digest))
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise self._damage(f"{digest} has another digest")
        return data

    def _read(self, name: str) -> bytes:
        member = self._member(name)
        if member.size > LARGEST_DOCUMENT_BYTES:
            raise self._damage(f"{name} is too large")
        source = self._tar.extractfile(member)
        assert source is not None
        return source.read()

    def _member(self, name: str) -> tarfile.TarInfo:
        if name not in self._members:
            raise self._damage(f"{name} is missing")
        return self._members[name]

    def _parse(self, data: bytes) -> Document:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise self._damage("a document is not a JSON object")
        return document

    def _parse_annotations(self) -> Document:
        annotations = self._parse(self.index).get("annotations")
        return annotations if isinstance(annotations, dict) else {}

    def _list(self, document: Document, key: str) -> list[Any]:
        entries = document.get(key)
        if not isinstance(entries, list) or not 0 < len(entries) <= MOST_MANIFESTS:
            raise self._damage(f"{key} must be a list of 1 to {MOST_MANIFESTS} entries")
        return entries

    def _digest_of(self, entry: Any) -> str:
        digest = entry.get("digest") if isinstance(entry, dict) else None
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise self._damage("a descriptor has no sha256 digest")
        return digest

    def _damage(self, text: str) -> StepError:
        return StepError(f"archive: {self._name} is no archive of function/oci/build: {text}")
