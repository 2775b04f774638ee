"""Only maintainers create the first branch of a project: it is the default one, whose jobs get protected values."""

import hashlib
import struct
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.cells.people import Person, add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell
from tests.support.git_client import Clone

from remuda.testing.waiting import wait_until

PIPELINE = "build: {script: [env]}\n"
SECRET = {"key": "SECRET", "value": "of the branch", "protected": True}
NO_DEFAULT_BRANCH = "has no default branch yet"


@pytest.fixture
def group(cell: ServedCell) -> int:
    group_id = create_group(cell, "acme")
    assert cell.api("POST", f"/groups/{group_id}/variables", SECRET).status == 201
    return group_id


@pytest.fixture
def shop(cell: ServedCell, group: int) -> int:
    """A project without a commit."""
    return create_group_project(cell, group, "shop")


@pytest.fixture
def ada(cell: ServedCell, group: int) -> Person:
    """A developer."""
    person = create_person(cell, "ada")
    add_member(cell, f"groups/{group}", person, 30)
    return person


@pytest.fixture
def mia(cell: ServedCell, group: int) -> Person:
    """A maintainer."""
    person = create_person(cell, "mia")
    add_member(cell, f"groups/{group}", person, 40)
    return person


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    working_copy = Clone(tmp_path / "clone")
    working_copy.run("init", "--quiet", "--initial-branch=main", ".")
    working_copy.commit(**{".gitlab-ci.yml": PIPELINE})
    return working_copy


def put_refs(person: Person, project: int, **refs: str) -> Answer:
    body = {"refs": {f"refs/{name.replace('_', '/')}": sha for name, sha in refs.items()}}
    return person.cell.send("PUT", f"/api/remuda/v1/projects/{project}/refs", body, PRIVATE_TOKEN=person.token)


def branches(cell: ServedCell, project: int) -> list[str]:
    return [branch["name"] for branch in cell.api("GET", f"/projects/{project}/repository/branches").json()]


def test_no_developer_creates_the_first_branch(
    cell: ServedCell, shop: int, ada: Person, mia: Person, clone: Clone, runner: ScriptedRunner
) -> None:
    """The name does not matter: the first branch of a project becomes the default one."""
    sha = clone.run("rev-parse", "HEAD").stdout.strip()
    # Tags and merge requests get no protected variables, but their commits could become a branch.
    clone.run("push", "--quiet", ada.address("acme/shop"), "HEAD:refs/tags/v1", "HEAD:refs/merge-requests/1/head")
    root, message = f"/projects/{shop}/repository", {"commit_message": "First"}
    actions = [{"action": "create", "file_path": "a", "content": "a"}]
    for name in ("main", "side"):
        error = clone.run("push", ada.address("acme/shop"), f"HEAD:refs/heads/{name}", ok=False).stderr
        assert NO_DEFAULT_BRANCH in error, error
        for start in ({}, {"start_sha": sha}, {"start_branch": "v1"}):
            body = {"branch": name, "actions": actions, **message, **start}
            refused = [ada.api("POST", f"{root}/commits", body)]
            if "start_sha" not in start:
                file = {"branch": name, "content": "a", **message, **start}
                refused.append(ada.api("POST", f"{root}/files/a", file))
            refused.append(ada.api("POST", f"{root}/branches", {"branch": name, "ref": "v1"}))
            refused.append(put_refs(ada, shop, **{f"heads_{name}": sha, "tags_v2": sha}))
            for answer in refused:
                assert (answer.status, NO_DEFAULT_BRANCH in answer.body.decode()) == (403, True), answer
    assert branches(cell, shop) == []
    job = runner.take()
    assert "SECRET" not in [variable["key"] for variable in job["variables"]]
    assert runner.put(job, "success").status == 200
    clone.run("push", "--quiet", mia.address("acme/shop"), "HEAD:refs/heads/main")
    assert "SECRET" in [variable["key"] for variable in runner.take()["variables"]]
    clone.run("push", "--quiet", ada.address("acme/shop"), "HEAD:refs/heads/side")
    assert ada.api("POST", f"{root}/branches", {"branch": "more", "ref": "main"}).status == 201
    assert put_refs(ada, shop, heads_third=sha).status == 204


