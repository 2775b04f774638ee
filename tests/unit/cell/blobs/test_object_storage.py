"""What a person is told about a bucket that cannot be used, and whose turn it is to use one.

More with one that can be used: the contract suite and tests/interop.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from obstore.store import MemoryStore

from remuda.cell.blobs import object_storage
from remuda.cell.blobs.object_storage import ObjectBlobs, open_bucket
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


class TestTurns:
    """Uploads in parts, with parts of some bytes."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(object_storage, "_PART_BYTES", 10)
        monkeypatch.setattr(object_storage, "_UPLOADS_AT_ONCE", 2)

    async def test_slow_senders_keep_nobody_waiting(self) -> None:
        blobs, go_on = ObjectBlobs(MemoryStore(), "memory"), asyncio.Event()
        stalled = asyncio.Semaphore(0)

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * 25
            stalled.release()
            await go_on.wait()
            yield b"y" * 25

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            uploads = [group.create_task(blobs.put(f"slow{number}", slow(), limit_bytes=100)) for number in range(6)]
            for _ in uploads:
                await stalled.acquire()
            assert (await blobs.put("fast", sent(b"z" * 95), limit_bytes=100))[0] == 95
            go_on.set()
        assert {upload.result()[0] for upload in uploads} == {50}
        assert b"".join([piece async for piece in blobs.read("slow5")]) == b"x" * 25 + b"y" * 25

    async def test_a_turn_comes_back_from_what_failed_or_was_given_up(self) -> None:
        blobs = ObjectBlobs(MemoryStore(), "memory")

        async def failing() -> AsyncIterator[bytes]:
            yield b"x" * 25
            raise CellError("the sender is gone")

        stalled = asyncio.Semaphore(0)

        async def silent() -> AsyncIterator[bytes]:
            yield b"x" * 25
            stalled.release()
            await asyncio.Event().wait()

        async with asyncio.timeout(30):
            for _ in range(3):
                with pytest.raises(CellError, match="the sender is gone"):
                    await blobs.put("failing", failing(), limit_bytes=100)
                async with asyncio.TaskGroup() as group:
                    upload = group.create_task(blobs.put("silent", silent(), limit_bytes=100))
                    await stalled.acquire()
                    upload.cancel()
            async with asyncio.TaskGroup() as group:
                for number in range(5):
                    group.create_task(blobs.put(f"good{number}", sent(b"z" * 95), limit_bytes=100))
        assert await blobs.size("good4") == 95


async def sent(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 7):
        yield data[at : at + 7]
