"""Extraction of user tokens and of Basic credentials from request headers."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.http.edge.auth import basic_in, user_token_in


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({"private-token": "t"}, "t"),
        ({"authorization": "Bearer t"}, "t"),
        ({"authorization": "bearer  t "}, "t"),
        ({"private-token": "t", "authorization": "Bearer u"}, "t"),
        ({"authorization": "Basic t"}, None),
        ({"private-token": ""}, None),
        ({}, None),
    ],
)
def test_user_tokens(headers: dict[str, str], token: str | None) -> None:
    assert user_token_in(headers) == token


@given(name=st.text(alphabet=st.characters(exclude_characters=":", exclude_categories=["Cs"])), password=st.text())
def test_basic_credentials(name: str, password: str) -> None:
    credentials = base64.b64encode(f"{name}:{password}".encode()).decode()
    assert basic_in({"authorization": f"Basic {credentials}"}) == (name, password)


@given(st.text())
def test_header_without_valid_basic_credentials(text: str) -> None:
    basic_in({"authorization": f"Basic {text}"})
    assert basic_in({"authorization": text.replace("asic", "")}) is None
