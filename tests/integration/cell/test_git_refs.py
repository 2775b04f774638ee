"""Which refs a push may update, and that existing replace refs and tags do not affect other refs."""

import hashlib
import io
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest
from tests.support.cells.people import Person, add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell, commit_file
from tests.support.git_client import Clone

PIPELINE = "honest: {script: [echo]}\n"
EVIL = "evil: {script: [env]}\n"
PROJECT = "/projects/acme%2Fshop"
BRANCH = f"{PROJECT}/protected_branches/main"
ZERO_SHA = "0" * 40


@pytest.fixture
def shop(cell: ServedCell) -> int:
    project = create_group_project(cell, create_group(cell, "acme"), "shop", PIPELINE)
    cell.until_pipelines(1, "acme/shop")
    return project


@pytest.fixture
def ada(cell: ServedCell, shop: int) -> Person:
    person = create_person(cell, "ada")
    add_member(cell, f"projects/{shop}", person, 30)
    return person


@pytest.fixture
def clone(ada: Person, tmp_path: Path) -> Clone:
    """A developer's working copy."""
    working_copy = Clone(tmp_path / "clone")
    working_copy.run("clone", "--quiet", ada.address("acme/shop"), ".")
    return working_copy


@pytest.fixture
def repository(cell: ServedCell, shop: int) -> Path:
    """The bare repository in the cell's folder."""
    [path] = (cell.settings.data / "repos").glob("*/*.git")
    return path


def address(cell: ServedCell) -> str:
    """The project's URL for the administrator."""
    return f"{cell.url.replace('://', f'://root:{cell.token}@')}/acme/shop.git"


def packet(text: str) -> bytes:
    return f"{len(text.encode()) + 4:04x}{text}".encode()


def push_raw(person: Person, *commands: str, options: tuple[str, ...] = (), shallow: str = "") -> Answer:
    """Send a push that git itself would refuse to send: raw command lines, and a pack without objects."""
    capabilities = " report-status" + (" push-options" if options else "")
    first, *more = commands
    body = packet(f"shallow {shallow}") if shallow else b""
    body += packet(f"{first}\0{capabilities}") + b"".join(packet(line) for line in more) + b"0000"
    body += b"".join(packet(option) for option in options) + (b"0000" if options else b"")
    pack = b"PACK" + struct.pack(">II", 2, 0)
    return person.cell.send(
        "POST",
        "/acme/shop.git/git-receive-pack",
        body + pack + hashlib.sha1(pack).digest(),
        PRIVATE_TOKEN=person.token,
        Content_Type="application/x-git-receive-pack-request",
    )


def refs_in(repository: Path) -> set[str]:
    listed = Clone(repository.parent).run("--git-dir", str(repository), "for-each-ref", "--format=%(refname)").stdout
    return {name for name in listed.split("\n") if name}


def jobs_of_new_pipeline(cell: ServedCell) -> list[str]:
    created = cell.api("POST", f"{PROJECT}/pipeline", {"ref": "main"})
    assert created.status == 201, created
    return [job["name"] for job in cell.api("GET", f"{PROJECT}/pipelines/{created.json()['id']}/jobs").json()]


def test_a_replaced_pipeline_file_cannot_be_pushed(cell: ServedCell, clone: Clone, repository: Path) -> None:
    evil = clone.run("hash-object", "-w", "--stdin", stdin=EVIL).stdout.strip()
    honest = clone.run("rev-parse", "HEAD:.gitlab-ci.yml").stdout.strip()
    clone.run("push", "origin", f"{evil}:refs/replace/{honest}", ok=False)
    assert not any(ref.startswith("refs/replace") for ref in refs_in(repository))
    assert jobs_of_new_pipeline(cell) == ["honest"]


