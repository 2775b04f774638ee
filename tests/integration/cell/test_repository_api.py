"""Files, folders, branches and tags over the API, mainly what is refused; the python-gitlab tour covers the rest."""

import subprocess
from typing import Any

import gitlab
import pytest
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

PIPELINE = "job:\n  script: [echo]\n"


def test_single_files(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("files", **{"dir/a b.txt": "one"}))
    file = project.files.get(file_path="dir/a b.txt", ref="main")
    assert (file.file_name, file.size, file.decode()) == ("a b.txt", 3, b"one")
    assert file.last_commit_id == file.commit_id == project.commits.get("main").id
    project.files.update(
        "dir/a b.txt",
        {"branch": "main", "content": "AAE=", "encoding": "base64", "commit_message": "x", "execute_filemode": True},
    )
    file = project.files.get(file_path="dir/a b.txt", ref="HEAD")
    assert (file.decode(), file.execute_filemode) == (b"\x00\x01", True)
    assert len(project.commits.list(query_parameters={"path": "dir"}, get_all=True)) == 2
    assert project.commits.list(query_parameters={"path": "elsewhere"}, get_all=True) == []
    root = f"/projects/{project.id}/repository/files"
    new = {"branch": "main", "commit_message": "x", "content": "y"}
    for method, path, body, status in (
        ("GET", "dir", None, 404),
        ("GET", "missing", None, 404),
        ("GET", "dir%2Fa%20b.txt?ref=nowhere", None, 404),
        ("GET", "%2E%2E%2Fetc", None, 404),
        ("POST", "dir%2Fa%20b.txt", new, 400),
        ("PUT", "missing", new, 400),
        ("POST", ".git%2Fconfig", new, 400),
        ("POST", "new", {"branch": "main"}, 400),
        ("POST", "new", new | {"commit_message": " "}, 400),
        ("DELETE", "missing?branch=main&commit_message=x", None, 400),
    ):
        answer = cell.api(method, f"{root}/{path}", body)
        assert answer.status == status, (method, path, answer)


def test_the_head_of_a_file_has_its_metadata(cell: ServedCell, client: gitlab.Gitlab) -> None:
    """Clients find out with HEAD whether a file has changed, without its content."""
    project = client.projects.get(cell.new_project("files", **{"dir/é 100%.txt": "one"}))
    file = project.files.get(file_path="dir/é 100%.txt", ref="main")
    headers = {name.lower(): value for name, value in project.files.head("dir/é 100%.txt", "main").items()}
    expected = {
        "blob-id": file.blob_id,
        "commit-id": file.commit_id,
        "last-commit-id": file.last_commit_id,
        "content-sha256": file.content_sha256,
        "encoding": "base64",
        "execute-filemode": "false",
        "file-name": "%C3%A9 100%25.txt",
        "file-path": "dir/%C3%A9 100%25.txt",
        "ref": "main",
        "size": "3",
    }
    assert {name: headers[f"x-gitlab-{name}"] for name in expected} == expected
    assert "x-gitlab-content" not in headers


def test_a_change_of_a_file_that_somebody_else_changed_is_refused(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("files", a="one"))
    seen = project.files.get("a", "main").last_commit_id
    change = {"branch": "main", "commit_message": "x", "content": "two", "last_commit_id": seen}
    project.files.update("a", change)
    root = f"/projects/{project.id}/repository/files/a"
    refused = cell.api("PUT", root, change | {"content": "three"})
    assert refused.status == 400
    assert "was changed by commit" in refused.json()["message"]
    assert cell.api("DELETE", root, change).status == 400
    assert project.files.get("a", "main").decode() == b"two"
    newest = project.files.get("a", "main").last_commit_id
    assert cell.api("DELETE", root, change | {"last_commit_id": newest}).status == 204


