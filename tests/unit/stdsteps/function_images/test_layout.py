import gzip
import json
import os
import tarfile
from pathlib import Path

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.function_images.layout import Archive, build_archive, parse_platform

FILES = {"func.yml": "func.yml"}


def build(folder: Path, version: str = "1.2.3", **platforms: dict[str, str]) -> Path:
    (folder / "work").mkdir()
    (folder / "func.yml").write_text("spec:\n---\nexec: {command: [echo]}\n")
    build_archive(
        folder / "image.tar",
        folder,
        version=version,
        common=FILES,
        platforms={name.replace("_", "/"): files for name, files in platforms.items()},
        created="2026-01-01T00:00:00Z",
        work=folder / "work",
    )
    return folder / "image.tar"


def test_an_archive_has_an_index_with_an_image_for_each_platform(tmp_path: Path) -> None:
    archive = Archive(build(tmp_path, linux_amd64={"bin/x": "func.yml"}, linux_arm64={}))
    assert archive.version == "1.2.3"
    index = json.loads(archive.index)
    assert [entry["platform"] for entry in index["manifests"]] == [
        {"os": "linux", "architecture": "amd64"},
        {"os": "linux", "architecture": "arm64"},
    ]
    assert [len(json.loads(archive.manifest(digest))["layers"]) for digest in archive.manifests] == [2, 1]
    for digest in archive.manifests:
        for blob in archive.blobs(digest):
            assert sum(map(len, archive.parts(blob, 1000))) == blob.size
    archive.close()


def test_without_platforms_the_image_is_generic(tmp_path: Path) -> None:
    archive = Archive(build(tmp_path))
    assert [entry["platform"]["os"] for entry in json.loads(archive.index)["manifests"]] == ["generic"]
    archive.close()


def test_names_of_platforms() -> None:
    assert parse_platform("Linux/AARCH64") == {"os": "linux", "architecture": "arm64"}
    assert parse_platform("linux/arm/v7") == {"os": "linux", "architecture": "arm", "variant": "v7"}
    for name in ("linux", "linux/", "a/b/c/d", "../x"):
        with pytest.raises(StepError, match="such as linux/amd64"):
            parse_platform(name)


def test_an_image_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="needs files"):
        build_archive(
            tmp_path / "a",
            tmp_path,
            version="1.0.0",
            common={},
            platforms={"linux/amd64": {}},
            created="",
            work=tmp_path,
        )


@pytest.mark.parametrize("damage", ["no tar", "no index", "other digest", "no version"])
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: str) -> None:
    file = build(tmp_path)
    if damage == "no tar":
        file.write_text("x")
    else:
        with tarfile.open(file) as source:
            parts = {member.name: source.extractfile(member).read() for member in source}  # type: ignore[union-attr]
        if damage == "no index":
            del parts["index.json"]
        elif damage == "other digest":
            [index] = json.loads(parts["index.json"])["manifests"]
            parts[f"blobs/sha256/{index['digest'][7:]}"] += b" "
        else:
            parts["index.json"] = parts["index.json"].replace(b"sha256", b"sha512")
        with tarfile.open(file, "w") as target:
            for name, data in parts.items():
                path = tmp_path / "part"
                path.write_bytes(data)
                target.add(path, name)
    with pytest.raises(StepError, match=r"archive: image\.tar is"):
        Archive(file)


def test_a_packed_archive_is_refused(tmp_path: Path) -> None:
    """Reading it could take any time: a small file may unpack to a very large one."""
    plain = build(tmp_path)
    packed = tmp_path / "packed.tar"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(StepError, match="is not a tar archive"):
        Archive(packed)


def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StepError, match="pipe is not a tar archive"):
        Archive(tmp_path / "pipe")
