import gzip
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.function_images import layers
from remuda.stdsteps.function_images.layers import GZIP_LAYER, ZSTD_LAYER, Layer, write_layer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "lib/deep/empty").mkdir(parents=True)
    (work / "func.yml").write_text("spec:\n")
    (work / "lib/run").write_text("#!/bin/sh\n")
    (work / "lib/run").chmod(0o700)
    (work / "lib/again").symlink_to("run")
    (tmp_path / "outside").write_text("secret")
    return work


def unpack(layer: Layer) -> tarfile.TarFile:
    data = layer.file.read_bytes()
    if layer.media_type == GZIP_LAYER:
        return tarfile.open(fileobj=io.BytesIO(gzip.decompress(data)))
    plain = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout
    return tarfile.open(fileobj=io.BytesIO(plain))


def test_files_folders_links_and_modes(root: Path, tmp_path: Path) -> None:
    layer = write_layer(root, {"func.yml": "func.yml", "/bin": "lib/", "other/name": "./lib/again"}, tmp_path / "layer")
    assert layer.media_type == ZSTD_LAYER
    archive = unpack(layer)
    assert {member.name: (member.type, oct(member.mode), member.linkname) for member in archive} == {
        "func.yml": (tarfile.REGTYPE, "0o644", ""),
        "bin/run": (tarfile.REGTYPE, "0o755", ""),
        "bin/again": (tarfile.SYMTYPE, "0o755", "run"),
        "bin/deep/empty": (tarfile.DIRTYPE, "0o755", ""),
        "other/name": (tarfile.REGTYPE, "0o755", ""),
    }
    assert not list(tmp_path.glob("*.tar"))


def test_the_same_files_give_the_same_layer(root: Path, tmp_path: Path) -> None:
    first = write_layer(root, {"a": "lib"}, tmp_path / "1")
    (root / "lib/run").touch()
    assert write_layer(root, {"a": "lib"}, tmp_path / "2").digest == first.digest


def test_a_machine_without_zstd_packs_with_gzip(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "find_zstd", lambda: None)
    layer = write_layer(root, {"func.yml": "func.yml"}, tmp_path / "layer")
    assert layer.media_type == GZIP_LAYER
    assert unpack(layer).getnames() == ["func.yml"]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"a": "missing"}, "'missing' does not exist"),
        ({"a": "../outside"}, "is not in the working directory"),
        ({"a": "/etc/hostname"}, "is not in the working directory"),
        ({"a": "leak"}, "is not in the working directory"),
        ({"a": "leaks"}, "the link 'leaks/link' leads out"),
        ({"../a": "func.yml"}, "leads out of the image"),
        ({"/": "func.yml"}, "needs a name in the image"),
    ],
)
def test_nothing_leads_out(root: Path, tmp_path: Path, files: dict[str, str], text: str) -> None:
    (root / "leak").symlink_to(tmp_path / "outside")
    (root / "leaks").mkdir()
    (root / "leaks/link").symlink_to("../../outside")
    with pytest.raises(StepError, match=text):
        write_layer(root, files, tmp_path / "layer")