@pytest.mark.parametrize("kind", ["blob", "tree", "commit"])
def test_existing_replace_refs_are_ignored(
    cell: ServedCell, clone: Clone, repository: Path, runner: ScriptedRunner, tmp_path: Path, kind: str
) -> None:
    evil = clone.commit(**{".gitlab-ci.yml": EVIL})
    clone.run("push", "--quiet", "origin", "HEAD:side")
    expression = {"blob": ":.gitlab-ci.yml", "tree": "^{tree}", "commit": ""}[kind]
    replaced, replacement = (clone.run("rev-parse", f"{name}{expression}").stdout.strip() for name in ("HEAD~", evil))
    clone.run("--git-dir", str(repository), "update-ref", f"refs/replace/{replaced}", replacement)
    clone.run("--git-dir", str(repository), "pack-refs", "--all")
    assert jobs_of_new_pipeline(cell) == ["honest"]
    response = cell.api("GET", f"{PROJECT}/repository/files/.gitlab-ci.yml/raw?ref=main")
    assert (response.status, response.body.decode()) == (200, PIPELINE)
    lint = cell.api("GET", f"{PROJECT}/ci/lint?content_ref=main").json()
    assert "honest" in lint["merged_yaml"]
    commits = cell.api("GET", f"{PROJECT}/repository/commits?ref_name=main").json()
    assert [commit["title"] for commit in commits] == ["First"]
    # A mirror clone does not get the replace refs either.
    copy = Clone(tmp_path / "copy")
    copy.run("clone", "--quiet", "--mirror", address(cell), ".")
    assert "refs/replace" not in copy.run("for-each-ref").stdout
    assert copy.run("cat-file", "blob", "main:.gitlab-ci.yml").stdout == PIPELINE


REFUSED_REFS = (
    "refs/notes/commits",
    "refs/keep-around/{sha}",
    "refs/remotes/origin/main",
    "refs/environments/production",
    "refs/stash",
    "refs/bisect/bad",
    "refs/compared/x",
    "refs/Heads/main",
    "refs/headsx/main",
    "refs/merge-requests/1/head/x",
    "refs/merge-requests/x/head",
    "refs/merge-requests/1/main",
    "refs/heads/HEAD",
    "refs/heads/{sha}",
    "refs/tags/{sha}",
    "refs/tags/HEAD",
    "refs/heads/refs/heads/main",
    "refs/tags/refs/heads/main",
    "refs/heads/-main",
)


def test_pushes_go_to_branches_tags_and_merge_requests(cell: ServedCell, clone: Clone, repository: Path) -> None:
    sha = clone.run("rev-parse", "HEAD").stdout.strip()
    before = refs_in(repository)
    for number, name in enumerate(REFUSED_REFS):
        ref = name.format(sha=sha)
        # The rules for administrators are the same.
        refused = clone.run("push", "origin" if number % 2 else address(cell), f"HEAD:{ref}", "HEAD:side", ok=False)
        assert f"{ref} cannot be pushed; push to a branch" in refused.stderr, "the error says which refs are accepted"
    assert refs_in(repository) == before
    assert not list(repository.glob("push-notes/*"))


def test_the_refs_endpoint_refuses_the_same_names(cell: ServedCell, shop: int, repository: Path) -> None:
    sha = cell.api("GET", f"/projects/{shop}/repository/branches/main").json()["commit"]["id"]
    before = refs_in(repository)
    for name in (*REFUSED_REFS, "refs/heads/../replace/{sha}", f"refs/replace/{sha}", "refs/pipelines/77"):
        body = {"refs": {name.format(sha=sha): sha}}
        answer = cell.send("PUT", f"/api/remuda/v1/projects/{shop}/refs", body, PRIVATE_TOKEN=cell.token)
        assert answer.status == 400, (name, answer)
        branch = {"branch": name.format(sha=sha).removeprefix("refs/heads/"), "ref": "main"}
        if "refs/heads/" in name:
            assert cell.api("POST", f"/projects/{shop}/repository/branches", branch).status == 400, name
    assert refs_in(repository) == before


def test_accepted_pushes(clone: Clone, repository: Path) -> None:
    names = ["refs/heads/a/b", "refs/heads/abc1234", "refs/heads/HEADS", "refs/tags/v1", "refs/merge-requests/12/head"]
    pushed = clone.run(
        "push", "--quiet", "origin", *(f"HEAD:{name}" for name in [*names, "refs/merge-requests/12/merge"])
    )
    assert "hint" not in pushed.stderr
    assert set(names) < refs_in(repository)
    clone.run("push", "--quiet", "origin", *(f":{name}" for name in names))
    assert not set(names) & refs_in(repository)


