import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.function_images.registry import find_place

ROOT = "https://registry.example.com/v2/group/function/"


@pytest.mark.parametrize(
    ("path", "place", "is_ours"),
    [
        ("tags/list", f"{ROOT}tags/list", True),
        ("/v2/other", "https://registry.example.com/v2/other", True),
        ("https://storage.example.com/upload?a=b", "https://storage.example.com/upload?a=b", False),
        ("https://registry.example.com:8443/upload", "https://registry.example.com:8443/upload", False),
    ],
)
def test_the_login_is_for_addresses_of_the_registry_only(path: str, place: str, is_ours: bool) -> None:
    assert find_place(ROOT, path) == (place, is_ours)


@pytest.mark.parametrize(
    "path",
    [
        "http://registry.example.com/v2/group/function/blobs/uploads/1",
        "http://127.0.0.1/upload",
        "ftp://registry.example.com/upload",
        "https://registry.example.com:port/upload",
    ],
)
def test_a_registry_with_tls_cannot_name_an_address_without_tls(path: str) -> None:
    with pytest.raises(StepError, match="not an https address"):
        find_place(ROOT, path)


def test_a_registry_of_this_machine_needs_no_tls() -> None:
    assert find_place("http://localhost:5000/v2/a/", "http://localhost:5000/x") == ("http://localhost:5000/x", True)