@pytest.mark.parametrize("kind", ["update", "delete", "move", "chmod"])
def test_an_action_on_a_file_that_somebody_else_changed_is_refused(
    cell: ServedCell, client: gitlab.Gitlab, kind: str
) -> None:
    project = client.projects.get(cell.new_project("files", a="one"))
    seen = project.files.get("a", "main").last_commit_id
    project.files.update("a", {"branch": "main", "commit_message": "x", "content": "two"})
    action = {"action": kind, "file_path": "a", "content": "three", "last_commit_id": seen}
    if kind == "move":
        action |= {"file_path": "b", "previous_path": "a"}
    commit = {"branch": "main", "commit_message": "y", "actions": [action]}
    root = f"/projects/{project.id}/repository/commits"
    refused = cell.api("POST", root, commit)
    assert refused.status == 400
    assert "a was changed by commit" in refused.json()["message"]
    assert project.files.get("a", "main").decode() == b"two"
    action["last_commit_id"] = project.files.get("a", "main").last_commit_id
    made = cell.api("POST", root, commit)
    assert (made.status, made.headers["X-Remuda-Ignored"]) == (201, None)
    again = cell.api("POST", root, commit)
    if kind in ("update", "delete", "move"):
        assert (again.status, again.json()["id"]) == (201, made.json()["id"]), "a repeated request makes no new commit"


def test_a_commit_from_another_project_is_refused(cell: ServedCell) -> None:
    project = cell.new_project("files", a="one")
    commit = {"branch": "main", "commit_message": "y", "actions": [], "start_project": "other/project"}
    refused = cell.api("POST", f"/projects/{project}/repository/commits", commit)
    assert (refused.status, refused.json()["error"].split()[0]) == (400, "start_project")


def test_a_commit_shows_its_last_pipeline(cell: ServedCell, client: gitlab.Gitlab, runner: ScriptedRunner) -> None:
    project = client.projects.get(cell.new_project("app", PIPELINE))
    commit = project.commits.get("main")
    [pipeline] = project.pipelines.list(get_all=True)
    assert (commit.status, commit.project_id, commit.last_pipeline["id"]) == ("pending", project.id, pipeline.id)
    assert set(commit.last_pipeline) >= {"iid", "project_id", "sha", "ref", "status", "source", "web_url"}
    runner.put(runner.take(), "success")
    assert project.commits.get(commit.id).status == "success"
    newer = project.pipelines.create({"ref": "main"})
    assert project.commits.get(commit.id).last_pipeline["id"] == newer.id
    assert "last_pipeline" not in project.commits.list(get_all=True)[0].attributes


def test_a_commit_without_pipeline(cell: ServedCell, client: gitlab.Gitlab) -> None:
    commit = client.projects.get(cell.new_project("app", a="1")).commits.get("main")
    assert (commit.status, commit.last_pipeline) == (None, None)


def test_what_commits_change(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("app", **{"a.txt": "one\n", "b.txt": "x\n"}))
    first = project.commits.get("main")
    [added, _] = first.diff()
    assert (added["new_path"], added["new_file"], added["diff"]) == ("a.txt", True, "@@ -0,0 +1 @@\n+one\n")
    project.files.update("a.txt", {"branch": "main", "content": "two\n", "commit_message": "Change"})
    project.branches.create({"branch": "side", "ref": first.id})
    project.files.create({"file_path": "c", "branch": "side", "content": "c\n", "commit_message": "Side"})
    project.tags.create({"tag_name": "v1", "ref": first.id})
    [changed] = project.commits.get("main").diff()
    assert (changed["diff"], changed["a_mode"]) == ("@@ -1 +1 @@\n-one\n+two\n", "100644")
    assert first.refs() == [
        {"type": "branch", "name": "main"},
        {"type": "branch", "name": "side"},
        {"type": "tag", "name": "v1"},
    ]
    assert project.commits.get("side").refs("branch") == [{"type": "branch", "name": "side"}]
    assert project.commits.get("main").sequence() == {"count": 2}
    compared = project.repository_compare("main", "side")
    assert isinstance(compared, dict)
    assert [commit["title"] for commit in compared["commits"]] == ["Side"]
    assert compared["commit"]["title"] == "Side"
    assert [file["new_path"] for file in compared["diffs"]] == ["c"]
    straight = cell.api("GET", f"/projects/{project.id}/repository/compare?from=main&to=side&straight=true").json()
    assert [file["new_path"] for file in straight["diffs"]] == ["a.txt", "c"]
    same = cell.api("GET", f"/projects/{project.id}/repository/compare?from=main&to=main").json()
    assert (same["compare_same_ref"], same["commits"], same["diffs"], same["commit"]) == (True, [], [], None)
    for query in ("compare?from=main", "compare?from=main&to=nowhere", "commits/nowhere/diff", "commits/-p/refs"):
        assert cell.api("GET", f"/projects/{project.id}/repository/{query}").status in (400, 404), query


