"""Addresses of packages are normalized, because policies are matched against them."""

import pytest

from remuda.steps.language.references import parse_reference
from remuda.steps.resolving.errors import ResolveError
from remuda.steps.resolving.values import git_address, image_address


@pytest.mark.parametrize(
    "written",
    [
        "https://Host.example/group/steps",
        "host.example/group/steps/",
        "https://host.example//group///steps",
        "https://host.example:443/group/steps",
        "https://host.example./group/steps",
        "https://user:secret@host.example/gr%6Fup/steps",
    ],
)
def test_all_ways_to_write_an_address_are_normalized(written: str) -> None:
    assert git_address(written)[0].geturl() == "https://host.example/group/steps"


def test_different_addresses_stay_different() -> None:
    assert git_address("http://host:8080/a b/%C3%A4%25")[0].geturl() == "http://host:8080/a%20b/%C3%A4%25"
    assert git_address("http://host:80/a")[0].geturl() == "http://host/a"
    assert git_address("https://host:80/A")[0].geturl() == "https://host:80/A"


@pytest.mark.parametrize("path", ["allowed/../other", "allowed/%2e%2E/other", "allowed/./x", "allowed%2F..%2Fother"])
def test_paths_with_dots_are_refused(path: str) -> None:
    with pytest.raises(ResolveError, match="the path of a repository must not contain"):
        git_address(f"https://host.example/{path}")


def test_image_addresses_are_normalized() -> None:
    assert image_address(parse_reference("Registry.Example/Tools:1", "test")).registry == "registry.example"
    for repository in ("a/../b", "a/./b", "a/.."):
        written = {"oci": {"registry": "host", "repository": repository, "tag": "1"}}
        with pytest.raises(ResolveError, match="must not have parts"):
            image_address(parse_reference(written, "test"))
