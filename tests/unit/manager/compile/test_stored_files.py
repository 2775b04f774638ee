"""Compilation of caches and artifacts into steps."""

from typing import Any

import msgspec
import pytest
from tests.support.manager_values import a_payload, a_setting

from remuda.manager.compile.step_entries import CompileError, Setting
from remuda.manager.compile.stored_files import STATEMENT, restore_caches, save_caches, upload_artifacts
from remuda.manager.compile.variables import Variables, variable_list
from remuda.manager.config.cache import CacheConfig, S3Config
from remuda.manager.config.values import ArtifactConfig, RemudaConfig, RunnerConfig
from remuda.stdsteps.signatures.statements import NAME

SETTING = a_setting(RunnerConfig(url="https://cell.example"))


def caches(*entries: dict[str, Any], **variables: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    variables_of_job = Variables(variable_list(variables))
    git = {"repo_url": "https://cell.example/../../g/p.git"}
    payload = a_payload(git_info=git, cache=[{"key": "k", "paths": ["deps"]} | entry for entry in entries])
    return restore_caches(payload, SETTING, variables_of_job), save_caches(payload, SETTING, variables_of_job)


@pytest.mark.parametrize(
    ("policy", "restores", "saves"),
    [("pull-push", 1, 1), ("", 1, 1), (None, 1, 1), ("pull", 1, 0), ("push", 0, 1), ("$POLICY", 1, 0)],
)
def test_cache_policies(policy: str | None, restores: int, saves: int) -> None:
    restored, saved = caches({"policy": policy}, POLICY="pull")
    assert (len(restored), len(saved)) == (restores, saves)


@pytest.mark.parametrize(
    ("when", "condition"),
    [(None, "success()"), ("on_success", "success()"), ("on_failure", "failure()"), ("always", "always()")],
)
def test_conditions_of_cache_and_artifacts(when: str | None, condition: str) -> None:
    _, [saved] = caches({"when": when})
    assert saved["if"] == condition
    [upload] = upload_artifacts(a_payload(artifacts=[{"paths": ["x"], "when": when}]), SETTING, Variables([]))
    assert upload["if"] == condition


@pytest.mark.parametrize(
    ("key", "expected"), [(None, "default"), ("", "default"), ("$NONE", "default"), ("$REF-$$", "a/../b-$")]
)
def test_keys_are_expanded(key: str | None, expected: str) -> None:
    [restored], [saved] = caches({"key": key}, REF="a/../b")
    assert restored["inputs"]["key"] == saved["inputs"]["key"] == expected
    assert restored["inputs"]["folder"] == saved["inputs"]["folder"] == "/c/g/p"
    assert restored["inputs"]["root"] == saved["inputs"]["root"] == "/c"


def test_fallback_keys_come_in_order_and_the_variable_last() -> None:
    entry = {"fallback_keys": ["$REF-deps", "main", "$NONE", "main"]}
    [restored], _ = caches(entry, REF="topic", CACHE_FALLBACK_KEY="$REF-any")
    assert restored["inputs"]["fallback_keys"] == ["topic-deps", "main", "$REF-any"]
    [restored], _ = caches(entry, REF="topic", CACHE_FALLBACK_KEY="main-protected")
    assert restored["inputs"]["fallback_keys"] == ["topic-deps", "main"]


@pytest.mark.parametrize(
    ("protected", "suffix", "folder"),
    [
        (True, "-protected", "/c/g/p@protected"),
        (True, "-non_protected", "/c/g/p"),
        (True, "", "/c/g/p"),
        (False, "-protected", "/c/g/p"),
        (None, "-protected", "/c/g/p"),
    ],
)
def test_caches_of_protected_refs_have_a_folder_of_their_own(protected: bool | None, suffix: str, folder: str) -> None:
    git = {"repo_url": "https://cell.example/g/p.git", "protected": protected}
    keys = {"key": f"k{suffix}", "fallback_keys": [f"l{suffix}"]}
    payload = a_payload(git_info=git, cache=[keys | {"paths": ["deps"]}])
    variables_of_job = Variables(variable_list({"CACHE_FALLBACK_KEY": "main-non_protected"}))
    [restored], [saved] = (
        restore_caches(payload, SETTING, variables_of_job),
        save_caches(payload, SETTING, variables_of_job),
    )
    assert restored["inputs"]["folder"] == saved["inputs"]["folder"] == folder
    folders = restored["inputs"].get("folders", [folder] * 3)
    assert folders == [folder, folder, "/c/g/p"]
    assert ("folders" in restored["inputs"]) == (folder != "/c/g/p")


def test_several_caches_have_their_own_steps_and_empty_ones_none() -> None:
    restored, saved = caches({}, {"paths": []}, {"policy": "pull"}, {"paths": None, "untracked": True})
    assert [entry["name"] for entry in restored] == ["restore_cache", "restore_cache_2", "restore_cache_3"]
    assert [entry["name"] for entry in saved] == ["archive_cache", "archive_cache_2"]
    assert all(entry["continue_on_error"] for entry in (*restored, *saved))


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"policy": "take"}, "cache:policy: 'take' is none of pull-push, pull, push"),
        ({"when": "never"}, "cache:when: 'never' is none of on_success"),
        ({"paths": "deps"}, r"cache\[0\]: Expected `array"),
    ],
)
def test_errors_for_invalid_caches(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(CompileError, match=text):
        caches(entry)


def test_reports_without_an_archive() -> None:
    reports = [
        {
            "paths": ["a.xml"],
            "name": "junit.xml",
            "when": "always",
            "artifact_type": "junit",
            "artifact_format": "gzip",
        },
        {"paths": ["q.json"], "when": "always", "artifact_type": "codequality", "artifact_format": "raw"},
    ]
    entries = upload_artifacts(a_payload(artifacts=reports), SETTING, Variables([]))
    assert [
        (entry["name"], entry["inputs"]["artifact_type"], entry["inputs"]["artifact_format"]) for entry in entries
    ] == [
        ("upload_artifacts", "junit", "gzip"),
        ("upload_artifacts_2", "codequality", "raw"),
    ]


BUCKET = S3Config(server_address="s3.test:9000", access_key="AK", secret_key="the secret", bucket="caches")


def bucket_setting(**changes: Any) -> Setting:
    cache = CacheConfig(type="s3", path="ci", s3=BUCKET, **changes)
    runner = RunnerConfig(url="https://cell.example", token="glrt-abcdefghijkl", cache=cache)
    return msgspec.structs.replace(SETTING, runner=runner, now=1_700_000_000.0)


def test_caches_in_a_bucket_have_signed_urls_without_credentials() -> None:
    setting = bucket_setting(largest_bytes=7)
    payload = a_payload(
        cache=[{"key": "a/b", "paths": ["deps"], "fallback_keys": ["main"]}],
        job_info={"project_id": 9},
        runner_info={"timeout": 600},
    )
    [restored] = restore_caches(payload, setting, Variables([]))
    [saved] = save_caches(payload, setting, Variables([]))
    first, second = restored["inputs"]["downloads"]
    start = "https://s3.test:9000/caches/ci/runner/abcdefghi/project/9/"
    assert (first.partition("?")[0], second.partition("?")[0]) == (f"{start}a%252Fb", f"{start}main")
    assert (
        saved["inputs"]["upload"].partition("?")[0] == saved["inputs"]["present"].partition("?")[0] == f"{start}a%252Fb"
    )
    assert saved["inputs"]["upload"] != saved["inputs"]["present"] == first
    assert "X-Amz-Expires=4200&" in first
    assert saved["inputs"]["limit_bytes"] == 7
    assert "folder" not in restored["inputs"] | saved["inputs"]
    assert "the secret" not in repr([restored, saved])
    [restored] = restore_caches(payload, bucket_setting(shared=True), Variables([]))
    assert restored["inputs"]["downloads"][1].startswith("https://s3.test:9000/caches/ci/project/9/main?")


def upload_signed(artifacts: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    own = RemudaConfig(signing_key="/etc/remuda/key.pem", **changes)
    setting = msgspec.structs.replace(SETTING, runner=RunnerConfig(url="https://cell.example", name="r", remuda=own))
    return upload_artifacts(a_payload(artifacts=artifacts), setting, Variables([]))


def test_a_runner_with_a_key_signs_archives_and_sends_the_signature_along() -> None:
    sign, upload, report = upload_signed(
        [
            {"paths": ["out"], "exclude": ["out/x"], "when": "always"},
            {"paths": ["r.xml"], "artifact_format": "gzip", "artifact_type": "junit"},
        ]
    )
    assert (sign["name"], sign["step"], sign["if"]) == ("sign_artifacts", "builtin://sign", "always()")
    assert sign["inputs"]["paths"] == ["out"]
    assert (sign["inputs"]["key"], sign["inputs"]["apart"]) == ("/etc/remuda/key.pem", False)
    assert sign["inputs"]["about"]["job"]["id"] == 5
    assert upload["inputs"]["paths"] == ["out"]
    assert sign["inputs"]["statement"] == upload["inputs"]["statement"] == STATEMENT == NAME
    assert sign["inputs"]["exclude"] == upload["inputs"]["exclude"] == ["out/x"]
    assert report["inputs"]["paths"] == ["r.xml"]
    assert "statement" not in report["inputs"]


def test_the_signing_key_is_kept_apart_if_jobs_run_as_other_users() -> None:
    for user_settings in ({"run_as": "ci"}, {"first_uid": 2000}):
        assert upload_signed([{"paths": ["out"]}], **user_settings)[0]["inputs"]["apart"] is True


def test_timeout_of_an_upload() -> None:
    runner = RunnerConfig(url="https://cell.example", artifact=ArtifactConfig(upload_timeout="10m"))
    setting = msgspec.structs.replace(SETTING, runner=runner)
    [upload] = upload_artifacts(a_payload(artifacts=[{"paths": ["x"]}]), setting, Variables([]))
    assert upload["timeout"] == 600
