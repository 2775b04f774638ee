"""Sources of the registry logins for an image, and the progress messages of a pull."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.engine import images
from remuda.stdsteps.engine.docker_api import Engine
from remuda.stdsteps.engine.images import obtain, read_request

CONFIG = json.dumps({"auths": {"registry.example": {"username": "reader", "password": "secret"}}})


def read_usernames(**inputs: str) -> list[str]:
    request = read_request(Inputs({"image": "registry.example/app", **inputs}))
    return [credential.username for credential in request.credentials[0]]


def test_only_the_variable_may_contain_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", str(tmp_path / "config.json"))
    assert read_usernames() == ["reader"]
    with pytest.raises(StepError, match="cannot read the registry logins"):
        read_usernames(auth_config=str(tmp_path / "config.json"))
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", "")
    assert (read_usernames(), read_usernames(auth_config=CONFIG)) == ([], ["reader"])


def test_paths_that_are_not_regular_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "none", tmp_path, Path("/dev/zero")):
        monkeypatch.setenv("DOCKER_AUTH_CONFIG", str(path))
        with pytest.raises(StepError, match="cannot read the registry logins in DOCKER_AUTH_CONFIG"):
            read_usernames()


class PullingEngine(Engine):
    """An engine that has one image, and reports the pull of its two layers."""

    def call(self, method: str, path: str, **options: Any) -> Any:
        return {} if path == "/info" else {"Id": "sha256:1"}

    def lines(self, path: str, **options: Any) -> Iterator[dict[str, Any]]:
        yield {"status": "Pulling from library/alpine", "id": "3.20"}
        yield {"status": "Pulling fs layer", "id": "aaaa"}
        yield {"status": "Already exists", "id": "bbbb"}
        yield {"status": "Pull complete", "id": "aaaa"}
        yield {"status": "Status: Downloaded newer image for alpine:3.20"}


def test_the_tag_does_not_count_as_a_layer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(images, "PROGRESS_SECONDS", -1.0)
    obtain(PullingEngine(), read_request(Inputs({"image": "alpine:3.20"})))
    progress = [line for line in capsys.readouterr().out.splitlines() if line.startswith("...")]
    assert progress == [f"... {done} of {total} layers" for done, total in ((0, 0), (0, 1), (1, 2), (2, 2), (2, 2))]
