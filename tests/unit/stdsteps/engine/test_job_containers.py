"""The owner of a container, and the detection of containers that a job left behind."""

from pathlib import Path

import pytest

from remuda.lib.safe_paths import read_mounts
from remuda.stdsteps.engine.job_containers import _may_exist, find_mount, is_leftover, short_digest, this_owner


def test_all_steps_of_a_job_have_the_same_owner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REMUDA_EXCHANGE", raising=False)
    monkeypatch.setenv("CI_JOB_ID", "7")
    named = this_owner("7-abc")
    monkeypatch.setenv("REMUDA_EXCHANGE", str(tmp_path))
    assert this_owner("7-abc").key == named.key
    shared = this_owner("")
    assert shared.key not in ("", named.key)
    assert (shared.folder, shared.job) == (str(tmp_path), "7")
    assert named.name("x") == f"remuda-{named.key}-x"
    assert named.labels(role="job", until=5.7)["remuda.until"] == "5"
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.delenv("REMUDA_EXCHANGE")
    assert this_owner("").key not in (shared.key, named.key)
    assert len(short_digest("anything at all")) == 8


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"remuda.folder": "/there", "remuda.until": "200"}, False),
        ({"remuda.folder": "/gone", "remuda.until": "200"}, True),
        ({"remuda.folder": "/there", "remuda.until": "99"}, True),
        ({"remuda.folder": "", "remuda.until": "200"}, False),
        ({"remuda.until": "nonsense"}, False),
        ({}, False),
    ],
)
def test_leftovers(labels: dict[str, str], expected: bool) -> None:
    assert is_leftover(labels, now=100.0, exists=lambda path: path == "/there") is expected


def test_a_folder_that_cannot_be_examined_may_exist(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    results = {name: _may_exist(str(tmp_path / name)) for name in ("", "circle/jobs", "none", "none/jobs", "file/jobs")}
    assert results == {"": True, "circle/jobs": True, "none": False, "none/jobs": False, "file/jobs": False}


def test_a_folder_is_listed_in_a_container_by_its_path_on_the_device() -> None:
    outside = "1 0 254:0 / / rw - ext4 a rw\n2 1 254:1 /data /srv/my\\040jobs rw - ext4 b rw"
    inside = "7 1 254:1 /data/app /moved/app rw - ext4 b rw"
    mounts = read_mounts(outside)
    assert find_mount("/srv/my jobs/app", mounts) in read_mounts(inside).values()
    assert find_mount("/srv/my jobs", mounts) is None
    assert find_mount("/srv/app", mounts) == ("254:0", "/srv/app")
