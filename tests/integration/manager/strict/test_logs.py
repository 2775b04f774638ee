"""Every answer to a piece of a log."""

from zlib import crc32

import pytest
from tests.support.runners.strict_gitlab import CUT, Planned, StrictGitLab, answer
from tests.support.runners.strict_playbook import LOG, Expected, Playbook


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
            answer(503, takes=True),
            answer(504),
            CUT,
            Planned(takes=True),
        ],
        ids=lambda planned: f"{planned.status}{'-taken' if planned.takes else ''}",
    )
    async def test_a_piece_that_was_not_taken_goes_again(
        self, book: Playbook, gitlab: StrictGitLab, planned: Planned
    ) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            gitlab.plan("trace", planned)
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(gitlab.statuses["trace"]) >= 2)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert (job.status, bytes(job.trace)) == ("success", LOG)

    @pytest.mark.parametrize("place", ["0-4", "", "rubbish", "0-99"])
    async def test_the_server_says_where_it_stands(self, book: Playbook, gitlab: StrictGitLab, place: str) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.trace) == len(LOG))
            kept = int(place[2:]) if place == "0-4" else 0
            if place != "0-99":
                del job.trace[kept:]
            gitlab.plan("trace", answer(416, Range=place) if place else answer(416))
            if place == "0-99":
                gitlab.plan("trace", answer(416, Range=f"0-{len(LOG)}"))
            await book.environment.agent.write(key, b"x" * 200)
            await gitlab.until(lambda: len(job.trace) == len(LOG) + 200)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert bytes(job.trace) == LOG + b"x" * 200

    async def test_a_log_is_sent_in_pieces_of_a_mebibyte_at_most(self, book: Playbook, gitlab: StrictGitLab) -> None:
        log = bytes(range(256)) * 10_000
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            await book.environment.agent.write(key, log)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert bytes(job.trace) == log
        assert job.updates[-1]["output"] == {"checksum": f"crc32:{crc32(log):08x}", "bytesize": len(log)}

    async def test_pieces_get_smaller_for_a_server_that_takes_only_small_ones(
        self, book: Playbook, gitlab: StrictGitLab
    ) -> None:
        log = b"0123456789abcdef" * (1 << 16)
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            gitlab.plan("trace", answer(413), answer(413))
            await book.environment.agent.write(key, log)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert bytes(job.trace) == log
        assert max(size for _, size in job.patches) == 1 << 18

    @pytest.mark.parametrize(
        "planned",
        [answer(403), answer(202, Job_Status="canceled"), answer(202, Job_Status="failed")],
        ids=["403", "canceled", "failed"],
    )
    async def test_a_job_that_is_no_more_wanted_is_ended_here_without_a_word(
        self, book: Playbook, gitlab: StrictGitLab, planned: Planned
    ) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            gitlab.plan("trace", planned)
            await book.environment.agent.write(key, LOG)
            await book.environment.agent.until(lambda: key in book.environment.agent.closed)
        assert [update["state"] for update in job.updates] == ["running"]

    async def test_a_last_piece_for_a_job_that_is_gone_ends_the_log_not_the_job(
        self, book: Playbook, gitlab: StrictGitLab
    ) -> None:
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            gitlab.plan("trace", answer(404))
            gitlab.plan("update", *[])
            gitlab.violations = Expected(gitlab.violations, f"bytesize {len(LOG)}, the log has 0")
            book.environment.agent.jobs[key].log += LOG
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert job.updates[-1]["state"] == "success"

    async def test_the_server_says_how_often_it_wants_to_hear(self, book: Playbook, gitlab: StrictGitLab) -> None:
        """The server's own rule: a piece that comes before the interval is over is the last one, or a violation."""
        async with book.manager():
            job = await gitlab.enqueue("true")
            key = await book.environment.agent.job()
            for number in range(3):
                await book.environment.agent.write(key, LOG)
                size = len(LOG) * (number + 1)
                await gitlab.until(lambda size=size: len(job.trace) >= size)  # type: ignore[misc]
            gitlab.interval = "900"
            await book.environment.agent.write(key, LOG)
            await gitlab.until(lambda: len(job.trace) == 4 * len(LOG))
            await book.environment.agent.write(key, LOG)
            await book.environment.agent.end(key)
            await book.until_closed(job)
        assert len(job.patches) == 5
