"""Pulls images into the engine: pull policies, registry credentials, and removal of images on a full disk."""

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine, archive
from tests.support.servers.registry_server import PROGRAM, RegistryServer

from remuda.stdsteps.engine.docker_api import EngineRefusedError
from remuda.stdsteps.engine.registry_auth import Credential
from remuda.testing.lab import free_port

LOGIN = ("reader", "a password")
HTPASSWD = "reader:$2b$05$abcdefghijklmnopqrstuu2sM.EEHj4jPcCa5rwqJGg1PNBllkZXy\n"
CONFIGURATION = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: "{folder}/images"}}}}
http: {{addr: "127.0.0.1:{port}", secret: test}}
auth: {{htpasswd: {{realm: test, path: "{folder}/htpasswd"}}}}
"""


@pytest.fixture(scope="module")
def registry(session_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """A registry with a password in the engine's network. Call it to push an image of the engine; it returns the
    image's name in the registry."""
    if not RegistryServer.is_installed():
        pytest.skip("docker-registry is not installed: make packages")
    folder, port = tmp_path_factory.mktemp("registry"), free_port()
    (folder / "htpasswd").write_text(HTPASSWD)
    (folder / "registry.yml").write_text(CONFIGURATION.format(folder=folder, port=port))
    engine = session_engine
    host = f"127.0.0.1:{port}"
    process = subprocess.Popen(
        [*engine.network_prefix, PROGRAM, "serve", folder / "registry.yml"], stderr=subprocess.DEVNULL
    )

    def push(image: str) -> str:
        name, tag = f"{host}/group/{image.partition(':')[0]}", image.partition(":")[2]
        engine.api.call("POST", f"/images/{image}/tag", query={"repo": name, "tag": tag})
        header = Credential(place=host, username=LOGIN[0], password=LOGIN[1]).header()
        deadline = time.monotonic() + 20
        while True:
            lines = list(
                engine.api.lines(f"/images/{name}/push", query={"tag": tag}, headers={"X-Registry-Auth": header})
            )
            if not any("error" in line for line in lines):
                break
            assert time.monotonic() < deadline, lines
            time.sleep(0.2)
        engine.api.call("DELETE", f"/images/{name}:{tag}")
        return f"{name}:{tag}"

    try:
        yield push
    finally:
        process.kill()
        process.wait()


def registry_credential(image: str, password: str = LOGIN[1]) -> dict[str, str]:
    return {"type": "registry", "url": image.partition("/")[0], "username": LOGIN[0], "password": password}


def test_a_pull_with_the_jobs_credentials(registry: Callable[[str], str], engine: DockerEngine, job: Any) -> None:
    image = registry(BUSYBOX)
    opened = job.open(image, pull_policy=["always"], credentials=[registry_credential(image)])
    assert opened.code == 0, opened.text
    assert "Pulling the image" in opened.text
    assert "as reader" in opened.text
    assert LOGIN[1] not in opened.text
    assert opened.outputs["pulled"] is True
    assert opened.outputs["digest"].startswith(f"{image.rpartition(':')[0]}@sha256:")
    assert opened.outputs["image_bytes"] > 500_000
    job.close(image)
    second = job.open(opened.outputs["digest"], pull_policy=["if-not-present"])
    assert (second.code, second.outputs["pulled"]) == (0, False), second.text
    job.close(image)
    engine.api.call("DELETE", f"/images/{image}")


def test_credentials_of_the_variable_win(registry: Callable[[str], str], engine: DockerEngine, job: Any) -> None:
    image = registry(BUSYBOX)
    auth = base64.b64encode(":".join(LOGIN).encode()).decode()
    config = json.dumps({"auths": {image.partition("/")[0]: {"auth": auth}}})
    opened = job.open(
        image, pull_policy=["always"], credentials=[registry_credential(image, "wrong")], auth_config=config
    )
    assert opened.code == 0, opened.text
    job.close(image)
    engine.api.call("DELETE", f"/images/{image}")


