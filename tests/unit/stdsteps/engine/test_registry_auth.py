"""The choice of the login for a registry, and the formats of logins."""

import base64
import json

import pytest

from remuda.stdsteps.engine.registry_auth import Credential, choose, from_payload, full_name, read_config, split_image


@pytest.mark.parametrize(
    ("image", "bare", "reference", "full"),
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
def test_image_names_are_split_and_completed(image: str, bare: str, reference: str, full: str) -> None:
    assert (split_image(image), full_name(image)) == ((bare, reference), full)


def create_credential(place: str, name: str) -> Credential:
    return Credential(place=place, username=name, password="p")


def test_the_strongest_source_and_then_the_longest_place_wins() -> None:
    job = [
        create_credential("r.example", "all"),
        create_credential("r.example/group", "group"),
        create_credential("other.example", "other"),
    ]
    machine = [create_credential("r.example", "machine"), create_credential("docker.io", "hub")]
    chosen = [choose(image, job, machine) for image in ("r.example/group/a:1", "r.example/groups/a", "alpine", "x.y/z")]
    assert [credential.username if credential else None for credential in chosen] == ["group", "all", "hub", None]


def test_a_docker_configuration_is_parsed() -> None:
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
def test_invalid_configurations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"auths|base64"):
        read_config(text)


def test_registry_logins_of_a_payload_are_parsed() -> None:
    entries = [
        {"type": "registry", "url": "r.example:5000", "username": "u", "password": "p"},
        {"type": "else", "url": "x"},
        {"type": "registry", "url": ""},
    ]
    [credential] = from_payload(entries)
    assert (credential.place, credential.username, credential.password) == ("r.example:5000", "u", "p")
