"""What `remuda run` says about containers before it starts jobs."""

from pathlib import Path

from remuda.localrun.containers import ContainerWish


def test_without_an_engine_one_short_line_is_enough(tmp_path: Path) -> None:
    """The logs of the jobs that need one say where it was looked for."""
    text = ContainerWish().announce({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert "no container engine answers" in text
    assert "--no-containers" in text
    assert str(tmp_path) not in text
    assert len(text) < 200
