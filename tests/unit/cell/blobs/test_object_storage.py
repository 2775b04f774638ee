"""Errors of a bucket that cannot be used, and the limit of parallel uploads.

The contract suite and tests/interop test object storage that works.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from obstore.store import MemoryStore

from remuda.cell.blobs import object_storage
from remuda.cell.blobs.object_storage import ObjectBlobs, open_bucket
from remuda.cell.errors import CellError

UNREACHABLE = "http://127.0.0.1:9"


@pytest.fixture
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.setenv(name, "some")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c29tZQ==")


@pytest.mark.usefixtures("_credentials")
@pytest.mark.parametrize("address", ["s3://bucket/prefix", "az://container/prefix"])
async def test_an_unreachable_server_is_named(address: str) -> None:
    with pytest.raises(CellError, match=f"cannot be kept in {address}: .*127.0.0.1:9.*can be reached") as raised:
        await open_bucket(address, endpoint=UNREACHABLE)
    assert "\n" not in str(raised.value)


async def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(CellError, match=r"there are no credentials; set .*AZURE_STORAGE_ACCOUNT_NAME"):
        await open_bucket("az://container/prefix")


class TestParallelUploads:
    """Multipart uploads with parts of 10 bytes, two in parallel."""

    @pytest.fixture(autouse=True)
    def _reduce_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(object_storage, "_PART_BYTES", 10)
        monkeypatch.setattr(object_storage, "_UPLOADS_AT_ONCE", 2)

    async def test_slow_senders_do_not_block_others(self) -> None:
        blobs, resume = ObjectBlobs(MemoryStore(), "memory"), asyncio.Event()
        stalled = asyncio.Semaphore(0)

        async def send_slowly() -> AsyncIterator[bytes]:
            yield b"x" * 25
            stalled.release()
            await resume.wait()
            yield b"y" * 25

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            uploads = [
                group.create_task(blobs.put(f"slow{number}", send_slowly(), limit_bytes=100)) for number in range(6)
            ]
            for _ in uploads:
                await stalled.acquire()
            assert (await blobs.put("fast", send(b"z" * 95), limit_bytes=100))[0] == 95
            resume.set()
        assert {upload.result()[0] for upload in uploads} == {50}
        assert b"".join([piece async for piece in blobs.read("slow5")]) == b"x" * 25 + b"y" * 25

    async def test_a_failed_or_cancelled_upload_releases_its_slot(self) -> None:
        blobs = ObjectBlobs(MemoryStore(), "memory")

        async def send_and_fail() -> AsyncIterator[bytes]:
            yield b"x" * 25
            raise CellError("the sender is gone")

        stalled = asyncio.Semaphore(0)

        async def send_and_stall() -> AsyncIterator[bytes]:
            yield b"x" * 25
            stalled.release()
            await asyncio.Event().wait()

        async with asyncio.timeout(30):
            for _ in range(3):
                with pytest.raises(CellError, match="the sender is gone"):
                    await blobs.put("failing", send_and_fail(), limit_bytes=100)
                async with asyncio.TaskGroup() as group:
                    upload = group.create_task(blobs.put("silent", send_and_stall(), limit_bytes=100))
                    await stalled.acquire()
                    upload.cancel()
            async with asyncio.TaskGroup() as group:
                for number in range(5):
                    group.create_task(blobs.put(f"good{number}", send(b"z" * 95), limit_bytes=100))
        assert await blobs.size("good4") == 95


async def send(data: bytes) -> AsyncIterator[bytes]:
    for offset in range(0, len(data), 7):
        yield data[offset : offset + 7]