def test_registry_refusals_are_user_errors_with_advice(registry: Callable[[str], str], job: Any) -> None:
    image = registry(BUSYBOX)
    without = job.open(image, pull_policy=["always"])
    assert without.code == 1
    assert "set the variable DOCKER_AUTH_CONFIG" in without.text
    wrong = job.open(image, pull_policy=["always"], credentials=[registry_credential(image, "wrong one")])
    assert wrong.code == 1
    assert "credentials of reader" in wrong.text
    assert "wrong one" not in wrong.text
    absent = job.open(image + "-none", pull_policy=["always"], credentials=[registry_credential(image)])
    assert absent.code == 1
    assert "cannot be pulled" in absent.text
    job.env["DOCKER_AUTH_CONFIG"] = "{not json"
    broken = job.open(image, pull_policy=["always"])
    assert (broken.code, "cannot read the registry logins in DOCKER_AUTH_CONFIG" in broken.text) == (1, True)


def test_policies_are_tried_in_turn(job: Any) -> None:
    name = "127.0.0.1:1/group/absent:1"
    never = job.open(name, pull_policy=["never"])
    assert (never.code, "pull policy 'never' does not allow" in never.text) == (1, True)
    both = job.open(BUSYBOX, pull_policy=["never", "if-not-present"])
    assert (both.code, both.outputs["pulled"]) == (0, False)
    job.close()
    unknown = job.open(BUSYBOX, pull_policy=["sometimes"])
    assert (unknown.code, "must be one of always, if-not-present, never" in unknown.text) == (1, True)


def test_next_policy_of_the_list_is_tried_after_a_failed_pull(engine: DockerEngine, job: Any) -> None:
    name = "127.0.0.1:1/group/local"
    engine.api.call("POST", f"/images/{BUSYBOX}/tag", query={"repo": name, "tag": "1"})
    try:
        opened = job.open(f"{name}:1", pull_policy=["always", "if-not-present"])
        assert opened.code == 0, opened.text
        assert "trying with the pull policy if-not-present" in opened.text
    finally:
        job.close(f"{name}:1")
        engine.api.call("DELETE", f"/images/{name}:1")


@pytest.mark.parametrize("name", ["", "a b", "../containers/x", "x?y", "-x"])
def test_invalid_image_names_are_refused(job: Any, name: str) -> None:
    opened = job.open(name)
    assert opened.code == 1
    assert "image" in opened.text


@pytest.mark.long
def test_unused_images_make_room_then_a_pull_is_refused(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    """The oldest unused image is removed first, an image in use stays, and no pull starts on a full disk."""
    engine = own_engine
    engine.kill()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", engine.data], check=True)
    engine.start()
    engine.add_image(BUSYBOX, archive({"bin/busybox": Path("/bin/busybox").read_bytes(), "bin/sh": "->busybox"}))
    for number in (1, 2):
        engine.add_image(f"ballast:{number}", archive({"file": bytes([number]) * (40 << 20)}))
    job = new_job(engine)
    used = job.open()
    assert used.code == 0, used.text
    job.environment = "another"
    # About 115 MB are free; each image of ballast gives 40 back.
    small_request = job.open("127.0.0.1:1/none:1", pull_policy=["always"], min_free_disk="130m")
    assert "Removed the image ballast:1" in small_request.text
    assert "ballast:2" not in small_request.text
    assert "cannot be pulled" in small_request.text
    large_request = job.open("127.0.0.1:1/none:1", pull_policy=["always"], min_free_disk="1g")
    assert large_request.code == 75
    assert "Removed the image ballast:2" in large_request.text
    assert "no unused image is left" in large_request.text
    assert job.run(used, "true").code == 0
    with pytest.raises(EngineRefusedError):
        engine.api.call("GET", "/images/ballast:1/json")


def test_error_for_a_wrong_engine_address(job: Any) -> None:
    job.host = "unix:///nowhere/sock"
    opened = job.open()
    assert opened.code == 75
    assert "the socket does not exist; is the engine installed and running?" in opened.text
    job.host = "ssh://somewhere"
    assert job.open().code == 1
