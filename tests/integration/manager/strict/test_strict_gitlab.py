"""The strict GitLab detects requests with a mistake."""

import re
from typing import Any

import msgspec
import pytest
from tests.support.runners.strict_gitlab import RUNNER_TOKEN, StrictGitLab
from tests.support.runners.strict_scenario import LOG, Scenario

from remuda.wire import runner_server


class TestViolations:
    """Each method changes one kind of request; the server has to report it."""

    @staticmethod
    def wrong_range(call: dict[str, Any]) -> None:
        if call["method"] == "PATCH":
            start, _, end = call["headers"]["Content-Range"].partition("-")
            call["headers"]["Content-Range"] = f"{start}-{int(end) + 1}"

    @staticmethod
    def wrong_offset(call: dict[str, Any]) -> None:
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
    def repeated_request_id(call: dict[str, Any]) -> None:
        call["request_id"] = "0" * 32

    @staticmethod
    def other_features(call: dict[str, Any]) -> None:
        if call["path"].endswith("/request"):
            features = call["body"].info.features | {"terminal": True}
            call["body"].info = msgspec.structs.replace(call["body"].info, features=features)

    @pytest.mark.parametrize(
        ("mistake", "violation"),
        [
            ("wrong_range", "Content-Range '0-11' of 11 bytes"),
            ("wrong_offset", "begins at 7, expected is 0"),
            ("wrong_header", "must have job-token and not runner-token"),
            ("wrong_checksum", "is wrong"),
            ("repeated_request_id", "the request id of an answered call is used again"),
            ("other_features", "the features differ from those of the manager"),
        ],
    )
    async def test_a_mistake_is_reported(
        self, scenario: Scenario, gitlab: StrictGitLab, monkeypatch: pytest.MonkeyPatch, mistake: str, violation: str
    ) -> None:
        original_call = runner_server.Server.call

        async def call_with_mistake(
            server: runner_server.Server, method: str, path: str, **call: Any
        ) -> runner_server.Response:
            changed = {"method": method, "path": path} | call
            getattr(self, mistake)(changed)
            return await original_call(server, changed.pop("method"), changed.pop("path"), **changed)

        monkeypatch.setattr(runner_server.Server, "call", call_with_mistake)
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            await scenario.environment.agent.write(key, LOG)
            await gitlab.until(lambda: gitlab.statuses["trace"])
            monkeypatch.setattr(
                runner_server.Server, "call", original_call if mistake == "wrong_offset" else call_with_mistake
            )
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
        with pytest.raises(AssertionError, match=re.escape(violation)):
            gitlab.check()
        gitlab.violations.clear()
