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


def auths(**entries: str) -> str:
    made = {key.replace("__", "/"): {"auth": base64.b64encode(text.encode()).decode()} for key, text in entries.items()}
    return json.dumps({"auths": made})


def test_the_longest_address_that_fits(tmp_path: Path) -> None:
    env = {"DOCKER_AUTH_CONFIG": auths(host="a:1", host__team="b:2:3", hos="c:4", host__team2="d:5")}
    assert credentials("host", "team/tool", env) == ("b", "2:3")
    assert credentials("host", "other", env) == ("a", "1")
    assert credentials("other", "team/tool", env) is None


@pytest.mark.parametrize("key", ["host", "https://host", "https://host/v1/", "http://host/v2", "host/"])
def test_the_ways_a_registry_is_written(key: str) -> None:
    text = json.dumps({"auths": {key: {"username": "u", "password": "p"}}})
    assert credentials("host", "tool", {"DOCKER_AUTH_CONFIG": text}) == ("u", "p")


def test_the_hub_has_several_names() -> None:
    text = json.dumps({"auths": {"https://index.docker.io/v1/": {"username": "u", "password": "p"}}})
    assert credentials("docker.io", "library/tool", {"DOCKER_AUTH_CONFIG": text}) == ("u", "p")


def test_where_credentials_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(auths(host="home:1", other="home:2"))
    env = {"HOME": str(tmp_path), "DOCKER_AUTH_CONFIG": auths(host="variable:1")}
    assert credentials("host", "x", env) == ("variable", "1")
    assert credentials("other", "x", env) == ("home", "2")
    server = {"CI_REGISTRY": "reg", "CI_REGISTRY_USER": "u", "CI_REGISTRY_PASSWORD": "p"}
    assert credentials("reg", "x", env | server) == ("u", "p")
    assert credentials("reg2", "x", env | server) is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"auths": []}', '{"auths": {"host": 1}}', '{"auths": {"host": {"auth": "%"}}}']
)
def test_configurations_that_cannot_be_read_are_passed_over(text: str) -> None:
    assert credentials("host", "x", {"DOCKER_AUTH_CONFIG": text}) is None


def test_which_registries_are_on_this_machine() -> None:
    assert all(map(is_local, ("127.0.0.1:5000", "localhost", "localhost:1", "127.1.2.3", "[::1]:5000")))
    assert not any(map(is_local, ("registry.example", "10.0.0.1:5000", "localhost.evil", "127.0.0.1.evil:1")))


def test_a_token_server_without_tls_gets_no_credentials() -> None:
    env = {"DOCKER_AUTH_CONFIG": auths(host="u:secret")}
    registry = Registry("host", "x", env, threading.Event())
    with pytest.raises(ResolveError, match="without TLS"):
        registry._answer_to('Bearer realm="http://host/token",service="s"')
    with pytest.raises(ResolveError, match="asks for credentials"):
        registry._answer_to("Negotiate")
    assert registry._answer_to('Basic realm="x"').startswith("Basic ")


def test_a_token_server_is_no_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "own").write_text('{"token": "of the agent"}')
    registry = Registry("localhost:5000", "x", {}, threading.Event())
    with pytest.raises(ResolveError, match="names a token server that is none"):
        registry._answer_to(f'Bearer realm="file://{tmp_path}/own#",service="s"')


def test_the_image_for_a_platform() -> None:
    assert choose_image([ARM, ANY, AMD], "linux/amd64", "x") is AMD
    assert choose_image([ARM, ANY], "linux/amd64", "x") is ANY
    with pytest.raises(ResolveError, match=r"x has no image for linux/amd64, .* it has linux/arm64"):
        choose_image([ARM], "linux/amd64", "x")
    with pytest.raises(ResolveError, match="it has none"):
        choose_image([], "linux/amd64", "x")
    assert host_platform().count("/") == 1
