"""Which login a registry is given."""

import base64
import json

import pytest

from remuda.stdsteps.engine.registry_auth import Credential, choose, from_payload, full_name, read_config, split_image


@pytest.mark.parametrize(
    ("image", "bare", "rest", "whole"),
    [
        ("alpine", "alpine", "", "docker.io/library/alpine"),
        ("alpine:3.20", "alpine", "3.20", "docker.io/library/alpine"),
        ("group/app:1", "group/app", "1", "docker.io/group/app"),
        ("r.example:5000/a/b", "r.example:5000/a/b", "", "r.example:5000/a/b"),
        ("r.example:5000/a/b:1", "r.example:5000/a/b", "1", "r.example:5000/a/b"),
        ("localhost/a@sha256:0f", "localhost/a", "sha256:0f", "localhost/a"),
        ("r.example/a:1@sha256:0f", "r.example/a", "sha256:0f", "r.example/a"),
    ],
)
def test_names(image: str, bare: str, rest: str, whole: str) -> None:
    assert (split_image(image), full_name(image)) == ((bare, rest), whole)


def login(place: str, name: str) -> Credential:
    return Credential(place=place, username=name, password="p")


def test_the_strongest_source_and_then_the_longest_place_wins() -> None:
    job = [login("r.example", "all"), login("r.example/group", "group"), login("other.example", "other")]
    machine = [login("r.example", "machine"), login("docker.io", "hub")]
    chosen = [choose(image, job, machine) for image in ("r.example/group/a:1", "r.example/groups/a", "alpine", "x.y/z")]
    assert [one.username if one else None for one in chosen] == ["group", "all", "hub", None]


def test_a_docker_configuration() -> None:
    auth = base64.b64encode(b"me:pass:word").decode()
    text = json.dumps(
        {
            "auths": {
                "https://index.docker.io/v1/": {"auth": auth},
                "https://r.example/v2/": {"username": "u", "password": "p"},
                "t.example": {"identitytoken": "tok"},
                "empty.example": {},
            },
            "credHelpers": {"x": "y"},
        }
    )
    hub, plain, token = read_config(text)
    assert (hub.place, hub.username, hub.password) == ("docker.io", "me", "pass:word")
    assert (plain.place, plain.username) == ("r.example", "u")
    assert json.loads(base64.urlsafe_b64decode(token.header())) == {
        "serveraddress": "t.example",
        "identitytoken": "tok",
    }
    assert json.loads(base64.urlsafe_b64decode(hub.header()))["serveraddress"] == "https://index.docker.io/v1/"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"auths": 5}',
        '{"auths": {"a": 5}}',
        '{"auths": {"a": {"auth": "!"}}}',
        '{"auths": {"a": {"auth": "eA=="}}}',
    ],
)
def test_what_is_no_configuration(text: str) -> None:
    with pytest.raises(ValueError, match=r"auths|base64"):
        read_config(text)


def test_logins_of_a_payload() -> None:
    entries = [
        {"type": "registry", "url": "r.example:5000", "username": "u", "password": "p"},
        {"type": "else", "url": "x"},
        {"type": "registry", "url": ""},
    ]
    [one] = from_payload(entries)
    assert (one.place, one.username, one.password) == ("r.example:5000", "u", "p")
