import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.stdsteps.cache_restore.step import restore
from remuda.stdsteps.cache_save.step import ABANDONED_SECONDS, remove_abandoned, save
from remuda.stdsteps.caches.folder_store import ASIDE, LONGEST_NAME, SUFFIX, digest_listing, file_name
from remuda.stdsteps.common.archive import unpack_zip, write_zip
from remuda.stdsteps.common.errors import StepError

KEYS = st.text(max_size=300) | st.text("./%\\Aa0~-_ \0", max_size=250)


@given(KEYS)
def test_the_file_name_of_a_key_stays_in_the_folder(key: str) -> None:
    name = file_name(key)
    assert name.endswith(SUFFIX)
    assert os.path.dirname(os.path.normpath(f"/caches/{name}")) == "/caches"
    assert not name.startswith(".")
    assert name.isascii()
    assert name.isprintable()
    assert len(name) <= LONGEST_NAME + len(SUFFIX) <= 255


@given(KEYS, KEYS)
def test_no_two_keys_share_a_file(first: str, second: str) -> None:
    assert (file_name(first) == file_name(second)) == ((first or "default") == (second or "default"))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("", "default.zip"),
        ("main-7f.3_x", "main-7f.3_x.zip"),
        ("../x", "%2E.%2Fx.zip"),
        ("feature/one two", "feature%2Fone%20two.zip"),
        (".", "%2E.zip"),
        ("ü", "%C3%BC.zip"),
    ],
)
def test_names_of_keys(key: str, name: str) -> None:
    assert file_name(key) == name


def test_a_long_key_is_replaced_by_its_digest() -> None:
    assert file_name("k" * 200) == "k" * 200 + ".zip"
    assert file_name("k" * 201).startswith("%sha256-")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "deps/empty").mkdir(parents=True)
    (root / "deps/a").write_text("one")
    (root / "deps/run").write_text("#!")
    (root / "deps/run").chmod(0o755)
    (root / "deps/link").symlink_to("a")
    (tmp_path / "caches").mkdir()
    return root


NAMES = {"deps", "deps/empty", "deps/a", "deps/run", "deps/link"}


def test_a_digest_of_a_listing_survives_packing_and_changes_with_the_files(root: Path, tmp_path: Path) -> None:
    before, size = digest_listing(root, NAMES)
    assert size == 5
    write_zip(tmp_path / "zip", root, NAMES)
    (tmp_path / "other").mkdir()
    unpack_zip(tmp_path / "zip", tmp_path / "other")
    assert digest_listing(tmp_path / "other", NAMES) == (before, size)
    digests = {before}
    os.utime(root / "deps/a", (1, 1))
    digests.add(digest_listing(root, NAMES)[0])
    (root / "deps/a").chmod(0o600)
    digests.add(digest_listing(root, NAMES)[0])
    (root / "deps/link").unlink()
    (root / "deps/link").symlink_to("run")
    digests.add(digest_listing(root, NAMES)[0])
    digests.add(digest_listing(root, NAMES - {"deps/empty"})[0])
    assert len(digests) == 5


def test_unchanged_cache_is_written_only_once(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "caches/key.zip"
    assert save(archive, root, NAMES) == archive.stat().st_size
    first = archive.stat().st_ino
    assert save(archive, root, NAMES) == 0
    assert archive.stat().st_ino == first
    assert "The files have not changed" in capsys.readouterr().out
    (root / "deps/a").write_text("two!")
    assert save(archive, root, NAMES)
    assert archive.stat().st_ino != first
    assert [path.name for path in archive.parent.iterdir()] == ["key.zip"]


def test_a_saved_cache_is_restored(root: Path, tmp_path: Path) -> None:
    archive, other = tmp_path / "caches/key.zip", tmp_path / "other"
    other.mkdir()
    size = save(archive, root, NAMES)
    os.utime(archive, (1, 1))
    assert restore(archive, other) == (5, size)
    assert archive.stat().st_mtime > 1, "a cleanup by age must keep a cache that is used"
    assert (other / "deps/link").read_text() == "one"
    assert (other / "deps/run").stat().st_mode & 0o777 == 0o755
    assert (other / "deps/empty").is_dir()
    assert restore(tmp_path / "caches/none.zip", other) is None


def test_damaged_cache_is_a_miss_and_is_removed(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive, other = tmp_path / "caches/key.zip", tmp_path / "other"
    other.mkdir()
    (root / "deps/a").write_bytes(os.urandom(5000))
    save(archive, root, NAMES)
    packed = bytearray(archive.read_bytes())
    offset = packed.index(b"deps/a") + 3000
    packed[offset : offset + 4] = b"\0\0\0\0"
    archive.write_bytes(packed)
    assert restore(archive, other) is None
    assert not archive.exists()
    assert not [path for path in other.rglob("*") if path.is_file()]
    assert "WARNING: the archive is damaged" in capsys.readouterr().out


def test_cache_that_is_not_unpacked_is_kept(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive, other = tmp_path / "caches/key.zip", tmp_path / "other"
    other.mkdir()
    (other / "deps").symlink_to(tmp_path)
    save(archive, root, NAMES)
    assert restore(archive, other) is None
    assert archive.exists()
    assert not (tmp_path / "a").exists()
    assert "WARNING: the cache cannot be unpacked" in capsys.readouterr().out


def test_a_save_that_fails_leaves_the_old_cache(root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "caches/key.zip"
    save(archive, root, NAMES)
    before = archive.read_bytes()
    with pytest.raises(FileNotFoundError):
        save(archive, root, NAMES | {"gone"})
    (root / "pipe").touch()
    os.truncate(root / "pipe", 1 << 40)
    with pytest.raises(StepError, match="at most"):
        save(archive, root, NAMES | {"pipe"})
    assert archive.read_bytes() == before
    assert [path.name for path in archive.parent.iterdir()] == ["key.zip"]


def test_files_of_killed_steps_are_removed_after_a_day(tmp_path: Path) -> None:
    old, young = tmp_path / f"{ASIDE}old", tmp_path / f"{ASIDE}young"
    for path in (old, young, tmp_path / "key.zip"):
        path.touch()
    moment = young.stat().st_mtime - ABANDONED_SECONDS - 60
    for path in (old, tmp_path / "key.zip"):
        os.utime(path, (moment, moment))
    remove_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [young.name, "key.zip"]