def test_existing_refs_with_refused_names_can_be_removed(clone: Clone, repository: Path) -> None:
    sha = clone.run("rev-parse", "HEAD").stdout.strip()
    for name in (f"refs/heads/{sha}", "refs/notes/commits"):
        clone.run("--git-dir", str(repository), "update-ref", name, sha)
        clone.run("push", "origin", f":{name}")
        assert name not in refs_in(repository)


STRANGE_REFS = (
    "refs/heads/../replace/{sha}",
    "refs/heads/x/../../replace/{sha}",
    "HEAD",
    "refs/heads/x\n{old} {sha} refs/heads/main",
    "refs/heads/x\nrefs/heads/y",
    "refs/heads/x.lock",
    "refs/heads/x\r",
    "config",
    "objects/info/alternates",
    "info/grafts",
    "shallow",
    "refs/heads/main/x",
    "refs/heads/ main",
    " refs/heads/main",
    "refs//heads/main",
)


def test_strange_names_on_the_wire(cell: ServedCell, clone: Clone, ada: Person, repository: Path) -> None:
    sha = clone.run("rev-parse", "HEAD").stdout.strip()
    before, files = refs_in(repository), {path.name for path in repository.iterdir()}
    for name in STRANGE_REFS:
        answer = push_raw(ada, f"{ZERO_SHA} {sha} {name.format(sha=sha, old=ZERO_SHA)}")
        assert answer.status in (200, 403), (name, answer)
        assert b"ok refs/" not in answer.body, (name, answer)
        assert refs_in(repository) == before, name
    assert {path.name for path in repository.iterdir()} - files <= {"push-notes"}
    assert not (repository / "objects/info/alternates").exists()
    assert jobs_of_new_pipeline(cell) == ["honest"]


def test_push_from_shallow_clone_cuts_no_history(cell: ServedCell, clone: Clone, ada: Person, repository: Path) -> None:
    sha = clone.run("rev-parse", "HEAD").stdout.strip()
    push_raw(ada, f"{ZERO_SHA} {sha} refs/heads/cut", shallow=sha)
    assert not (repository / "shallow").exists()
    assert jobs_of_new_pipeline(cell) == ["honest"]


SIGNATURES = ("PGP SIGNATURE", "SIGNED MESSAGE", "SSH SIGNATURE")


