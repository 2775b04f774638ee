"""Validation of the cell's settings, and the URLs that follow from them."""

from pathlib import Path
from typing import Any

import pytest

from remuda.cell.errors import CellError
from remuda.cell.settings import CellSettings


@pytest.mark.parametrize(
    "options", [{"cell_id": 0}, {"port": 70_000}, {"public_url": "ci.example"}, {"admin_token": "short"}]
)
def test_invalid_settings(options: dict[str, Any]) -> None:
    with pytest.raises(CellError):
        CellSettings(data=Path("x"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blobs": "ftp://host/x"}, "s3://bucket/prefix"),
        ({"blobs": "s3://"}, "s3://bucket/prefix"),
        ({"blobs": "s3://key:secret@bucket"}, "environment variables"),
        ({"blobs": "relative/folder"}, "whole path"),
        ({"blobs": "s3://bucket", "blobs_endpoint": "localhost:9000"}, "http://"),
        ({"blobs_endpoint": "http://localhost:9000"}, "give blobs, too"),
        ({"artifacts_expire_in": "soon"}, "30 days"),
        ({"upkeep_seconds": 0}, "above 0"),
        ({"needs_limit": -1}, "needs limit -1: must be a number of at least 0"),
        ({"job_tokens": "jwt"}, "signed or opaque"),
        ({"registry": "registry.example"}, "https://registry.example"),
        ({"registry": "https://registry.example/path"}, "without a path"),
        ({"registry": "https://me:secret@registry.example"}, "without a path"),
    ],
)
def test_error_messages_for_invalid_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CellError, match=message):
        CellSettings(data=Path("x"), **options)


@pytest.mark.parametrize(
    "blobs", ["", "/mnt/blobs", "s3://bucket", "s3://bucket/a/b", "gs://bucket", "az://container/a"]
)
def test_valid_locations_of_blobs(blobs: str) -> None:
    assert CellSettings(data=Path("x"), blobs=blobs, artifacts_expire_in="never").blobs == blobs


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({"host": "127.0.0.1"}, "http://127.0.0.1:81"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:81"),
        ({"host": "::1"}, "http://[::1]:81"),
        ({"public_url": "https://ci.example/sub/"}, "https://ci.example/sub"),
    ],
)
def test_public_url(options: dict[str, Any], url: str) -> None:
    settings = CellSettings(data=Path("x"), port=0, **options).with_port(81)
    assert (settings.url, settings.public_url, settings.port) == (url, url, 81)


def test_templates_are_a_folder_or_an_address(tmp_path: Path) -> None:
    for templates in ("", str(tmp_path), "https://gitlab.com"):
        assert CellSettings(data=tmp_path, templates=templates).templates == templates
    for wrong in (str(tmp_path / "none"), "ftp://host", "https://user@host/"):
        with pytest.raises(CellError, match="templates"):
            CellSettings(data=tmp_path, templates=wrong)