def test_commits_by_time_author_and_path(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("app", **{"a.txt": "one\n"}))
    for name, author in (("b", "Ann (Lab)"), ("c", "Bob")):
        change = {"file_path": f"{name}.txt", "content": f"{name}\n", "commit_message": name, "author_name": author}
        project.files.create({**change, "branch": "main", "author_email": f"{name}@example.com"})
    project.branches.create({"branch": "side", "ref": "main"})
    project.files.create({"file_path": "d.txt", "branch": "side", "content": "d\n", "commit_message": "d"})

    def titles(**query: Any) -> list[str]:
        rows = project.commits.list(iterator=True, query_parameters=query)
        assert isinstance(rows, gitlab.base.RESTObjectList)
        titles = [row.title for row in rows]
        assert rows.total == len(titles)
        return titles

    assert titles() == ["c", "b", "First commit"]
    assert titles(author="Ann (Lab)") == titles(author="b@example.com") == ["b"]
    assert titles(author="A.n") == []
    assert titles(since="2020-01-01T00:00:00Z", until="2999-01-01") == ["c", "b", "First commit"]
    assert titles(since="2999-01-01T00:00:00Z") == titles(until="2020-01-01T00:00:00Z") == []
    assert titles(author="Bob", path="b.txt") == []
    # Commits of one second on several branches have no order of their own.
    assert sorted(titles(all="true")) == ["First commit", "b", "c", "d"]
    assert cell.api("GET", f"/projects/{project.id}/repository/commits?since=yesterday").status == 400


def test_how_much_commits_change(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("app", **{"a.txt": "one\ntwo\n"}))
    project.files.update("a.txt", {"branch": "main", "content": "one\n2\nthree\n", "commit_message": "Change"})
    shown = project.commits.get("main")
    assert shown.stats == {"additions": 2, "deletions": 1, "total": 3}
    assert not hasattr(project.commits.get("main", stats=False), "stats")
    assert "stats" not in project.commits.list(get_all=True)[0].attributes
    listed = [row.stats["total"] for row in project.commits.list(get_all=True, with_stats=True)]
    assert listed[0] == 3
    assert listed[-1] >= 2, "the first commit counts, too"


def test_search_of_branches_and_tags(cell: ServedCell, client: gitlab.Gitlab) -> None:
    """As in GitLab: without regard to case; ^ and $ at the ends mean begin and end."""
    project = client.projects.get(cell.new_project("refs", PIPELINE))
    for name in ("Feature/a", "my-feature"):
        project.branches.create({"branch": name, "ref": "main"})
        project.tags.create({"tag_name": name, "ref": "main"})
    for manager in (project.branches, project.tags):
        for text, names in {"fEAT": 2, "^feat": 1, "feature$": 1, "^main$": 0, "x": 0}.items():
            assert len(manager.list(search=text, get_all=True)) == names, (manager, text)


def test_a_large_file(cell: ServedCell, client: gitlab.Gitlab) -> None:
    content = "0123456789abcdef" * 80_000
    project = client.projects.get(cell.new_project("large", **{"dir/large": content}))
    assert project.files.get(file_path="dir/large", ref="main").decode() == content.encode()
    assert project.files.raw(file_path="dir/large", ref="main") == content.encode()


