"""Write a folder with a root file system as a container image: oci.py ROOT VERSION OUTPUT (see tools/release/image).

OUTPUT is a tar with an OCI image layout and, for `docker load` of engines before 25, Docker's manifest.json. No engine
is needed. The files are sorted and no time is newer than SOURCE_DATE_EPOCH, so the same folder gives the same bytes."""

import argparse
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
CONFIG = {
    "User": "remuda",
    "WorkingDir": "/work",
    "Entrypoint": ["remuda"],
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
    "Volumes": {"/var/lib/remuda": {}},
}
MEDIA = "application/vnd.oci.image"


class HashedGzip:
    """A writable file that packs what is written to it; it hashes both the packed and the plain bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        self.plain, self.packed, self.size = hashlib.sha256(), hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.plain.update(data)
        self._store(self._packer.compress(data))
        return len(data)

    def close(self) -> None:
        self._store(self._packer.flush())

    def _store(self, data: bytes) -> None:
        self.packed.update(data)
        self.size += len(data)
        self._file.write(data)


def limit_time(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = min(int(entry.mtime), EPOCH)
    entry.uname = entry.gname = ""
    return entry


def write_layer(root: Path, file: IO[bytes]) -> HashedGzip:
    layer = HashedGzip(file)
    with tarfile.open(fileobj=layer, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for path in sorted(root.rglob("*")):
            archive.add(path, str(path.relative_to(root)), recursive=False, filter=limit_time)
    layer.close()
    return layer


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(content), EPOCH, 0o644
    archive.addfile(entry, io.BytesIO(content))


def encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def describe(content: bytes, kind: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}


def blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def write_image(root: Path, version: str, output: Path) -> None:
    name = f"remuda:{version}"
    with tempfile.TemporaryFile(dir=output.parent) as file:
        layer = write_layer(root, file)
        config = encode(
            {
                "created": datetime.fromtimestamp(EPOCH, UTC).isoformat().replace("+00:00", "Z"),
                "architecture": "amd64",
                "os": "linux",
                "config": {**CONFIG, "Labels": {"org.opencontainers.image.version": version}},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.plain.hexdigest()}"]},
            }
        )
        about_layer = {
            "mediaType": f"{MEDIA}.layer.v1.tar+gzip",
            "digest": f"sha256:{layer.packed.hexdigest()}",
            "size": layer.size,
        }
        about_config = describe(config, "config.v1+json")
        manifest = encode(
            {
                "schemaVersion": 2,
                "mediaType": f"{MEDIA}.manifest.v1+json",
                "config": about_config,
                "layers": [about_layer],
            }
        )
        annotations = {
            "org.opencontainers.image.ref.name": version,
            "io.containerd.image.name": f"docker.io/library/{name}",
        }
        about_manifest = {**describe(manifest, "manifest.v1+json"), "annotations": annotations}
        config_name, layer_name = blob(str(about_config["digest"])), blob(str(about_layer["digest"]))
        with tarfile.open(output, "w", format=tarfile.PAX_FORMAT) as archive:
            add(archive, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
            add(archive, "index.json", encode({"schemaVersion": 2, "manifests": [about_manifest]}))
            add(archive, "manifest.json", encode([{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]))
            add(archive, blob(str(about_manifest["digest"])), manifest)
            add(archive, config_name, config)
            entry = tarfile.TarInfo(layer_name)
            entry.size, entry.mtime, entry.mode = layer.size, EPOCH, 0o644
            file.seek(0)
            archive.addfile(entry, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("version")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    write_image(options.root, options.version, options.output)


if __name__ == "__main__":
    main()
