"""Git LFS over HTTP: which objects a client must transfer, uploads, downloads, locks, and hostile requests."""

import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.cells.lfs_client import MEDIA, Lfs, basic
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell, commit_file

from remuda.cell.values.people import Level

CONTENT = b"a large file\n" * 20_000
OID = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def lfs(cell: ServedCell) -> Lfs:
    cell.new_project("app")
    return Lfs(cell, "root/app", basic(cell.token))


def list_blobs(cell: ServedCell) -> list[Path]:
    files = [path for path in (cell.settings.data / "blobs").rglob("*") if path.is_file()]
    return [path for path in files if path.name != "owner"]


def follow(cell: ServedCell, method: str, action: dict[str, Any], body: Any = None, **headers: str) -> Answer:
    """Do what an action of a batch answer says."""
    assert action["href"].startswith(cell.url)
    sent = {name.replace("-", "_"): value for name, value in action["header"].items()} | headers
    return cell.send(method, action["href"].removeprefix(cell.url), body, **sent)


class TestTransfer:
    def test_upload_verify_and_download(self, cell: ServedCell, lfs: Lfs) -> None:
        wanted = (OID, len(CONTENT))
        answer = lfs.batch("upload", wanted, ref={"name": "refs/heads/main"}, hash_algo="sha256")
        assert (answer.status, answer.headers["Content-Type"]) == (200, MEDIA)
        body = answer.json()
        assert (body["transfer"], body["hash_algo"]) == ("basic", "sha256")
        [item] = body["objects"]
        assert (item["oid"], item["size"], item["authenticated"]) == (OID, len(CONTENT), True)
        check = {"oid": OID, "size": len(CONTENT)}
        assert follow(cell, "POST", item["actions"]["verify"], check).status == 404
        assert follow(cell, "PUT", item["actions"]["upload"], CONTENT).status == 200
        assert follow(cell, "POST", item["actions"]["verify"], check).status == 200
        assert follow(cell, "POST", item["actions"]["verify"], check | {"size": 1}).status == 422
        assert lfs.batch("upload", wanted).json()["objects"] == [{"oid": OID, "size": len(CONTENT)}]
        [item] = lfs.batch("download", wanted).json()["objects"]
        got = follow(cell, "GET", item["actions"]["download"])
        assert (got.status, got.body, got.headers["Content-Length"]) == (200, CONTENT, str(len(CONTENT)))

    def test_a_file_over_the_api(self, cell: ServedCell, lfs: Lfs) -> None:
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize {len(CONTENT)}\n"
        commit_file(cell, 1, pointer, "large.bin")
        commit_file(cell, 1, "plain\n", "plain.txt")
        raw = "/projects/1/repository/files/{}/raw?lfs={}"
        assert cell.api("GET", raw.format("large.bin", "true")).status == 404, "not uploaded yet"
        assert lfs.put(CONTENT).status == 200
        assert cell.api("GET", raw.format("large.bin", "true")).body == CONTENT
        part = cell.api("GET", raw.format("large.bin", "true"), Range="bytes=100-199")
        assert (part.status, part.body) == (206, CONTENT[100:200])
        assert cell.api("GET", raw.format("large.bin", "false")).body == pointer.encode()
        assert cell.api("GET", raw.format("plain.txt", "true")).body == b"plain\n"

    def test_an_empty_object(self, lfs: Lfs) -> None:
        assert lfs.put(b"").status == 200
        assert lfs.get(hashlib.sha256(b"").hexdigest()).body == b""

    def test_a_broken_download_is_continued(self, lfs: Lfs) -> None:
        lfs.put(CONTENT)
        part = lfs.get(OID, Range="bytes=100-", If_Range=f'"{OID}"')
        assert (part.status, part.body) == (206, CONTENT[100:])
        assert part.headers["Content-Range"] == f"bytes 100-{len(CONTENT) - 1}/{len(CONTENT)}"
        assert lfs.get(OID, Range=f"bytes={len(CONTENT)}-").status == 416
        assert lfs.send("HEAD", f"gitlab-lfs/objects/{OID}").status == 200

    def test_a_second_upload_changes_nothing(self, cell: ServedCell, lfs: Lfs) -> None:
        for _ in range(2):
            assert lfs.put(CONTENT).status == 200
        assert len(list_blobs(cell)) == 1

    def test_concurrent_uploads_of_one_object(self, cell: ServedCell, lfs: Lfs) -> None:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: lfs.put(CONTENT).status, range(8)))
        assert answers == [200] * 8
        assert len(list_blobs(cell)) == 1
        assert lfs.get(OID).body == CONTENT

    def test_the_git_suffix_is_optional(self, cell: ServedCell, lfs: Lfs) -> None:
        answer = cell.send(
            "POST",
            "/root/app/info/lfs/objects/batch",
            {"operation": "download", "objects": [{"oid": OID, "size": 1}]},
            Authorization=lfs.authorization,
        )
        assert answer.json()["objects"][0]["error"]["code"] == 404