def test_folders(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("tree", **{"a": "1", "dir/b": "2", "dir/in/c": "3", "*": "4"}))

    def names(**query: Any) -> list[str]:
        return [entry["path"] for entry in project.repository_tree(get_all=True, **query)]

    assert names() == ["dir", "*", "a"]
    assert names(path="dir") == ["dir/in", "dir/b"]
    assert names(path="dir/", recursive=True) == ["dir/in", "dir/b", "dir/in/c"]
    assert len(list(project.repository_tree(recursive=True, per_page=2, iterator=True))) == 6
    with pytest.raises(gitlab.GitlabGetError, match="404 Tree Not Found"):
        names(path="*r")
    empty = client.projects.get(cell.new_project("empty"))
    assert empty.repository_tree(get_all=True) == []
    assert empty.tags.list(get_all=True) == []


def test_branches_and_tags(cell: ServedCell, client: gitlab.Gitlab) -> None:
    project = client.projects.get(cell.new_project("refs", PIPELINE))
    for wrong in ({"branch": "main", "ref": "main"}, {"branch": "a..b", "ref": "main"}, {"branch": "x", "ref": "none"}):
        with pytest.raises(gitlab.GitlabCreateError) as refused:
            project.branches.create(wrong)
        assert refused.value.response_code == 400
    project.branches.create({"branch": "side", "ref": "main"})
    assert [row["ref"] for row in cell.until_pipelines(2, "root/refs")] == ["side", "main"]
    with pytest.raises(gitlab.GitlabDeleteError) as protected:
        project.branches.delete("main")
    assert protected.value.response_code == 403
    project.branches.delete("side")
    with pytest.raises(gitlab.GitlabDeleteError) as missing:
        project.branches.delete("side")
    assert missing.value.response_code == 404

    lightweight = project.tags.create({"tag_name": "v1", "ref": "main"})
    annotated = project.tags.create({"tag_name": "v2", "ref": "v1", "message": "Two\n\nlines"})
    assert (lightweight.message, lightweight.target) == (None, lightweight.commit["id"])
    assert (annotated.message, annotated.commit["id"]) == ("Two\n\nlines", lightweight.commit["id"])
    assert annotated.target != annotated.commit["id"]
    assert [row.name for row in project.tags.list(get_all=True)] == ["v2", "v1"]
    assert [row.name for row in project.tags.list(search="1", get_all=True)] == ["v1"]
    with pytest.raises(gitlab.GitlabCreateError, match="already exists"):
        project.tags.create({"tag_name": "v1", "ref": "main"})
    project.releases.create({"tag_name": "v2", "description": "out"})
    project.tags.delete("v2")
    assert project.releases.list(get_all=True) == []


def test_a_deleted_pipeline_leaves_nothing(cell: ServedCell, client: gitlab.Gitlab, runner: ScriptedRunner) -> None:
    project = client.projects.get(cell.new_project("gone", PIPELINE))
    job = runner.take()
    runner.patch(job, 0, b"a line\n")
    runner.upload(job, b"PK\x05\x06" + bytes(18))
    [pipeline] = project.pipelines.list(get_all=True)
    person = client.users.create({"username": "dev", "name": "Dev", "email": "dev@example.com"})
    token = person.personal_access_tokens.create({"name": "x", "scopes": ["api"]}).token
    project.members.create({"user_id": person.id, "access_level": 40})
    target = f"/api/v4/projects/{project.id}/pipelines/{pipeline.id}"
    assert cell.send("DELETE", target, PRIVATE_TOKEN=token).status == 403

    address = cell.url.replace("://", f"://x:{cell.token}@")
    list_refs = ["git", "ls-remote", f"{address}/root/gone.git", "refs/pipelines/*"]
    assert f"refs/pipelines/{pipeline.id}" in subprocess.check_output(list_refs, text=True)
    pipeline.delete()
    assert subprocess.check_output(list_refs, text=True) == ""
    assert project.pipelines.list(get_all=True) == []
    assert project.jobs.list(get_all=True) == []
    assert cell.api("GET", f"/projects/{project.id}/jobs/{job['id']}").status == 404
    # For the runner that still has the job it does not exist any more.
    assert runner.put(job, "success").status == 403
    assert runner.patch(job, 7, b"more\n").status == 403
    assert runner.ask().status == 204
    assert cell.send("DELETE", target, PRIVATE_TOKEN=cell.token).status == 404
    assert project.pipelines.create({"ref": "main"}).status == "pending"
    assert runner.take()["id"] > job["id"]


