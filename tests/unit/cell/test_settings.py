"""Settings that cannot be, and what follows from those that can."""

from pathlib import Path
from typing import Any

import pytest

from remuda.cell.errors import CellError
from remuda.cell.settings import CellSettings


@pytest.mark.parametrize(
    "wrong", [{"cell_id": 0}, {"port": 70_000}, {"public_url": "ci.example"}, {"admin_token": "short"}]
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(CellError):
        CellSettings(data=Path("x"), **wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"blobs": "ftp://host/x"}, "s3://bucket/prefix"),
        ({"blobs": "s3://"}, "s3://bucket/prefix"),
        ({"blobs": "s3://key:secret@bucket"}, "environment variables"),
        ({"blobs": "relative/folder"}, "whole path"),
        ({"blobs": "s3://bucket", "blobs_endpoint": "localhost:9000"}, "http://"),
        ({"blobs_endpoint": "http://localhost:9000"}, "give blobs, too"),
        ({"artifacts_expire_in": "soon"}, "30 days"),
        ({"upkeep_seconds": 0}, "above 0"),
        ({"job_tokens": "jwt"}, "signed or opaque"),
        ({"registry": "registry.example"}, "https://registry.example"),
        ({"registry": "https://registry.example/path"}, "without a path"),
        ({"registry": "https://me:secret@registry.example"}, "without a path"),
    ],
)
def test_what_is_wrong_is_said(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(CellError, match=said):
        CellSettings(data=Path("x"), **wrong)


@pytest.mark.parametrize(
    "blobs", ["", "/mnt/blobs", "s3://bucket", "s3://bucket/a/b", "gs://bucket", "az://container/a"]
)
def test_where_blobs_may_lie(blobs: str) -> None:
    assert CellSettings(data=Path("x"), blobs=blobs, artifacts_expire_in="never").blobs == blobs


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"host": "127.0.0.1"}, "http://127.0.0.1:81"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:81"),
        ({"host": "::1"}, "http://[::1]:81"),
        ({"public_url": "https://ci.example/sub/"}, "https://ci.example/sub"),
    ],
)
def test_the_public_address(given: dict[str, Any], url: str) -> None:
    settings = CellSettings(data=Path("x"), port=0, **given).with_port(81)
    assert (settings.url, settings.public_url, settings.port) == (url, url, 81)
