import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.steps.resolving import decompression
from remuda.steps.resolving.decompression import unpack
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError

LIMIT = 4 * 1024 * 1024


def compress_zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, check=True, capture_output=True).stdout


def decompress(folder: Path, data: bytes, limit_bytes: int = LIMIT) -> bytes:
    (folder / "in").write_bytes(data)
    unpack(folder / "in", folder / "out", limit_bytes=limit_bytes)
    return (folder / "out").read_bytes()


def test_zstd_with_the_library_and_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [b"", b"x", b"hello " * 200_000, bytes(range(256)) * 1024, b"\0" * (256 * 1024), b"\0" * (512 * 1024)]
    packed = [compress_zstd(data) for data in samples]
    assert [decompress(tmp_path, data) for data in packed] == samples
    assert decompress(tmp_path, packed[1] + packed[2]) == samples[1] + samples[2], "several frames"
    monkeypatch.setattr(decompression, "LIBRARIES", ("libnowhere.so.1",))
    assert [decompress(tmp_path, data) for data in packed] == samples


def test_damaged_and_too_large_zstd_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress_zstd(b"x" * 1_000_000)
    for names in (decompression.LIBRARIES, ("libnowhere.so.1",)):
        monkeypatch.setattr(decompression, "LIBRARIES", names)
        with pytest.raises(ResolveError, match="a layer is damaged"):
            decompress(tmp_path, packed[:-3])
        with pytest.raises(ResolveError, match="a layer is damaged"):
            decompress(tmp_path, decompression.ZSTD + b"\0" * 20)
        with pytest.raises(ResolveError, match="more than 1000 bytes when unpacked"):
            decompress(tmp_path, packed, limit_bytes=1000)


def test_zstd_data_that_needs_much_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame says how many bytes back it may refer, which the decoder keeps in memory: 1 GiB here."""
    command = ["zstd", "-qc", "--long=30"]
    packed = subprocess.run(command, input=b"x" * 1_000_000, check=True, capture_output=True).stdout
    for names in (decompression.LIBRARIES, ("libnowhere.so.1",)):
        monkeypatch.setattr(decompression, "LIBRARIES", names)
        with pytest.raises(ResolveError, match=r"a layer is damaged.*(memory|Window)"):
            decompress(tmp_path, packed)


def test_a_frozen_program_uses_its_own_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = next(Path("/usr/lib").rglob("libzstd.so.1"))
    (tmp_path / "bundle").mkdir()
    shutil.copy(library, tmp_path / "bundle/libzstd.so.1")
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path / "bundle"), raising=False)
    monkeypatch.setattr(decompression, "LIBRARIES", ("libnowhere.so.1",))
    packed = compress_zstd(b"x")
    monkeypatch.setenv("PATH", "/nowhere")
    assert decompress(tmp_path, packed) == b"x"


def test_the_error_without_zstd_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress_zstd(b"x")
    monkeypatch.setattr(decompression, "LIBRARIES", ("libnowhere.so.1",))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TemporaryResolveError, match="install the package zstd") as error:
        decompress(tmp_path, packed)
    assert not error.value.is_away


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=300))
def test_gzip_and_uncompressed_data(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("layers")
    assert decompress(folder, gzip.compress(data)) == data
    if data[:2] != decompression.GZIP and data[:4] != decompression.ZSTD:
        assert decompress(folder, data) == data


def test_damaged_and_too_large_gzip_data_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b"x" * 100_000)
    for data in (packed[:-4], packed[:30], packed[:10] + b"\xff" * 20):
        with pytest.raises(ResolveError, match="a layer is damaged"):
            decompress(tmp_path, data)
    with pytest.raises(ResolveError, match="more than 1000 bytes"):
        decompress(tmp_path, packed, limit_bytes=1000)
