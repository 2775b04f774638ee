"""Where the logins for an image come from."""

import json
import os
from pathlib import Path

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.engine.images import read_request

CONFIG = json.dumps({"auths": {"registry.example": {"username": "reader", "password": "secret"}}})


def logins(**inputs: str) -> list[str]:
    return [one.username for one in read_request(Inputs({"image": "registry.example/app", **inputs})).credentials[0]]


def test_only_the_variable_may_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", str(tmp_path / "config.json"))
    assert logins() == ["reader"]
    with pytest.raises(StepError, match="cannot read the registry logins"):
        logins(auth_config=str(tmp_path / "config.json"))
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", "")
    assert (logins(), logins(auth_config=CONFIG)) == ([], ["reader"])


def test_a_file_that_is_none_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "none", tmp_path, Path("/dev/zero")):
        monkeypatch.setenv("DOCKER_AUTH_CONFIG", str(path))
        with pytest.raises(StepError, match="cannot read the registry logins in DOCKER_AUTH_CONFIG"):
            logins()
