"""The server's answers to a chunk of a log."""

from zlib import crc32

import pytest
from tests.support.runners.strict_gitlab import CUT, PlannedAnswer, StrictGitLab, answer
from tests.support.runners.strict_scenario import LOG, Scenario, ViolationsExcept


class TestLogs:
    @pytest.mark.parametrize(
        "planned",
        [
            answer(400),
            answer(404),
            answer(409),
            answer(413),
            answer(429, Retry_After="1"),
            answer(500),
            answer(502),
            answer(503, processed=True),
            answer(504),
            CUT,
            PlannedAnswer(processed=True),
        ],
        ids=lambda planned: f"{planned.status}{'-taken' if planned.processed else ''}",
    )
    async def test_chunk_that_was_not_accepted_is_sent_again(self, scenario: Scenario, planned: PlannedAnswer) -> None:
        async with scenario.manager():
            job = await scenario.gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            scenario.gitlab.plan("trace", planned)
            await scenario.environment.agent.write(key, LOG)
            await scenario.gitlab.until(lambda: len(scenario.gitlab.statuses["trace"]) >= 2)
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
        assert (job.status, bytes(job.trace)) == ("success", LOG)

    @pytest.mark.parametrize("position", ["0-4", "", "rubbish", "0-99"])
    async def test_continue_at_server_position(self, scenario: Scenario, gitlab: StrictGitLab, position: str) -> None:
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            await scenario.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.trace) == len(LOG))
            stored_bytes = int(position[2:]) if position == "0-4" else 0
            if position != "0-99":
                del job.trace[stored_bytes:]
            gitlab.plan("trace", answer(416, Range=position) if position else answer(416))
            if position == "0-99":
                gitlab.plan("trace", answer(416, Range=f"0-{len(LOG)}"))
            await scenario.environment.agent.write(key, b"x" * 200)
            await gitlab.until(lambda: len(job.trace) == len(LOG) + 200)
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
        assert bytes(job.trace) == LOG + b"x" * 200

    async def test_log_is_sent_in_chunks_of_one_mebibyte(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        log = bytes(range(256)) * 10_000
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            await scenario.environment.agent.write(key, log)
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
        assert bytes(job.trace) == log
        assert job.updates[-1]["output"] == {"checksum": f"crc32:{crc32(log):08x}", "bytesize": len(log)}

    async def test_chunks_get_smaller_if_large_ones_are_refused(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        log = b"0123456789abcdef" * (1 << 16)
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            gitlab.plan("trace", answer(413), answer(413))
            await scenario.environment.agent.write(key, log)
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
        assert bytes(job.trace) == log
        assert max(size for _, size in job.patches) == 1 << 18

    @pytest.mark.parametrize(
        "planned",
        [answer(403), answer(202, Job_Status="canceled"), answer(202, Job_Status="failed")],
        ids=["403", "canceled", "failed"],
    )
    async def test_aborted_job_is_closed_without_an_update(self, scenario: Scenario, planned: PlannedAnswer) -> None:
        async with scenario.manager():
            job = await scenario.gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            scenario.gitlab.plan("trace", planned)
            await scenario.environment.agent.write(key, LOG)
            await scenario.environment.agent.until(lambda: key in scenario.environment.agent.closed)
        assert [update["state"] for update in job.updates] == ["running"]

    async def test_refused_last_chunk_blocks_no_final_state(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            gitlab.plan("trace", answer(404))
            gitlab.plan("update", *[])
            gitlab.violations = ViolationsExcept(gitlab.violations, f"bytesize {len(LOG)}, the log has 0")
            scenario.environment.agent.jobs[key].log += LOG
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
        assert job.updates[-1]["state"] == "success"

    async def test_update_interval_of_the_server_is_respected(self, scenario: Scenario, gitlab: StrictGitLab) -> None:
        """The strict server checks it: only the last chunk may come before the interval has passed."""
        async with scenario.manager():
            job = await gitlab.enqueue("true")
            key = await scenario.environment.agent.job()
            for number in range(3):
                await scenario.environment.agent.write(key, LOG)
                size = len(LOG) * (number + 1)
                await gitlab.until(lambda size=size: len(job.trace) >= size)  # type: ignore[misc]
            gitlab.interval = "900"
            await scenario.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.trace) == 4 * len(LOG))
            await scenario.environment.agent.write(key, LOG)
            await scenario.environment.agent.end(key)
            await scenario.until_closed(job)
        assert len(job.patches) == 5
