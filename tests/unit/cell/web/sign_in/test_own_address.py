import pytest

from remuda.cell.web.sign_in.places import own_address


@pytest.mark.parametrize("address", ["/", "/acme/shop/-/pipelines?status=failed", "/a//b"])
def test_addresses_of_the_cell(address: str) -> None:
    assert own_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "projects",
        "//evil.example",
        "/\\evil.example",
        "/a\\..\\evil",
        "https://evil.example/",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/\r\nSet-Cookie: a=b",
    ],
)
def test_other_addresses_become_the_first_page(address: str) -> None:
    assert own_address(address) == "/"
