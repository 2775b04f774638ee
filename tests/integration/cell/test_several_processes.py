"""Several processes serve one cell: each can handle every request, and every effect happens once."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest
from tests.support.cells.page_client import PageClient
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell, commit_file

from remuda.cell.core.waiting import priority_delay
from remuda.cell.dispatch import handout
from remuda.cell.errors import DataFolderError
from remuda.cell.projects import projects
from remuda.testing.waiting import wait_until

ONE_JOB = "build:\n  script: make\n"
TWO_STAGES = "stages: [a, b]\nfirst:\n  stage: a\n  script: make\nthen:\n  stage: b\n  script: make\n"


@pytest.fixture
def cells(tmp_path: Path, database: str) -> Iterator[list[ServedCell]]:
    with ExitStack() as stack:
        served = [
            stack.enter_context(ServedCell(tmp_path / "cell", database=database, public_url="http://cell.example"))
            for _ in range(3)
        ]
        for cell in served:
            # Nothing listens on the public URL here: each process is called directly.
            cell.url = f"http://127.0.0.1:{cell.service.settings.port}"
        yield served


@pytest.fixture
def runners(cells: list[ServedCell]) -> list[ScriptedRunner]:
    """One runner, as a client of each of the processes."""
    token = cells[0].new_runner().token
    return [ScriptedRunner(cell, token) for cell in cells]


def test_a_job_is_served_by_all_processes(cells: list[ServedCell], runners: list[ScriptedRunner]) -> None:
    project = cells[0].new_project("app", TWO_STAGES)
    first = runners[1].take(hold=True)
    assert runners[2].put(first, "running").status == 200
    assert runners[0].patch(first, 0, b"hello ").status == 202
    assert runners[1].patch(first, 6, b"world\n").status == 202
    assert runners[2].put(first, "success").status == 200
    then = runners[0].take(hold=True)
    assert then["job_info"]["name"] == "then"
    assert runners[1].put(then, "success").status == 200
    for cell in cells:
        assert cell.api("GET", f"/projects/{project}/jobs/{first['id']}/trace").body == b"hello world\n"
        assert cell.api("GET", f"/projects/{project}/pipelines").json()[0]["status"] == "success"


def test_all_processes_show_the_same_queue_and_usage(cells: list[ServedCell], runners: list[ScriptedRunner]) -> None:
    cells[0].new_project("app", "build: {script: make, parallel: 3}\n")
    runners[1].take(hold=True, info={"config": {"capacity": 4}})

    def read(cell: ServedCell) -> tuple[list[tuple[int, int]], tuple[int, int, int]]:
        keys = cell.send("GET", "/api/remuda/v1/queue", PRIVATE_TOKEN=cell.token).json()
        usage = cell.send("GET", "/api/remuda/v1/usage", PRIVATE_TOKEN=cell.token).json()
        waiting = [(key["waiting"], key["running"]) for key in keys]
        return waiting, (usage["running"], usage["waiting"], usage["slots"])

    expected = ([(2, 1)], (1, 2, 4))
    wait_until(lambda: all(read(cell) == expected for cell in cells), "all processes agree")


def test_a_session_that_one_process_begins_counts_in_all(cells: list[ServedCell]) -> None:
    visitors = [PageClient(cell) for cell in cells]
    visitors[0].sign_in(cells[0].token)
    for visitor in visitors[1:]:
        visitor.cookies = visitors[0].cookies
    assert [visitor.is_signed_in for visitor in visitors] == [True] * 3
    assert visitors[1].send("POST", "/api/v4/projects", {"name": "b"}, X_CSRF_Token=visitors[2].csrf()).status == 201
    link = cells[0].send("POST", "/api/remuda/v1/sign_in_links", PRIVATE_TOKEN=cells[0].token).json()["url"]
    path = link.removeprefix("http://cell.example")
    assert [PageClient(cell).get(path).status for cell in reversed(cells)] == [303, 422, 422]
    assert visitors[2].post_form("/-/sign-out", {}).status == 303
    assert [visitor.is_signed_in for visitor in visitors] == [False] * 3


def test_a_held_poll_is_woken_by_another_process(cells: list[ServedCell], runners: list[ScriptedRunner]) -> None:
    project = cells[0].new_project("app")
    runners[2].ask()
    answers: list[Answer] = []
    poll = Thread(target=lambda: answers.append(runners[2].ask(hold=True)))
    poll.start()
    cells[2].until_metric("remuda_cell_held_polls 1.0")
    commit_file(cells[0], project, ONE_JOB)
    poll.join(30)
    assert [answer.status for answer in answers] == [201]


def test_changed_tags_count_for_a_poll_that_another_process_holds(
    cells: list[ServedCell], runners: list[ScriptedRunner]
) -> None:
    cells[0].new_project("app", "build: {script: [make], tags: [gpu]}\n")
    runners[2].ask()
    answers: list[Answer] = []
    poll = Thread(target=lambda: answers.append(runners[2].ask(hold=True)))
    poll.start()
    cells[2].until_metric("remuda_cell_held_polls 1.0")
    runner_id = cells[0].api("GET", "/runners/all").json()[0]["id"]
    assert cells[0].api("PUT", f"/runners/{runner_id}", {"tag_list": ["gpu"]}).status == 200
    poll.join(30)
    assert [answer.status for answer in answers] == [201]


def test_every_job_is_handed_out_once(cells: list[ServedCell], runners: list[ScriptedRunner]) -> None:
    jobs = 30
    cells[0].new_project("app", "".join(f"job{number}:\n  script: make\n" for number in range(jobs)))
    taken: list[int] = []

    def work(runner: ScriptedRunner) -> None:
        while (answer := runner.ask()).status == 201:
            taken.append(answer.json()["id"])
            assert runner.put(answer.json(), "success").status == 200

    workers = [Thread(target=work, args=(ScriptedRunner(runner.cell, runner.token),)) for runner in runners * 2]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    # A worker whose process did not know of the jobs yet has ended early; its share is done here.
    work(runners[0])
    assert sorted(taken) == sorted(set(taken))
    assert len(taken) == jobs


def test_a_push_starts_one_pipeline_although_all_processes_see_it(cells: list[ServedCell], tmp_path: Path) -> None:
    project = cells[0].new_project("app", ONE_JOB)
    repo = next((tmp_path / "cell" / "repos").glob("*/*.git"))
    head = subprocess.run(["git", "-C", repo, "rev-parse", "main"], capture_output=True, text=True, check=True)
    for number in range(5):
        branch = f"refs/heads/topic{number}"
        subprocess.run(["git", "-C", repo, "update-ref", branch, head.stdout.strip()], check=True)
        # Each commit makes its process read all refs of the repository.
        file = {"action": "create", "file_path": "a", "content": "a"}
        bodies = [
            {"branch": f"b{number}-{index}", "start_branch": "main", "commit_message": "x", "actions": [file]}
            for index in range(len(cells))
        ]
        threads = [
            Thread(target=cell.api, args=("POST", f"/projects/{project}/repository/commits", body))
            for cell, body in zip(cells, bodies, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    pipelines = cells[0].api("GET", f"/projects/{project}/pipelines?per_page=100").json()
    refs = sorted(pipeline["ref"] for pipeline in pipelines)
    assert refs == sorted(set(refs))
    assert len(refs) == 1 + 5 * 4
    assert sorted(pipeline["iid"] for pipeline in pipelines) == list(range(1, len(pipelines) + 1))


def test_a_sqlite_cell_is_not_shared(tmp_path: Path, database: str) -> None:
    with ServedCell(tmp_path / "a"), pytest.raises(DataFolderError, match="in use"), ServedCell(tmp_path / "a"):
        pass
    with (
        ServedCell(tmp_path / "b", database=database),
        pytest.raises(DataFolderError, match="in use"),
        ServedCell(tmp_path / "b"),
    ):
        pass


def test_push_survives_its_process(cells: list[ServedCell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projects, "ABANDONED_SECONDS", 0.0)
    project = cells[0].new_project("app", ONE_JOB)
    folder = tmp_path / "cell" / "repos"
    repo = next(folder.glob("*/*.git"))
    head = subprocess.run(["git", "-C", repo, "rev-parse", "main"], capture_output=True, text=True, check=True)
    # A push that updated a ref and died leaves its file, which is not locked any more.
    (folder / "pushes" / f"{project}-left").touch()
    subprocess.run(["git", "-C", repo, "update-ref", "refs/heads/topic", head.stdout.strip()], check=True)

    def refs() -> list[str]:
        return [pipeline["ref"] for pipeline in cells[1].api("GET", f"/projects/{project}/pipelines").json()]

    wait_until(lambda: "topic" in refs(), "the push is handled")
    wait_until(lambda: not list((folder / "pushes").iterdir()), "the file is removed")
    assert refs().count("topic") == 1


def test_a_commit_keeps_its_author_in_every_process(cells: list[ServedCell], monkeypatch: pytest.MonkeyPatch) -> None:
    project = cells[0].new_project("app", ONE_JOB)
    new = {"username": "ann", "name": "Ann", "email": "ann@example.com", "password": "long-enough-1"}
    user = cells[0].api("POST", "/users", new).json()["id"]
    member = {"user_id": user, "access_level": 30}
    assert cells[0].api("POST", f"/projects/{project}/members", member).status == 201
    token = cells[0].api("POST", f"/users/{user}/personal_access_tokens", {"name": "t", "scopes": ["api"]}).json()

    async def do_nothing(*_: object) -> None:
        """Stands for a process that dies after the commit."""

    file = {"action": "create", "file_path": "a", "content": "a"}
    body = {"branch": "topic", "start_branch": "main", "commit_message": "x", "actions": [file]}
    with monkeypatch.context() as patched:
        patched.setattr(projects.Projects, "act_on_refs", do_nothing)
        path = f"/projects/{project}/repository/commits"
        assert cells[0].send("POST", f"/api/v4{path}", body, PRIVATE_TOKEN=token["token"]).status == 201
    other = {"branch": "other", "start_branch": "main", "commit_message": "y", "actions": [file]}
    assert cells[1].api("POST", path, other).status == 201
    pipelines = {pipeline["ref"]: pipeline for pipeline in cells[2].api("GET", f"/projects/{project}/pipelines").json()}
    details = cells[2].api("GET", f"/projects/{project}/pipelines/{pipelines['topic']['id']}").json()
    assert details["user"]["username"] == "ann"


def test_the_preferred_runner_gets_the_job_wherever_it_waits(
    cells: list[ServedCell], runners: list[ScriptedRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority_delay, "DELAY_SECONDS", 3.0)  # long enough for a slow machine
    monkeypatch.setattr(handout, "OFFERS_SECONDS", 0.0)  # the preferred runner is created after the start
    project = cells[0].new_project("app")
    preferred = cells[1].new_runner()
    rows = cells[0].api("GET", "/runners/all").json()
    assert cells[0].api("PUT", f"/runners/{max(row['id'] for row in rows)}", {"priority": 5}).status == 200
    answers: dict[str, Answer] = {}

    def hold(name: str, runner: ScriptedRunner) -> Thread:
        runner.ask()
        poll = Thread(target=lambda: answers.setdefault(name, runner.ask(hold=True)), daemon=True)
        poll.start()
        runner.cell.until_metric("remuda_cell_held_polls 1.0")
        return poll

    usual = hold("usual", runners[0])
    better = hold("preferred", preferred)
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": "a: {script: [x]}\nb: {script: [x]}\n"}]
    body = {"branch": "main", "commit_message": "First", "actions": actions}
    # The process where the usual runner waits learns of the jobs first; the preferred one gets the first of them.
    assert cells[0].api("POST", f"/projects/{project}/repository/commits", body).status == 201
    better.join(30)
    usual.join(30)
    names = {name: answer.json()["job_info"]["name"] for name, answer in answers.items()}
    assert names == {"preferred": "a", "usual": "b"}