def test_keyset_pagination(cell: ServedCell, client: gitlab.Gitlab) -> None:
    for number in range(7):
        cell.new_project(f"p{number}")

    def walk(**query: object) -> list[int]:
        projects = client.projects.list(iterator=True, pagination="keyset", order_by="id", per_page=3, **query)
        return [project.id for project in projects]

    ids = [project.id for project in client.projects.list(get_all=True)]
    assert walk() == ids
    assert walk(sort="asc") == ids[::-1]
    assert walk(search="p1") == [project.id for project in client.projects.list(search="p1", get_all=True)]
    assert [project.id for project in client.projects.list(order_by="id", sort="asc", get_all=True)] == ids[::-1]
    assert [user.id for user in client.users.list(iterator=True, pagination="keyset", order_by="id")] == [1]
    first = cell.api("GET", "/projects?pagination=keyset&order_by=id&per_page=3")
    assert "X-Total" not in first.headers
    assert f"id_before={ids[2]}" in first.headers["Link"]
    refused = cell.api("GET", "/groups?pagination=keyset")
    assert refused.status == 405
    assert refused.json() == {"error": "Keyset pagination is not yet available for this type of request"}


def test_names_that_git_cannot_store_are_refused_with_clear_messages(cell: ServedCell) -> None:
    cell.new_project("app", PIPELINE)
    assert cell.api("POST", "/projects/1/repository/branches", {"branch": "a/b", "ref": "main"}).status == 201
    assert cell.api("POST", "/projects/1/repository/tags", {"tag_name": "v1", "ref": "main"}).status == 201
    sha = cell.api("GET", "/projects/1/repository/branches/main").json()["commit"]["id"]
    action = {"action": "create", "file_path": "file", "content": "x"}

    def create(kind: str, name: str) -> Answer:
        match kind:
            case "branch":
                return cell.api("POST", "/projects/1/repository/branches", {"branch": name, "ref": "main"})
            case "commit":
                body = {"branch": name, "start_branch": "main", "commit_message": "x", "actions": [action]}
                return cell.api("POST", "/projects/1/repository/commits", body)
            case "tag":
                return cell.api("POST", "/projects/1/repository/tags", {"tag_name": name, "ref": "main"})
            case "message":
                body = {"tag_name": name, "ref": "main", "message": "x"}
                return cell.api("POST", "/projects/1/repository/tags", body)
            case "release":
                return cell.api("POST", "/projects/1/releases", {"tag_name": name, "ref": "main"})
            case _:
                refs = {f"refs/{kind}/{name}": sha}
                url = "/api/remuda/v1/projects/1/refs"
                return cell.send("PUT", url, {"refs": refs}, PRIVATE_TOKEN=cell.token)

    for kind, name, message in [
        ("branch", "main/x", "Failed to create branch 'main/x': Branch name conflicts with existing branch hierarchy."),
        ("branch", "a", "Failed to create branch 'a': Branch name conflicts with existing branch hierarchy."),
        ("branch", "x" * 255, "Branch name is invalid"),
        ("branch", "ä" * 200, "Branch name is invalid"),
        ("commit", "main/x", "Branch name conflicts with existing branch hierarchy."),
        ("commit", "a", "Branch name conflicts with existing branch hierarchy."),
        ("commit", "x" * 255, "is no name for a branch"),
        ("tag", "v1/x", "Failed to create tag 'v1/x': Tag name conflicts with existing tag hierarchy."),
        ("tag", "x" * 255, "Tag name is invalid"),
        ("message", "v1/x", "Tag name conflicts with existing tag hierarchy."),
        ("message", "x" * 255, "Tag name is invalid"),
        ("release", "v1/x", "Tag name conflicts with existing tag hierarchy."),
        ("release", "x" * 255, "is no name for a tag"),
        ("heads", "main/x", "Branch name conflicts with existing branch hierarchy."),
        ("tags", "v1/x", "Tag name conflicts with existing tag hierarchy."),
        ("heads", "x" * 255, "refs is invalid"),
    ]:
        answer = create(kind, name)
        text = answer.body.decode()
        assert answer.status == (422 if kind == "release" else 400), (kind, name, answer)
        assert message in text, (kind, name, text)
        assert "git " not in text, (kind, name, text)
        assert str(cell.settings.data) not in text, (kind, name, text)
    assert create("branch", "x" * 250).status == 201
    refs = {"refs/heads/new": sha, "refs/heads/new/x": sha}
    both = cell.send("PUT", "/api/remuda/v1/projects/1/refs", {"refs": refs}, PRIVATE_TOKEN=cell.token)
    assert (both.status, "conflicts with existing branch hierarchy" in both.body.decode()) == (400, True), both