@pytest.mark.parametrize("way", ["git", "commits", "files", "branches", "refs"])
def test_maintainer_makes_branch(cell: ServedCell, shop: int, ada: Person, mia: Person, clone: Clone, way: str) -> None:
    sha = clone.run("rev-parse", "HEAD").stdout.strip()
    clone.run("push", "--quiet", ada.address("acme/shop"), "HEAD:refs/tags/v1")
    root, body = f"/projects/{shop}/repository", {"branch": "trunk", "commit_message": "First"}
    match way:
        case "git":
            clone.run("push", "--quiet", mia.address("acme/shop"), "HEAD:refs/heads/trunk")
        case "commits":
            actions = [{"action": "create", "file_path": "a", "content": "a"}]
            assert mia.api("POST", f"{root}/commits", {**body, "actions": actions}).status == 201
        case "files":
            assert mia.api("POST", f"{root}/files/a", {**body, "content": "a"}).status == 201
        case "branches":
            assert mia.api("POST", f"{root}/branches", {"branch": "trunk", "ref": "v1"}).status == 201
        case "refs":
            assert put_refs(mia, shop, heads_trunk=sha).status == 204
    assert cell.api("GET", f"/projects/{shop}").json()["default_branch"] == "trunk"
    clone.commit(file="x")
    assert (
        NO_DEFAULT_BRANCH not in clone.run("push", "--force", ada.address("acme/shop"), "HEAD:trunk", ok=False).stderr
    )


def test_a_developers_push_creates_no_project(cell: ServedCell, ada: Person, mia: Person, clone: Clone) -> None:
    """The project would stay empty; empty projects are created by the API."""
    error = clone.run("push", ada.address("acme/new"), "HEAD:main", ok=False).stderr
    assert "maintainer" in error, error
    assert cell.api("GET", "/projects/acme%2Fnew").status == 404
    clone.run("push", "--quiet", mia.address("acme/new"), "HEAD:main")
    clone.run("push", "--quiet", ada.address("ada/own"), "HEAD:main")
    assert branches(cell, cell.api("GET", "/projects/ada%2Fown").json()["id"]) == ["main"]


def test_a_push_that_was_begun_before_its_branch_was_protected_runs_nothing(
    cell: ServedCell, shop: int, ada: Person, mia: Person, clone: Clone, runner: ScriptedRunner
) -> None:
    clone.run("push", "--quiet", mia.address("acme/shop"), "HEAD:main")
    assert runner.put(runner.take(), "success").status == 200
    first = clone.run("rev-parse", "HEAD").stdout.strip()
    second = clone.commit(file="x")
    clone.run("push", "--quiet", ada.address("acme/shop"), f"{first}:refs/heads/next", f"{second}:refs/tags/v1")
    for _ in range(2):
        assert runner.put(runner.take(), "success").status == 200
    cell.until_pipelines(3, "acme/shop")
    command = f"{first} {second} refs/heads/next\0 report-status"
    pack = b"PACK" + struct.pack(">II", 2, 0)
    body = f"{len(command) + 4:04x}{command}0000".encode() + pack + hashlib.sha1(pack).digest()
    with closing(cell.connect()) as connection:
        connection.putrequest("POST", "/acme/shop.git/git-receive-pack")
        connection.putheader("PRIVATE-TOKEN", ada.token)
        connection.putheader("Content-Type", "application/x-git-receive-pack-request")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:10])
        pushes = cell.settings.data / "repos" / "pushes"
        wait_until(lambda: any(pushes.iterdir()), "the push has begun")
        assert mia.api("PUT", f"/projects/{shop}", {"default_branch": "next"}).status == 200
        connection.send(body[10:])
        assert b"ok refs/heads/next" in connection.getresponse().read()
    pipeline = cell.until_pipelines(4, "acme/shop")[0]
    assert (pipeline["ref"], pipeline["status"]) == ("next", "failed")
    details = cell.api("GET", f"/projects/{shop}/pipelines/{pipeline['id']}").json()
    assert "sufficient permission to run a pipeline on 'next'" in details["yaml_errors"]
    assert runner.ask().status == 204
