"""The strict server itself."""

import re
from typing import Any

import msgspec
import pytest
from tests.support.runners.strict_gitlab import RUNNER_TOKEN, StrictGitLab
from tests.support.runners.strict_playbook import LOG, Playbook

from remuda.wire import runner_server


class TestTheServer:
    """A manager that does one thing wrong does not get away with it."""

    @staticmethod
    def wrong_range(call: dict[str, Any]) -> None:
        if call["method"] == "PATCH":
            start, _, end = call["headers"]["Content-Range"].partition("-")
            call["headers"]["Content-Range"] = f"{start}-{int(end) + 1}"

    @staticmethod
    def wrong_place(call: dict[str, Any]) -> None:
        if call["method"] == "PATCH":
            call["headers"]["Content-Range"] = f"7-{6 + len(call['body'])}"

    @staticmethod
    def wrong_header(call: dict[str, Any]) -> None:
        if call["method"] == "PUT":
            call["headers"]["RUNNER-TOKEN"] = RUNNER_TOKEN

    @staticmethod
    def wrong_checksum(call: dict[str, Any]) -> None:
        if call["method"] == "PUT" and call["body"].output is not None:
            call["body"].output.checksum = call["body"].checksum = "crc32:00000000"

    @staticmethod
    def one_id(call: dict[str, Any]) -> None:
        call["request_id"] = "0" * 32

    @staticmethod
    def other_features(call: dict[str, Any]) -> None:
        if call["path"].endswith("/request"):
            features = call["body"].info.features | {"terminal": True}
            call["body"].info = msgspec.structs.replace(call["body"].info, features=features)

    @pytest.mark.parametrize(
        ("twist", "found"),
        [
            ("wrong_range", "Content-Range '0-11' of 11 bytes"),
            ("wrong_place", "begins at 7, wanted is 0"),
            ("wrong_header", "which token goes in which header"),
            ("wrong_checksum", "is wrong"),
            ("one_id", "the id of a call that was answered is used again"),
            ("other_features", "other features than the manager has"),
        ],
    )
    async def test_it_finds_what_is_wrong(
        self, book: Playbook, gitlab: StrictGitLab, monkeypatch: pytest.MonkeyPatch, twist: str, found: str
    ) -> None:
        right = runner_server.Server.call

        async def twisted(server: runner_server.Server, method: str, path: str, **call: Any) -> runner_server.Response:
            changed = {"method": method, "path": path} | call
            getattr(self, twist)(changed)
            return await right(server, changed.pop("method"), changed.pop("path"), **changed)

        monkeypatch.setattr(runner_server.Server, "call", twisted)
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: gitlab.statuses["trace"])
            monkeypatch.setattr(runner_server.Server, "call", right if twist == "wrong_place" else twisted)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        with pytest.raises(AssertionError, match=re.escape(found)):
            gitlab.check()
        gitlab.violations.clear()