def test_errors_of_git_do_not_reveal_the_path_of_the_repository(cell: ServedCell) -> None:
    cell.new_project("app", PIPELINE)
    [heads] = (cell.settings.data / "repos").glob("*/*.git/refs/heads")
    (heads / "side.lock").touch()
    refused = cell.api("POST", "/projects/1/repository/branches", {"branch": "side", "ref": "main"})
    assert "side.lock" in refused.body.decode()
    assert str(cell.settings.data) not in refused.body.decode()


def test_a_file_as_text(cell: ServedCell) -> None:
    project = cell.new_project("files", **{"a b.txt": "one\n", "dir/large.txt": "x" * (1024 * 1024 + 1)})
    actions = [
        {"action": "create", "file_path": "x.bin", "content": "AAE=", "encoding": "base64"},
        {"action": "create", "file_path": "latin.txt", "content": "6Q==", "encoding": "base64"},
    ]
    body = {"branch": "main", "commit_message": "More", "actions": actions}
    last = cell.api("POST", f"/projects/{project}/repository/commits", body).json()["id"]

    def read(query: str) -> Answer:
        return cell.send("GET", f"/api/remuda/v1/projects/{project}/repository/text?{query}", PRIVATE_TOKEN=cell.token)

    text = read("path=a%20b.txt").json()
    assert (text["text"], text["size"], text["binary"], text["commit_id"]) == ("one\n", 4, False, last)
    assert text["last_commit_id"] != last
    assert (read("path=x.bin&ref=main").json()["text"], read("path=x.bin").json()["binary"]) == (None, True)
    assert read("path=latin.txt").json()["text"] == "\ufffd"
    large = read("path=dir%2Flarge.txt").json()
    assert (large["text"], large["size"], "binary" in large) == (None, 1024 * 1024 + 1, False)
    for query, status in (("path=dir", 404), ("path=no", 404), ("path=a&ref=no", 404), ("", 400), ("path=a%00", 400)):
        assert read(query).status == status, query


def test_branches_are_listed_in_pages_with_addresses_of_pages(cell: ServedCell) -> None:
    project = cell.new_project("app", PIPELINE)
    for name in ("a#1", "b/c", "d%20"):
        created = cell.api("POST", f"/projects/{project}/repository/branches", {"branch": name, "ref": "main"})
        assert created.status == 201, created
    answer = cell.api("GET", f"/projects/{project}/repository/branches?per_page=2&page=1")
    assert answer.headers["X-Total"] == "4"
    assert [branch["web_url"].partition("/-/")[2] for branch in answer.json()] == ["tree/a%231", "tree/b/c"]
    names = [branch["name"] for branch in cell.api("GET", f"/projects/{project}/repository/branches").json()]
    assert names == ["a#1", "b/c", "d%20", "main"]
