"""What a person is told about a bucket that cannot be used. With one that can: the contract suite and tests/interop."""

import pytest

from remuda.cell.adapters.object_blobs import open_bucket
from remuda.cell.errors import CellError

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.setenv(name, "some")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c29tZQ==")


@pytest.mark.usefixtures("_credentials")
@pytest.mark.parametrize("address", ["s3://bucket/prefix", "az://container/prefix"])
async def test_a_server_that_is_not_there(address: str) -> None:
    with pytest.raises(CellError, match=f"cannot be kept in {address}: .*127.0.0.1:9.*can be reached") as raised:
        await open_bucket(address, endpoint=NOBODY)
    assert "\n" not in str(raised.value)


async def test_credentials_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(CellError, match=r"there are no credentials; set .*AZURE_STORAGE_ACCOUNT_NAME"):
        await open_bucket("az://container/prefix")