def test_a_signed_push_runs_no_other_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git would have the signature checked by programs that read what the client sent."""
    programs, ran = tmp_path / "programs", tmp_path / "ran"
    programs.mkdir()
    for name in ("gpg", "gpgsm", "ssh-keygen"):
        (programs / name).write_text(f'#!/bin/sh\necho "$0" >>{ran}\nexit 1\n')
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with ServedCell(tmp_path / "cell") as cell:
        shop = create_group_project(cell, create_group(cell, "acme"), "shop", PIPELINE)
        sha = cell.api("GET", f"/projects/{shop}/repository/branches/main").json()["commit"]["id"]
        root = Person(cell, 1, "root", cell.token)
        for number, kind in enumerate(SIGNATURES):
            head = ("certificate version 0.1", "pusher x <x> 1 +0000", "nonce x", "")
            lines = (
                *head,
                f"{ZERO_SHA} {sha} refs/heads/b{number}",
                f"-----BEGIN {kind}-----",
                f"-----END {kind}-----",
            )
            push_raw(root, "push-cert", *(f"{line}\n" for line in lines), "push-cert-end\n")
    assert not ran.exists()


def test_a_reader_is_not_offered_to_push(cell: ServedCell, shop: int) -> None:
    """If the query has two services, access is checked for the one that is served."""
    reader = create_person(cell, "reader")
    add_member(cell, f"projects/{shop}", reader, 20)
    query = "service=git-upload-pack&service=git-receive-pack"
    answer = cell.send("GET", f"/acme/shop.git/info/refs?{query}", PRIVATE_TOKEN=reader.token)
    assert (answer.status, b"git-receive-pack" in answer.body) == (200, False)


def test_a_forced_push_to_a_protected_branch(cell: ServedCell, clone: Clone, repository: Path) -> None:
    main = clone.run("rev-parse", "origin/main").stdout.strip()
    clone.run("commit", "--quiet", "--amend", "-m", "Another past")
    clone.run("push", "--quiet", "--force", "origin", "HEAD:side")
    refused = clone.run("push", "--force", address(cell), "HEAD:main", ok=False)
    assert "force push" in refused.stderr
    assert "allow_force_push" in refused.stderr, "the error says what to do"
    put = {"refs": {"refs/heads/main": clone.run("rev-parse", "HEAD").stdout.strip()}}
    refs = f"/api/remuda/v1/{PROJECT}/refs".replace("v1//", "v1/")
    answer = cell.send("PUT", refs, put, PRIVATE_TOKEN=cell.token)
    assert (answer.status, b"allow_force_push" in answer.body) == (403, True)
    assert clone.run("--git-dir", str(repository), "rev-parse", "main").stdout.strip() == main
    # A fast-forward is no forced push, even with --force.
    clone.run("reset", "--quiet", "--hard", main)
    clone.commit(file="x")
    clone.run("push", "--quiet", "--force", address(cell), "HEAD:main")
    clone.run("commit", "--quiet", "--amend", "-m", "Another past")
    assert cell.api("GET", BRANCH).json()["allow_force_push"] is False
    assert cell.api("PATCH", BRANCH, {"allow_force_push": True}).json()["allow_force_push"] is True
    clone.run("push", "--quiet", "--force", address(cell), "HEAD:main")
    assert cell.send("PUT", refs, {"refs": {"refs/heads/main": main}}, PRIVATE_TOKEN=cell.token).status == 204
    assert cell.api("PATCH", BRANCH, {"allow_force_push": False}).status == 200
    clone.run("push", "--force", address(cell), f"{main}~0:side", "HEAD:main")
    head = clone.run("rev-parse", "HEAD").stdout.strip()
    assert clone.run("--git-dir", str(repository), "rev-parse", "main").stdout.strip() == head
    # Nobody can delete the default branch, even if the configuration of the repository allows it.
    clone.run("--git-dir", str(repository), "config", "receive.denyDeleteCurrent", "ignore")
    clone.run("push", address(cell), ":main", ok=False)
    assert clone.run("--git-dir", str(repository), "rev-parse", "main").stdout.strip() == head


def test_who_allows_forced_pushes(cell: ServedCell, shop: int, ada: Person) -> None:
    assert ada.api("GET", BRANCH).status == 403
    assert ada.api("PATCH", BRANCH, {"allow_force_push": True}).status == 403
    maintainer = create_person(cell, "mai")
    add_member(cell, f"projects/{shop}", maintainer, 40)
    project = maintainer.client().projects.get("acme/shop")
    [branch] = project.protectedbranches.list(get_all=True)
    assert (branch.name, branch.allow_force_push) == ("main", False)
    assert branch.push_access_levels[0]["access_level"] == 40
    project.protectedbranches.update("main", {"allow_force_push": True})
    assert project.protectedbranches.get("main").allow_force_push is True
    assert maintainer.api("GET", f"{PROJECT}/protected_branches/side").status == 404
    assert cell.api("PATCH", f"{PROJECT}/protected_branches/side", {"allow_force_push": True}).status == 404
    events = cell.api("GET", "/audit_events").json()
    assert [event["event_name"] for event in events].count("protected_branch_changed") == 1


def test_push_options_forge_nothing(cell: ServedCell, shop: int, clone: Clone, ada: Person, repository: Path) -> None:
    """The note of a push lists its refs and options, one per line."""
    sha = clone.commit(file="to be merged")
    clone.run("push", "--quiet", "origin", "HEAD:side")
    cell.until_pipelines(2, "acme/shop")
    option = f"x\nref {sha} refs/heads/main\noption ci.variable=EVIL=yes"
    refused = push_raw(ada, f"{ZERO_SHA} {sha} refs/heads/other", options=(option,))
    assert b"ok refs/heads/other" not in refused.body, refused
    assert not list(repository.glob("push-notes/*"))
    # The administrator, whom no note names, merges what ada pushed.
    clone.run("push", "--quiet", address(cell), f"{sha}:main")
    newest = cell.until_pipelines(3, "acme/shop")[0]
    assert (newest["ref"], newest["sha"]) == ("main", sha)
    assert cell.api("GET", f"{PROJECT}/pipelines/{newest['id']}/variables").json() == []


# A tag with the name of the protected branch

HAS_BRANCH_NAME = "has the name of the protected branch"


def test_no_tag_has_protected_name(cell: ServedCell, shop: int, clone: Clone, ada: Person, repository: Path) -> None:
    sha = clone.run("rev-parse", "HEAD").stdout.strip()
    for remote in ("origin", address(cell)):
        refused = clone.run("push", remote, "HEAD:refs/tags/main", "HEAD:refs/tags/v1", ok=False)
        assert f"refs/tags/main {HAS_BRANCH_NAME}" in refused.stderr
    for person in (ada, Person(cell, 1, "root", cell.token)):
        tag = person.api("POST", f"{PROJECT}/repository/tags", {"tag_name": "main", "ref": "main"})
        assert (tag.status, HAS_BRANCH_NAME in tag.body.decode()) == (400, True), tag
        release = person.api("POST", f"{PROJECT}/releases", {"tag_name": "main", "ref": "main"})
        assert (release.status, HAS_BRANCH_NAME in release.body.decode()) == (422, True), release
        body = {"refs": {"refs/tags/main": sha, "refs/tags/v1": sha}}
        put = cell.send("PUT", f"/api/remuda/v1/projects/{shop}/refs", body, PRIVATE_TOKEN=person.token)
        assert (put.status, HAS_BRANCH_NAME in put.body.decode()) == (400, True), put
    assert not any(ref.startswith("refs/tags/") for ref in refs_in(repository))
    clone.run("push", "--quiet", "origin", "HEAD:refs/tags/side", "HEAD:refs/tags/main/x")


def test_existing_tag_of_branch_name_can_only_go(cell: ServedCell, shop: int, clone: Clone, repository: Path) -> None:
    old = clone.run("rev-parse", "HEAD").stdout.strip()
    clone.run("--git-dir", str(repository), "update-ref", "refs/tags/main", old)
    new = clone.commit(file="x")
    clone.run("push", "--quiet", "origin", "HEAD:side")
    assert HAS_BRANCH_NAME in clone.run("push", "--force", "origin", "HEAD:refs/tags/main", ok=False).stderr
    refs = f"/api/remuda/v1/projects/{shop}/refs"
    assert cell.send("PUT", refs, {"refs": {"refs/tags/main": new}}, PRIVATE_TOKEN=cell.token).status == 400
    assert cell.send("PUT", refs, {"refs": {"refs/tags/main": old}}, PRIVATE_TOKEN=cell.token).status == 204
    assert clone.run("--git-dir", str(repository), "rev-parse", "refs/tags/main").stdout.strip() == old
    clone.run("push", "--quiet", "origin", ":refs/tags/main")
    assert "refs/tags/main" not in refs_in(repository)


def test_a_branch_with_a_tags_name_does_not_become_the_default_one(cell: ServedCell, clone: Clone, ada: Person) -> None:
    clone.run("push", "--quiet", "origin", "HEAD:refs/tags/next", "HEAD:refs/heads/next")
    refused = cell.api("PUT", PROJECT, {"default_branch": "next"})
    assert (refused.status, "tag" in refused.body.decode()) == (400, True), refused
    assert cell.api("GET", PROJECT).json()["default_branch"] == "main"
    clone.run("push", "--quiet", "origin", ":refs/tags/next")
    assert cell.api("PUT", PROJECT, {"default_branch": "next"}).status == 200


def test_older_tag_has_no_privileges(cell: ServedCell, clone: Clone, ada: Person, runner: ScriptedRunner) -> None:
    """A developer pushes the tag before the default branch exists."""
    assert runner.put(runner.take(), "success").status == 200
    [group] = [row["id"] for row in cell.api("GET", "/groups").json() if row["full_path"] == "acme"]
    project = create_group_project(cell, group, "new")
    add_member(cell, f"projects/{project}", ada, 30)
    secret = {"key": "SECRET", "value": "of the branch", "protected": True}
    assert cell.api("POST", f"/projects/{project}/variables", secret).status == 201
    clone.commit(**{".gitlab-ci.yml": EVIL})
    clone.run("push", "--quiet", ada.address("acme/new"), "HEAD:refs/tags/main")

    def take() -> tuple[str, bool]:
        job = runner.take()
        assert runner.put(job, "success").status == 200
        return job["job_info"]["name"], "SECRET" in [variable["key"] for variable in job["variables"]]

    assert take() == ("evil", False)
    clone.run("push", "--quiet", address(cell).replace("shop.git", "new.git"), "HEAD~:refs/heads/main")
    assert take() == ("honest", True)
    assert cell.api("GET", f"/projects/{project}").json()["default_branch"] == "main"
    assert cell.api("POST", f"/projects/{project}/pipeline", {"ref": "main"}).status == 201
    assert take() == ("honest", True)
    newest = cell.api("GET", f"/projects/{project}/pipelines/latest?ref=main").json()
    assert (newest["ref"], newest["tag"]) == ("main", False)


BUILD = "build: {script: [make], artifacts: {paths: [out]}}\n"
USE = "use: {script: [use], needs: [{project: acme/shop, job: build, ref: REF, artifacts: true}]}\n"


def run_build(runner: ScriptedRunner, content: str) -> int:
    """Take the next job, upload an archive with one file, and end the job."""
    job, archive = runner.take(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("out", content)
    assert runner.upload(job, archive.getvalue()).status == 201
    assert runner.put(job, "success").status == 200
    return int(job["id"])


def test_a_branch_is_preferred_to_an_existing_tag_of_the_same_name(
    cell: ServedCell, shop: int, clone: Clone, repository: Path, runner: ScriptedRunner
) -> None:
    """Applies to includes, to artifacts for other projects, and to the newest pipeline."""
    assert runner.put(runner.take(), "success").status == 200
    clone.commit(**{".gitlab-ci.yml": BUILD})
    clone.run("push", "--quiet", address(cell), "HEAD:main")
    cell.until_pipelines(2, "acme/shop")
    honest = run_build(runner, "honest")
    evil = clone.commit(**{".gitlab-ci.yml": BUILD.replace("make", "env")})
    clone.run("push", "--quiet", "origin", "HEAD:refs/tags/v1")
    cell.until_pipelines(3, "acme/shop")
    of_v1 = run_build(runner, "of v1")
    # Older releases accepted such a tag; after the push of another tag the cell sees this one, too.
    clone.run("--git-dir", str(repository), "update-ref", "refs/tags/main", evil)
    clone.run("push", "--quiet", "origin", "HEAD~:refs/tags/v0")
    cell.until_pipelines(5, "acme/shop")
    for _ in range(2):
        run_build(runner, "evil")

    def newest(ref: str) -> tuple[str, bool]:
        pipeline = cell.api("GET", f"{PROJECT}/pipelines/latest?ref={ref}").json()
        return pipeline["ref"], pipeline["tag"]

    assert [newest("main"), newest("v1")] == [("main", False), ("v1", True)]
    for ref, expected in {"main": b"honest", "v1": b"of v1"}.items():
        assert cell.api("GET", f"{PROJECT}/jobs/artifacts/{ref}/raw/out?job=build").body == expected
    cell.disable_job_token_allowlist(shop)
    user = cell.new_project("user", USE.replace("REF", "main"))
    for ref, source_id in {"main": honest, "v1": of_v1, "refs/heads/main": honest, "refs/tags/v1": of_v1}.items():
        content = USE.replace("REF", ref)
        if ref != "main":
            commit_file(cell, user, content, action="update")
        job = runner.take()
        assert [source["id"] for source in job["dependencies"]] == [source_id], ref
        assert runner.put(job, "success").status == 200
    for ref, script in {"main": "make", "refs/tags/main": "env", "v1": "env"}.items():
        included = {"include": [{"project": "acme/shop", "ref": ref, "file": ".gitlab-ci.yml"}]}
        linted = cell.api("POST", f"/projects/{user}/ci/lint", {"content": json.dumps(included)}).json()
        assert f"- {script}" in linted["merged_yaml"], (ref, linted)