class TestRefusedUploads:
    @pytest.mark.parametrize(
        ("content", "oid", "size", "reason"),
        [
            (CONTENT, "f" * 64, None, f"The SHA-256 of the body is {OID}, not"),
            (CONTENT[:-1], OID, None, "The SHA-256 of the body is"),
            (CONTENT, OID, len(CONTENT) + 1, f"The body has {len(CONTENT)} bytes, but the address says"),
            (CONTENT, OID, 10, f"The body has {len(CONTENT)} bytes, but the address says 10"),
            (CONTENT, OID.upper(), None, "not a SHA-256"),
            (CONTENT, "..%2f..%2f..%2f" + OID[:40], None, "not a SHA-256"),
            (CONTENT, "%00" * 20, None, "not a SHA-256"),
        ],
    )
    def test_wrong_hash_size_or_oid(
        self, cell: ServedCell, lfs: Lfs, content: bytes, oid: str, size: int | None, reason: str
    ) -> None:
        answer = lfs.put(content, oid, size)
        assert (answer.status, answer.headers["Content-Type"]) == (422, MEDIA)
        assert reason in answer.json()["message"]
        assert list_blobs(cell) == []
        assert lfs.get(OID).status == 404

    def test_a_body_without_length(self, cell: ServedCell, lfs: Lfs) -> None:
        for sent in (CONTENT + b"more", CONTENT[:-5]):
            answer = lfs.send("PUT", f"gitlab-lfs/objects/{OID}/{len(CONTENT)}", iter([sent[:1000], sent[1000:]]))
            assert answer.status == 422
        assert list_blobs(cell) == []
        assert lfs.send("PUT", f"gitlab-lfs/objects/{OID}/{len(CONTENT)}", iter([CONTENT])).status == 200

    def test_a_client_that_disconnects_leaves_nothing(self, cell: ServedCell, lfs: Lfs) -> None:
        address = urlsplit(cell.url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(
                f"PUT /root/app.git/gitlab-lfs/objects/{OID}/{len(CONTENT)} HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: {lfs.authorization}\r\nContent-Length: {len(CONTENT)}\r\n\r\n".encode()
            )
            connection.sendall(CONTENT[:5000])
        assert lfs.put(CONTENT).status == 200
        assert len(list_blobs(cell)) == 1

    def test_limits(self, tmp_path: Path) -> None:
        with ServedCell(tmp_path / "cell", lfs_limit_bytes=1000, lfs_project_limit_bytes=1500) as cell:
            cell.new_project("app")
            lfs = Lfs(cell, "root/app", basic(cell.token))
            [item] = lfs.batch("upload", ("a" * 64, 1001)).json()["objects"]
            assert (item["error"]["code"], "actions" in item) == (422, False)
            refused = lfs.put(b"x" * 1001)
            assert (refused.status, "lfs_limit_bytes" in refused.json()["message"]) == (413, True)
            assert lfs.put(b"x" * 1000).status == 200
            [item] = lfs.batch("upload", ("a" * 64, 501)).json()["objects"]
            assert item["error"]["code"] == 507
            assert lfs.put(b"y" * 501).status == 507
            assert lfs.put(b"y" * 500).status == 200
            assert len(list_blobs(cell)) == 2


class TestBatch:
    def test_hostile_batches(self, lfs: Lfs) -> None:
        assert lfs.batch("upload", *[(OID, 1)] * 1001).status == 413
        assert lfs.batch("upload", *[(OID, 1)] * 100_000).status == 413
        assert lfs.batch("explode", (OID, 1)).status == 422
        assert lfs.batch("upload", (OID, 1), hash_algo="md5").status == 409
        assert lfs.batch("upload", (OID, 1), transfers=["ssh"]).status == 422
        assert lfs.batch("upload", (OID, 10**30)).json()["objects"][0]["error"]["code"] == 422
        assert lfs.send("POST", "info/lfs/objects/batch", b"[]").status == 422
        assert lfs.send("POST", "info/lfs/objects/batch", b"rubbish").status == 422
        for oid in ("../../etc/passwd", "", "A" * 64, "a" * 63 + "\n"):
            for operation in ("upload", "download"):
                [item] = lfs.batch(operation, (oid, 1)).json()["objects"]
                assert item["error"]["code"] == 422, oid
        assert lfs.batch("upload").json()["objects"] == []

    def test_unknown_calls(self, lfs: Lfs) -> None:
        assert lfs.send("GET", "info/lfs/objects/batch").status == 405
        assert lfs.send("GET", "info/lfs/nothing").status == 404
        assert lfs.send("GET", f"gitlab-lfs/objects/../../{OID}").status in (404, 422)
        assert lfs.send("DELETE", f"gitlab-lfs/objects/{OID}").status == 405


class TestAccess:
    def test_who_may_read_and_write(self, cell: ServedCell, lfs: Lfs) -> None:
        lfs.put(CONTENT)
        wanted = (OID, len(CONTENT))
        expected = {"guest": (403, 403), "reporter": (200, 403), "developer": (200, 200), "maintainer": (200, 200)}
        for level, (reading, writing) in expected.items():
            person = create_person(cell, level)
            add_member(cell, "projects/root%2Fapp", person, Level[level.upper()])
            theirs = Lfs(cell, "root/app", basic(person.token))
            assert theirs.batch("download", wanted).status == reading, level
            assert theirs.get(OID).status == reading, level
            assert theirs.batch("upload", wanted).status == writing, level
            assert theirs.put(b"other" + level.encode()).status == writing, level
        stranger = Lfs(cell, "root/app", basic(create_person(cell, "stranger").token))
        assert stranger.batch("download", wanted).status == 404
        assert stranger.get(OID).status == 404
        assert stranger.put(CONTENT).status == 404

    def test_access_tokens_of_projects_and_scopes(self, cell: ServedCell, lfs: Lfs) -> None:
        lfs.put(CONTENT)

        def create(*scopes: str) -> Lfs:
            body = {"name": "x", "scopes": scopes, "expires_at": "2999-01-31", "access_level": 30}
            created = cell.api("POST", "/projects/root%2Fapp/access_tokens", body)
            assert created.status == 201, created
            return Lfs(cell, "root/app", basic(created.json()["token"]))

        reading, writing, other = create("read_repository"), create("write_repository"), create("read_registry")
        [item] = reading.batch("download", (OID, len(CONTENT))).json()["objects"]
        assert item["actions"]["download"]["expires_at"].startswith("2999-01-31")
        assert reading.get(OID).body == CONTENT
        assert reading.put(b"new").status == 403
        assert writing.put(b"new").status == 200
        assert other.get(OID).status == 403
        cell.new_project("second")
        assert Lfs(cell, "root/second", writing.authorization).put(b"new").status == 404

    def test_a_deploy_token_reads(self, cell: ServedCell, lfs: Lfs) -> None:
        lfs.put(CONTENT)
        body = {"name": "deploy", "scopes": ["read_repository"]}
        token = cell.api("POST", "/projects/root%2Fapp/deploy_tokens", body).json()
        deploy = Lfs(cell, "root/app", basic(token["token"], token["username"]))
        assert deploy.get(OID).body == CONTENT
        assert deploy.send("GET", "info/lfs/locks").status == 200
        assert deploy.put(b"new").status == 403
        assert deploy.send("POST", "info/lfs/locks", {"path": "a"}).status == 403
        cell.new_project("second")
        assert Lfs(cell, "root/second", deploy.authorization).get(OID).status == 404

    def test_an_archived_project_is_only_read(self, cell: ServedCell, lfs: Lfs) -> None:
        lfs.put(CONTENT)
        assert cell.api("POST", "/projects/root%2Fapp/archive").status == 201
        assert lfs.get(OID).status == 200
        assert lfs.put(b"new").status == 403

    def test_a_request_without_a_valid_token_is_asked_for_one(self, cell: ServedCell, lfs: Lfs) -> None:
        for authorization in ("", basic("glpat-nonsense")):
            answer = Lfs(cell, "root/app", authorization).batch("download", (OID, 1))
            assert (answer.status, answer.headers["Content-Type"]) == (401, MEDIA)
            assert answer.headers["LFS-Authenticate"] == 'Basic realm="Remuda"'
            assert "message" in answer.json()

    def test_an_oid_alone_gives_no_access_to_the_object_of_another_project(self, cell: ServedCell, lfs: Lfs) -> None:
        lfs.put(CONTENT)
        thief = create_person(cell, "thief")
        created = thief.api("POST", "/projects", {"name": "loot"})
        assert created.status == 201
        theirs = Lfs(cell, "thief/loot", basic(thief.token))
        wanted = (OID, len(CONTENT))
        [item] = theirs.batch("download", wanted).json()["objects"]
        assert item["error"]["code"] == 404
        assert theirs.get(OID).status == 404
        [item] = theirs.batch("upload", wanted).json()["objects"]
        assert "upload" in item["actions"], "the whole object must be sent"
        assert theirs.put(b"", OID, 0).status == 422
        assert theirs.put(b"x" * len(CONTENT), OID).status == 422
        assert theirs.get(OID).status == 404
        assert theirs.put(CONTENT).status == 200
        assert theirs.get(OID).body == CONTENT

    def test_a_job_reads_its_own_project_only(self, cell: ServedCell, runner: ScriptedRunner, lfs: Lfs) -> None:
        lfs.put(CONTENT)
        cell.new_project("other", "make:\n  script: [make]\n")
        foreign = runner.take()
        commit_file(cell, 1, "make:\n  script: [make]\n")
        job = runner.take()
        own = Lfs(cell, "root/app", basic(job["token"], "gitlab-ci-token"))
        assert own.batch("download", (OID, len(CONTENT))).status == 200
        assert own.get(OID).body == CONTENT
        assert own.batch("upload", ("a" * 64, 1)).status == 403
        assert own.put(b"new").status == 403
        assert own.send("POST", "info/lfs/locks", {"path": "a"}).status == 403
        theirs = Lfs(cell, "root/app", basic(foreign["token"], "gitlab-ci-token"))
        assert theirs.get(OID).status == 403
        assert (
            cell.api("POST", "/projects/root%2Fapp/job_token_scope/allowlist", {"target_project_id": 2}).status == 201
        )
        assert theirs.get(OID).body == CONTENT

    def test_a_project_can_disable_it(self, cell: ServedCell, lfs: Lfs) -> None:
        lfs.put(CONTENT)
        assert cell.api("GET", "/projects/root%2Fapp").json()["lfs_enabled"] is True
        assert cell.api("PUT", "/projects/root%2Fapp", {"lfs_enabled": False}).json()["lfs_enabled"] is False
        for answer in (lfs.get(OID), lfs.put(b"x"), lfs.batch("download", (OID, 1)), lfs.send("GET", "info/lfs/locks")):
            assert answer.status == 403
            assert "lfs_enabled" in answer.json()["message"]
        cell.api("PUT", "/projects/root%2Fapp", {"lfs_enabled": True})
        assert lfs.get(OID).status == 200


class TestLocks:
    @pytest.fixture
    def other(self, cell: ServedCell, lfs: Lfs) -> Lfs:
        person = create_person(cell, "dora")
        add_member(cell, "projects/root%2Fapp", person, Level.DEVELOPER)
        return Lfs(cell, "root/app", basic(person.token))

    def lock(self, lfs: Lfs, path: str) -> dict[str, Any]:
        answer = lfs.send("POST", "info/lfs/locks", {"path": path, "ref": {"name": "refs/heads/main"}})
        assert answer.status == 201, answer
        lock: dict[str, Any] = answer.json()["lock"]
        return lock

    def test_lock_list_verify_and_unlock(self, cell: ServedCell, lfs: Lfs, other: Lfs) -> None:
        ours, theirs = self.lock(lfs, "art/a.psd"), self.lock(other, "art/b.psd")
        assert ours.keys() == {"id", "path", "locked_at", "owner"}
        taken = other.send("POST", "info/lfs/locks", {"path": "art/a.psd"})
        assert (taken.status, taken.json()["lock"], taken.json()["message"]) == (409, ours, "already created lock")
        assert lfs.send("GET", "info/lfs/locks").json() == {"locks": [ours, theirs]}
        assert lfs.send("GET", "info/lfs/locks?path=art/b.psd").json() == {"locks": [theirs]}
        assert lfs.send("GET", f"info/lfs/locks?id={ours['id']}").json() == {"locks": [ours]}
        assert lfs.send("GET", "info/lfs/locks?id=x").json() == {"locks": []}
        assert lfs.send("POST", "info/lfs/locks/verify", {}).json() == {"ours": [ours], "theirs": [theirs]}
        refused = other.send("POST", f"info/lfs/locks/{ours['id']}/unlock", {})
        assert (refused.status, "is locked by" in refused.json()["message"]) == (403, True)
        assert other.send("POST", f"info/lfs/locks/{ours['id']}/unlock", {"force": True}).status == 403
        assert lfs.send("POST", f"info/lfs/locks/{theirs['id']}/unlock", {"force": True}).json() == {"lock": theirs}
        assert lfs.send("POST", f"info/lfs/locks/{ours['id']}/unlock", {}).json() == {"lock": ours}
        assert lfs.send("POST", f"info/lfs/locks/{ours['id']}/unlock", {}).status == 404

    def test_pages(self, lfs: Lfs) -> None:
        paths = [f"art/{number}" for number in range(5)]
        for path in paths:
            self.lock(lfs, path)
        seen, cursor = [], ""
        while True:
            page = lfs.send("POST", "info/lfs/locks/verify", {"limit": 2, "cursor": cursor}).json()
            seen += [lock["path"] for lock in page["ours"]]
            if not (cursor := page.get("next_cursor", "")):
                break
        assert seen == paths
        first = lfs.send("GET", "info/lfs/locks?limit=2").json()
        assert len(first["locks"]) == 2
        rest = lfs.send("GET", f"info/lfs/locks?limit=9&cursor={first['next_cursor']}").json()
        assert [lock["path"] for lock in rest["locks"]] == paths[2:]
        assert lfs.send("GET", "info/lfs/locks?cursor=x").status == 422

    @pytest.mark.parametrize("path", ["", "../x", "/x", "a//b", "a/./b", "x" * 4097, "a\0b", 7, None])
    def test_a_lock_needs_the_path_of_a_file(self, lfs: Lfs, path: object) -> None:
        assert lfs.send("POST", "info/lfs/locks", {"path": path}).status == 422

    def test_a_lock_of_another_project_cannot_be_removed(self, cell: ServedCell, lfs: Lfs) -> None:
        lock = self.lock(lfs, "a")
        cell.new_project("second")
        second = Lfs(cell, "root/second", lfs.authorization)
        assert second.send("POST", f"info/lfs/locks/{lock['id']}/unlock", {"force": True}).status == 404
        assert second.send("GET", f"info/lfs/locks?id={lock['id']}").json() == {"locks": []}
