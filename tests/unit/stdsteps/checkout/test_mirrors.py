import fcntl
import os
from pathlib import Path

import pytest

from remuda.stdsteps.checkout.mirrors import _mirror_name, _mirror_refspec, shrink


def create_mirror(folder: Path, name: str, *, size: int, used: int) -> Path:
    (folder / f"{name}.git").mkdir(parents=True)
    (folder / f"{name}.size").write_text(str(size))
    os.utime(folder / f"{name}.size", (used, used))
    return folder / f"{name}.git"


def test_shrink_removes_the_least_recently_used_mirrors_that_are_not_in_use(tmp_path: Path) -> None:
    oldest, busy, old, new = (create_mirror(tmp_path, name, size=10, used=time) for time, name in enumerate("abcd"))
    with (tmp_path / "b.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        shrink(tmp_path, 25)
    assert [path.exists() for path in (oldest, busy, old, new)] == [False, True, False, True]
    shrink(tmp_path, 25)
    assert busy.exists()


def test_a_mirror_with_an_invalid_size_is_kept(tmp_path: Path) -> None:
    broken = create_mirror(tmp_path, "a", size=10, used=1)
    (tmp_path / "a.size").write_text("x")
    shrink(tmp_path, 0)
    assert broken.exists()


@pytest.mark.parametrize(
    ("refspec", "expected"),
    [
        ("+refs/heads/main:refs/remotes/origin/main", "+refs/heads/main:refs/heads/main"),
        ("+refs/heads/*:refs/remotes/origin/*", "+refs/heads/*:refs/heads/*"),
        ("refs/pipelines/5", "+refs/pipelines/5:refs/pipelines/5"),
        (f"+{'a' * 40}:refs/pipelines/5", f"+{'a' * 40}:refs/commits/{'a' * 40}"),
    ],
)
def test_refspecs_of_a_mirror(refspec: str, expected: str) -> None:
    assert _mirror_refspec(refspec) == expected


def test_each_url_has_its_own_mirror() -> None:
    assert _mirror_name("https://a/g/p.git").startswith("g-p-")
    assert _mirror_name("https://a/g/p.git") != _mirror_name("https://b/g/p.git")
    assert "/" not in _mirror_name("https://a/../../x/" + "y" * 500)
