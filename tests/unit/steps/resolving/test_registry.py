import base64
import json
import threading
from pathlib import Path

import pytest

from remuda.steps.resolving.errors import ResolveError
from remuda.steps.resolving.images import choose_image, host_platform
from remuda.steps.resolving.registry import Registry, credentials, is_local

ARM, AMD, ANY = (
    {"digest": name, "platform": {"os": system, "architecture": machine}}
    for name, system, machine in (("arm", "linux", "arm64"), ("amd", "linux", "amd64"), ("any", "generic", "generic"))
)


def format_auths(**entries: str) -> str:
    auths = {
        key.replace("__", "/"): {"auth": base64.b64encode(text.encode()).decode()} for key, text in entries.items()
    }
    return json.dumps({"auths": auths})


def test_the_credentials_of_the_longest_matching_address_are_used(tmp_path: Path) -> None:
    env = {"DOCKER_AUTH_CONFIG": format_auths(host="a:1", host__team="b:2:3", hos="c:4", host__team2="d:5")}
    assert credentials("host", "team/tool", env) == ("b", "2:3")
    assert credentials("host", "other", env) == ("a", "1")
    assert credentials("other", "team/tool", env) is None


@pytest.mark.parametrize("key", ["host", "https://host", "https://host/v1/", "http://host/v2", "host/"])
def test_ways_to_write_a_registry_in_the_configuration(key: str) -> None:
    text = json.dumps({"auths": {key: {"username": "u", "password": "p"}}})
    assert credentials("host", "tool", {"DOCKER_AUTH_CONFIG": text}) == ("u", "p")


def test_credentials_of_the_docker_hub() -> None:
    text = json.dumps({"auths": {"https://index.docker.io/v1/": {"username": "u", "password": "p"}}})
    assert credentials("docker.io", "library/tool", {"DOCKER_AUTH_CONFIG": text}) == ("u", "p")


def test_sources_of_credentials(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(format_auths(host="home:1", other="home:2"))
    env = {"HOME": str(tmp_path), "DOCKER_AUTH_CONFIG": format_auths(host="variable:1")}
    assert credentials("host", "x", env) == ("variable", "1")
    assert credentials("other", "x", env) == ("home", "2")
    server = {"CI_REGISTRY": "reg", "CI_REGISTRY_USER": "u", "CI_REGISTRY_PASSWORD": "p"}
    assert credentials("reg", "x", env | server) == ("u", "p")
    assert credentials("reg2", "x", env | server) is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"auths": []}', '{"auths": {"host": 1}}', '{"auths": {"host": {"auth": "%"}}}', "[" * 100_000]
)
def test_invalid_configurations_are_ignored(text: str) -> None:
    assert credentials("host", "x", {"DOCKER_AUTH_CONFIG": text}) is None


def test_local_registries_are_recognized() -> None:
    assert all(map(is_local, ("127.0.0.1:5000", "localhost", "localhost:1", "127.1.2.3", "[::1]:5000")))
    assert not any(map(is_local, ("registry.example", "10.0.0.1:5000", "localhost.evil", "127.0.0.1.evil:1")))


def test_a_token_server_without_tls_gets_no_credentials() -> None:
    env = {"DOCKER_AUTH_CONFIG": format_auths(host="u:secret")}
    registry = Registry("host", "x", env, threading.Event())
    with pytest.raises(ResolveError, match="without TLS"):
        registry._answer_to('Bearer realm="http://host/token",service="s"')
    with pytest.raises(ResolveError, match="asks for credentials"):
        registry._answer_to("Negotiate")
    assert registry._answer_to('Basic realm="x"').startswith("Basic ")


def test_a_file_url_as_token_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").write_text('{"token": "of the agent"}')
    registry = Registry("localhost:5000", "x", {}, threading.Event())
    with pytest.raises(ResolveError, match="names an invalid token server"):
        registry._answer_to(f'Bearer realm="file://{tmp_path}/own#",service="s"')


def test_choice_of_the_image_for_a_platform() -> None:
    assert choose_image([ARM, ANY, AMD], "linux/amd64", "x") is AMD
    assert choose_image([ARM, ANY], "linux/amd64", "x") is ANY
    with pytest.raises(ResolveError, match=r"x has no image for linux/amd64, .* it has linux/arm64"):
        choose_image([ARM], "linux/amd64", "x")
    with pytest.raises(ResolveError, match="it has none"):
        choose_image([], "linux/amd64", "x")
    assert host_platform().count("/") == 1
