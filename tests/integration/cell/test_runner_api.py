"""The runner API over HTTP: valid, repeated and out-of-order requests, and requests with wrong tokens."""

import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

from remuda.wire.routable_token import decode, encode

ONE_JOB = "only:\n  script: [echo hello]\n"
TWO_JOBS = "one:\n  script: [echo 1]\ntwo:\n  script: [echo 2]\n"


def status_of(cell: ServedCell, project: int, job: int) -> str:
    return str(cell.api("GET", f"/projects/{project}/jobs/{job}").json()["status"])


class TestRunners:
    def test_a_registration_token_creates_a_runner(self, cell: ServedCell) -> None:
        response = cell.send("GET", "/api/remuda/v1/registration_token", PRIVATE_TOKEN=cell.token)
        body = {"token": response.json()["token"], "tag_list": "linux, docker", "run_untagged": False, "info": {"x": 1}}
        created = cell.send("POST", "/api/v4/runners", body)
        assert created.status == 201
        assert created.headers["Content-Type"] == "application/json"
        assert created.json()["id"] > 0
        assert created.json()["token_expires_at"] is None
        token = created.json()["token"]
        assert token.startswith("glrtr-")
        assert decode(token).cell_id == 1
        details = cell.api("GET", f"/runners/{created.json()['id']}").json()
        assert details["tag_list"] == ["linux", "docker"]
        assert details["run_untagged"] is False
        assert details["status"] == "never_contacted"

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ({"token": "GR1348941wrong"}, 403),
            ({"token": ""}, 400),
            ({"maximum_timeout": 5}, 400),
            ({"run_untagged": False}, 400),
            ({"tag_list": ["t"] * 3 + [str(n) for n in range(60)]}, 400),
            ({"access_level": "nobody"}, 400),
            ({"maximum_timeout": "soon"}, 400),
        ],
    )
    def test_invalid_registrations(self, cell: ServedCell, change: dict[str, object], status: int) -> None:
        token = cell.send("GET", "/api/remuda/v1/registration_token", PRIVATE_TOKEN=cell.token).json()["token"]
        refused = cell.send("POST", "/api/v4/runners", {"token": token, **change})
        assert refused.status == status, refused
        assert refused.headers["Content-Type"] == "application/json"
        assert cell.api("GET", "/runners/all").json() == []

    def test_a_runner_shows_why_its_managers_take_no_jobs(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        verified = cell.send("POST", "/api/v4/runners/verify", {"token": runner.token, "system_id": "s_1"})
        path = f"/runners/{verified.json()['id']}"
        assert (cell.api("GET", path).json()["problem"], cell.api("GET", path).json()["status"]) == ("", "online")
        report = {"token": runner.token, "system_id": "s_1", "problem": "no engine answers"}
        assert cell.send("POST", "/api/remuda/v1/runners/problem", report).status == 204
        assert cell.api("GET", path).json()["problem"] == "no engine answers"
        cell.send("POST", "/api/v4/runners/verify", {"token": runner.token, "system_id": "s_2"})
        assert cell.api("GET", path).json()["problem"] == "", "another manager takes jobs"

    def test_verify_and_unregister_with_bodies_on_delete(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        body = {"token": runner.token, "system_id": "s_abc", "info": {"version": "17.9", "features": {"cache": True}}}
        verified = cell.send("POST", "/api/v4/runners/verify", body, RUNNER_TOKEN=runner.token)
        assert (verified.status, verified.headers["Content-Type"]) == (200, "application/json")
        runner_id = verified.json()["id"]
        assert verified.json() == {"id": runner_id, "token": runner.token, "token_expires_at": None}
        [manager] = cell.api("GET", f"/runners/{runner_id}/managers").json()
        assert (manager["system_id"], manager["version"], manager["status"]) == ("s_abc", "17.9", "online")
        assert cell.send("DELETE", "/api/v4/runners/managers", {"token": runner.token}).status == 400
        manager_body = {"token": runner.token, "system_id": "s_abc"}
        assert cell.send("DELETE", "/api/v4/runners/managers", manager_body).status == 204
        assert cell.send("DELETE", "/api/v4/runners/managers", manager_body).status == 404
        assert cell.send("DELETE", "/api/v4/runners", {"token": runner.token}).status == 204
        assert cell.send("POST", "/api/v4/runners/verify", body).status == 403
        assert runner.ask().status == 403

    def test_old_clients_send_forms(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        project = cell.new_project("forms", ONE_JOB)
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        body = f"token={runner.token}&info[name]=old&info[features][refspecs]=true".encode()
        assert cell.send("POST", "/api/v4/runners/verify", body, **form).status == 200
        job = cell.send("POST", "/api/v4/jobs/request", f"token={runner.token}".encode(), **form).json()
        done = cell.send("PUT", f"/api/v4/jobs/{job['id']}", f"token={job['token']}&state=success".encode(), **form)
        assert done.status == 200
        assert status_of(cell, project, job["id"]) == "success"


class TestRequest:
    def test_a_job_is_handed_out_with_its_commit(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        project = cell.new_project("hello", ONE_JOB)
        answer = runner.ask(request_id="abc123")
        assert answer.status == 201
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Gitlab-Ci-Builds-Polling"] == "yes"
        assert answer.headers["X-Request-Id"] == "abc123"
        assert answer.headers["X-Remuda-Cell"] == "1"
        job = answer.json()
        assert job["job_info"]["project_id"] == project
        assert job["steps"][0]["script"] == ["echo hello"]
        assert (
            job["git_info"]["repo_url"]
            == cell.url.replace("://", f"://gitlab-ci-token:{job['token']}@") + "/root/hello.git"
        )
        assert len(job["git_info"]["sha"]) == 40
        assert status_of(cell, project, job["id"]) == "running"

    def test_nothing_to_do(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        answer = runner.ask()
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["X-GitLab-Last-Update"]
        assert answer.headers["Gitlab-Ci-Builds-Polling"] == "yes"

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (b"", 400),
            (b"{}", 400),
            (b"[]", 400),
            (b"{bad", 400),
            (b"\xff\xfe", 400),
            (b'{"token": 5}', 400),
            (b'{"token": "nobody"}', 403),
            (b'{"token": "' + b"x" * 20_000 + b'"}', 403),
            (b'{"token": "' + b"x" * 40_000 + b'"}', 413),
        ],
    )
    def test_requests_that_cannot_be_answered_with_a_job(self, cell: ServedCell, body: bytes, status: int) -> None:
        answer = cell.send("POST", "/api/v4/jobs/request", body, Content_Type="application/json")
        assert answer.status == status, answer
        assert answer.headers["Content-Type"] == "application/json"
        assert set(answer.json()) <= {"message", "error"}

    def test_the_body_token_counts_not_the_header(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        body = {"token": "glrt-other"}
        assert cell.send("POST", "/api/v4/jobs/request", body, RUNNER_TOKEN=runner.token).status == 403

    def test_wrong_tokens_get_no_job_and_change_nothing(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        project = cell.new_project("hello", ONE_JOB)
        decoded = decode(runner.token)
        foreign = encode(prefix="glrt-", routing={**decoded.routing, "c": 2}, random=decoded.random)
        for wrong in (runner.token[:-1], runner.token + "x", runner.token.upper(), foreign, cell.token):
            assert ScriptedRunner(cell, wrong).ask().status == 403
        [job] = cell.api("GET", f"/projects/{project}/jobs").json()
        assert job["status"] == "pending"

    def test_a_held_request_is_woken_by_a_push(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        runner.ask()
        with ThreadPoolExecutor(1) as pool:
            poll = pool.submit(runner.ask, hold=True)
            cell.until_metric("remuda_cell_held_polls 1.0")
            cell.new_project("hello", ONE_JOB)
            assert poll.result(30).status == 201

    def test_a_request_without_cursor_is_not_held(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        assert runner.ask().status == 204

    def test_a_manager_without_hold_seconds_is_answered_at_once(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        """gitlab-runner is such a manager: a held request occupies a worker that all its runners share."""
        runner.ask()
        for _ in range(3):
            # If the request were held, that would last longer than the client waits.
            assert runner.ask(hold=True, hold_seconds=None).status == 204

    def test_requests_of_runner_with_poll_hold_seconds_are_held(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        [row] = cell.api("GET", "/runners/all").json()
        path = f"/runners/{row['id']}"
        assert cell.api("GET", path).json()["poll_hold_seconds"] is None
        for wrong in (-1, 3601, "long"):
            assert cell.api("PUT", path, {"poll_hold_seconds": wrong}).status == 400
        assert cell.api("PUT", path, {"poll_hold_seconds": 100}).json()["poll_hold_seconds"] == 100
        assert cell.api("PUT", path, {"description": "other"}).json()["poll_hold_seconds"] == 100
        with ThreadPoolExecutor(1) as pool:
            poll = pool.submit(runner.ask, hold=True, hold_seconds=None)
            cell.until_metric("remuda_cell_held_polls 1.0")
            cell.new_project("hello", ONE_JOB)
            assert poll.result(30).status == 201
        assert cell.api("PUT", path, {"poll_hold_seconds": 0}).json()["poll_hold_seconds"] == 0
        assert runner.ask(hold=True).status == 204
        assert cell.api("PUT", path, {"poll_hold_seconds": None}).json()["poll_hold_seconds"] is None
        assert cell.api("PUT", f"{path}?poll_hold_seconds=7").json()["poll_hold_seconds"] == 7

    def test_the_same_request_again_gets_the_same_job(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        cell.new_project("hello", TWO_JOBS)
        first = runner.take(request_id="again")
        second = runner.take(request_id="again")
        assert first["id"] == second["id"]
        assert runner.put(second, "running").status == 200
        assert runner.take(request_id="another")["id"] != first["id"]

    def test_a_client_that_disconnects_gets_no_job(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        runner.ask()
        address = urlsplit(cell.url)
        body = b'{"token":"%s","last_update":"%s","hold_seconds":50}' % (
            runner.token.encode(),
            (runner.cursor or "").encode(),
        )
        with socket.create_connection((address.hostname or "", address.port or 0)) as caller:
            caller.sendall(
                b"POST /api/v4/jobs/request HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            cell.until_metric("remuda_cell_held_polls 1.0")
        cell.until_metric("remuda_cell_held_polls 0.0")
        cell.new_project("hello", ONE_JOB)
        assert runner.ask().status == 201

    def test_a_paused_runner_gets_nothing(self, cell: ServedCell) -> None:
        runner = cell.new_runner(paused=True)
        cell.new_project("hello", ONE_JOB)
        assert runner.ask().status == 204


class TestUpdate:
    def test_states_and_their_repetition(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        project = cell.new_project("hello", ONE_JOB)
        job = runner.take()
        running = runner.put(job, "running")
        assert (running.status, running.headers["Job-Status"]) == (200, "running")
        assert running.headers["X-GitLab-Trace-Update-Interval"] == "3"
        assert runner.put(job, "dancing").status == 400
        for _ in range(2):
            ended = runner.put(job, "failed", failure_reason="script_failure", exit_code=7)
            assert (ended.status, ended.headers["Job-Status"]) == (200, "failed")
        assert runner.put(job, "success").status == 403
        details = cell.api("GET", f"/projects/{project}/jobs/{job['id']}").json()
        assert (details["status"], details["failure_reason"], details["exit_code"]) == ("failed", "script_failure", 7)

    def test_a_job_token_is_valid_for_its_own_job_only(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        project = cell.new_project("hello", TWO_JOBS)
        first, second = runner.take(), runner.take()
        mixed = {"id": first["id"], "token": second["token"]}
        assert runner.put(mixed, "success").status == 403
        assert runner.patch(mixed, 0, b"x").status == 403
        assert runner.upload(mixed, b"x").status == 403
        for wrong in (first["token"][:-2], first["token"] + "A", "glcbt-", "", runner.token, "glcbt-a.b.c"):
            broken = {"id": first["id"], "token": wrong}
            assert runner.put(broken, "success").status in (400, 403)
            assert runner.patch(broken, 0, b"x").status == 403
        assert status_of(cell, project, first["id"]) == "running"
        assert cell.api("GET", f"/projects/{project}/jobs/{first['id']}").json()["started_at"] is None

    def test_job_token_of_other_cell_is_refused(self, cell: ServedCell, runner: ScriptedRunner, tmp_path: Path) -> None:
        cell.new_project("hello", ONE_JOB)
        job = runner.take()
        with ServedCell(tmp_path / "second", cell_id=1) as other:
            other.new_project("hello", ONE_JOB)
            other_runner = other.new_runner()
            other_job = other_runner.take()
            assert other_job["id"] == job["id"]
            assert other_runner.put(job, "success").status == 403
            assert other_runner.put(other_job, "success").status == 200

    def test_responses_for_a_canceled_job(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        project = cell.new_project("hello", TWO_JOBS)
        features = {"info": {"features": {"cancel_gracefully": True}}}
        graceful, blunt = runner.take(**features), runner.take()
        for job in (graceful, blunt):
            runner.put(job, "running")
            canceled = cell.api("POST", f"/projects/{project}/jobs/{job['id']}/cancel")
            assert canceled.status == 201
        accepted = runner.patch(graceful, 0, b"still here\n")
        assert (accepted.status, accepted.headers["Job-Status"]) == (202, "canceling")
        assert runner.put(graceful, "failed").headers["Job-Status"] == "canceled"
        refused = runner.patch(blunt, 0, b"too late\n")
        assert (refused.status, refused.headers["Job-Status"]) == (403, "canceled")


class TestTrace:
    @pytest.fixture
    def job(self, cell: ServedCell, runner: ScriptedRunner) -> dict[str, str]:
        cell.new_project("hello", ONE_JOB)
        return runner.take()

    def trace(self, cell: ServedCell, job: dict[str, str]) -> bytes:
        return cell.api("GET", f"/projects/1/jobs/{job['id']}/trace").body

    def test_pieces_twice_or_with_a_gap(self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str]) -> None:
        def summarize(answer: Answer) -> tuple[int, str, str]:
            return answer.status, answer.headers["Range"], answer.headers["Job-Status"]

        assert summarize(runner.patch(job, 0, b"hello ")) == (202, "0-6", "running")
        assert summarize(runner.patch(job, 0, b"hello ")) == (202, "0-6", "running"), "twice"
        assert summarize(runner.patch(job, 9, b"late")) == (416, "0-6", "running"), "a gap"
        assert summarize(runner.patch(job, 3, b"lo world")) == (202, "0-11", "running"), "an overlap"
        assert summarize(runner.patch(job, 0, b"HELLO")) == (416, "0-11", "running"), "other bytes"
        assert summarize(runner.patch(job, 11, b"!\n")) == (202, "0-13", "running")
        assert self.trace(cell, job) == b"hello world!\n"
        assert runner.put(job, "success").status == 200
        assert runner.patch(job, 11, b"!\n").status == 202, "bytes that are stored already"
        assert runner.patch(job, 13, b"more").status == 403
        assert self.trace(cell, job) == b"hello world!\n"

    def test_trace_update_acknowledges_job(self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str]) -> None:
        runner.patch(job, 0, b"x")
        assert cell.api("GET", f"/projects/1/jobs/{job['id']}").json()["started_at"]

    @pytest.mark.parametrize("content_range", ["", "bytes 0-3", "-3", "x-y", "1" * 30 + "-2", "0"])
    def test_a_valid_content_range_is_required(
        self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str], content_range: str
    ) -> None:
        path = f"/api/v4/jobs/{job['id']}/trace"
        answer = cell.send("PATCH", path, b"data", JOB_TOKEN=job["token"], Content_Range=content_range)
        assert answer.status == 400
        assert cell.send("PATCH", path, b"data", JOB_TOKEN=job["token"]).status == 400
        assert self.trace(cell, job) == b""

    def test_a_piece_may_be_two_mebibytes(self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str]) -> None:
        large = bytes(range(256)) * 8192
        assert runner.patch(job, 0, large + b"!").status == 413
        assert runner.patch(job, 0, large).status == 202
        assert self.trace(cell, job) == large

    def test_parts_of_a_trace(self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str]) -> None:
        runner.patch(job, 0, b"0123456789")
        path = f"/projects/1/jobs/{job['id']}/trace"
        part = cell.api("GET", path, Range="bytes=4-")
        assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"456789", "bytes 4-9/10")
        for requested, status, body in (
            ("bytes=2-4", 206, b"234"),
            ("bytes=0-0", 206, b"0"),
            ("bytes=8-99", 206, b"89"),
            ("bytes=-3", 206, b"789"),
            ("bytes=-99", 206, b"0123456789"),
            ("bytes=4-2", 200, b"0123456789"),
            ("bytes=0-1,4-5", 200, b"0123456789"),
            ("bytes=-", 200, b"0123456789"),
            ("lines=1-2", 200, b"0123456789"),
        ):
            part = cell.api("GET", path, Range=requested)
            assert (part.status, part.body) == (status, body), requested
        for beyond in ("bytes=10-", "bytes=10-12", "bytes=-0"):
            assert cell.api("GET", path, Range=beyond).status == 416
        follow = f"/api/remuda/v1/jobs/{job['id']}/trace?offset="
        answer = cell.send("GET", f"{follow}7", PRIVATE_TOKEN=cell.token)
        assert answer.body == b"789"
        assert answer.headers["X-Remuda-Job-State"] == "running"
        assert answer.headers["X-Remuda-Trace-Size"] == "10"
        assert cell.send("GET", f"{follow}99", PRIVATE_TOKEN=cell.token).body == b""
        assert cell.send("GET", f"{follow}x", PRIVATE_TOKEN=cell.token).status == 400

    def test_too_long_a_trace_fails_its_job(self, tmp_path: Path) -> None:
        with ServedCell(tmp_path / "cell", trace_limit_bytes=1000) as cell:
            project = cell.new_project("hello", ONE_JOB)
            runner = cell.new_runner()
            job = runner.take()
            assert runner.patch(job, 0, b"x" * 900).status == 202
            refused = runner.patch(job, 900, b"x" * 101)
            assert (refused.status, refused.headers["Job-Status"]) == (403, "failed")
            details = cell.api("GET", f"/projects/{project}/jobs/{job['id']}").json()
            assert (details["status"], details["failure_reason"]) == ("failed", "trace_size_exceeded")

    def test_followers_see_all_new_bytes(self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str]) -> None:
        lines = [f"line {n} {'x' * (n % 97)}\n".encode() for n in range(100)]
        seen = b""

        def write() -> None:
            offset = 0
            for line in lines:
                assert runner.patch(job, offset, line).status == 202
                offset += len(line)
            runner.put(job, "success")

        writer = threading.Thread(target=write)
        writer.start()
        while True:
            path = f"/api/remuda/v1/jobs/{job['id']}/trace?offset={len(seen)}"
            answer = cell.send("GET", path, PRIVATE_TOKEN=cell.token)
            seen += answer.body
            if answer.headers["X-Remuda-Job-State"] == "success":
                break
        writer.join()
        assert seen == b"".join(lines)


class TestResults:
    def test_in_order_again_and_with_a_gap(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        cell.new_project("hello", ONE_JOB)
        job = runner.take()
        path = f"/api/remuda/v1/jobs/{job['id']}/results"

        def send(*numbers: int) -> Answer:
            results = [{"version": 1, "seq": number, "event": "started", "name": "script"} for number in numbers]
            return cell.send("POST", path, {"version": 1, "results": results}, JOB_TOKEN=job["token"])

        assert (send(1, 2).status, send(1, 2).json()["next_seq"]) == (200, 3)
        assert (send(5).status, send(5).json()["next_seq"]) == (409, 3)
        assert (send(2, 3).status, send().json()["next_seq"]) == (200, 4)
        finished = {
            "seq": 4,
            "event": "finished",
            "name": "script",
            "status": "success",
            "started_at": "2026-01-01T00:00:00.000Z",
            "finished_at": "2026-01-01T00:00:01.500Z",
        }
        assert cell.send("POST", path, {"results": [finished]}, JOB_TOKEN=job["token"]).status == 200
        assert cell.send("POST", path, {"results": [{"seq": "x"}]}, JOB_TOKEN=job["token"]).status == 400
        assert cell.send("POST", path, {"results": [finished]}, JOB_TOKEN=cell.token).status == 403
        steps = cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/steps", PRIVATE_TOKEN=cell.token).json()
        assert [result["seq"] for result in steps["results"]] == [1, 2, 3, 4]
        assert steps["results"][3] == finished
        detail = cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}", PRIVATE_TOKEN=cell.token).json()
        assert detail["times"]["steps"] == [{"path": None, "name": "script", "status": "success", "seconds": 1.5}]
        assert detail["times"]["waiting_seconds"] >= 0
        assert detail["state"] == "running"
        runner.put(job, "success")
        assert send(5).status == 403


class TestHeldReads:
    """GET /api/remuda/v1/jobs/:id/trace with hold_seconds, which waits for more of the log."""

    @pytest.fixture
    def job(self, cell: ServedCell, runner: ScriptedRunner) -> dict[str, str]:
        cell.new_project("hello", ONE_JOB)
        return runner.take()

    @staticmethod
    def read_later(cell: ServedCell, job: dict[str, str], offset: int) -> Future[Answer]:
        path = f"/api/remuda/v1/jobs/{job['id']}/trace?offset={offset}&hold_seconds=50"
        pool = ThreadPoolExecutor(1)
        answer = pool.submit(cell.send, "GET", path, PRIVATE_TOKEN=cell.token)
        pool.shutdown(wait=False)
        wait([answer], timeout=0.5)
        return answer

    def test_it_waits_for_more_bytes(self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str]) -> None:
        runner.patch(job, 0, b"one\n")
        answer = self.read_later(cell, job, 4)
        assert not answer.done()
        runner.patch(job, 4, b"two\n")
        assert answer.result(10).body == b"two\n"

    def test_it_waits_for_the_end_of_the_job(
        self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str]
    ) -> None:
        runner.patch(job, 0, b"one\n")
        answer = self.read_later(cell, job, 4)
        assert not answer.done()
        runner.put(job, "success")
        assert answer.result(10).headers["X-Remuda-Job-State"] == "success"

    def test_it_does_not_wait_for_a_job_that_has_ended(
        self, cell: ServedCell, runner: ScriptedRunner, job: dict[str, str]
    ) -> None:
        runner.patch(job, 0, b"one\n")
        runner.put(job, "success")
        assert self.read_later(cell, job, 4).result(10).body == b""
