"""Masking of secrets in payloads and step results."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.payload.redaction import clean_result, mask_payload, secrets_to_mask, without_secrets
from remuda.cell.errors import InvalidError
from remuda.wire.runner_api import ArtifactsFile, Dependency, GitInfo, JobPayload, ScriptStep, Variable

SECRET, FILE, TOKEN = "hunter2-hunter2", "-----KEY-----\nabcdefgh12345678", "glcbt-abc.def.ghi"


def a_payload() -> JobPayload:
    return JobPayload(
        id=7,
        token=TOKEN,
        git_info=GitInfo(repo_url=f"https://gitlab-ci-token:{TOKEN}@ci.example/acme/shop.git", sha="3f786850"),
        variables=[
            Variable(key="PASSWORD", value=SECRET, masked=True),
            Variable(key="KEY", value=FILE, masked=True, file=True),
            Variable(key="ID_TOKEN", value="eyJhbGciOi.JSUzI1NiIs", masked=True),
            Variable(key="CI_REPOSITORY_URL", value=f"https://gitlab-ci-token:{TOKEN}@ci.example/acme/shop.git"),
            Variable(key="PLAIN", value="shown"),
        ],
        steps=[ScriptStep(name="script", script=["echo shown", f"curl -H {SECRET} https://x"])],
        credentials=[{"type": "registry", "url": "r.example", "username": "u", "password": "registry-password"}],
        dependencies=[Dependency(id=1, name="build", token=TOKEN, artifacts_file=ArtifactsFile(filename="a.zip"))],
        secrets={"DB": {"vault": {"path": "db/password", "server": {"url": "https://vault"}}}},
    )


def test_a_masked_payload_contains_no_secrets() -> None:
    masked = mask_payload(a_payload(), secrets_to_mask([]))
    text = msgspec.json.encode(masked).decode()
    for secret in (SECRET, "abcdefgh12345678", "eyJhbGciOi", TOKEN, "registry-password", "db/password"):
        assert secret not in text
    assert masked["token"] == "[MASKED]"
    assert masked["git_info"]["repo_url"] == "https://gitlab-ci-token:[MASKED]@ci.example/acme/shop.git"
    assert masked["secrets"] == {"DB": {}}
    assert {variable["key"]: variable["value"] for variable in masked["variables"]}["PLAIN"] == "shown"
    assert masked["steps"][0]["script"] == ["echo shown", "curl -H [MASKED] https://x"]
    assert "run" not in masked
    assert "remuda" not in masked


def test_other_secrets_of_the_project_are_masked_too() -> None:
    masked = mask_payload(a_payload(), secrets_to_mask(["shown"]))
    assert masked["steps"][0]["script"][0] == "echo [MASKED]"


def test_a_cleaned_result_keeps_its_structural_fields() -> None:
    result: dict[str, Any] = {
        "version": 1,
        "seq": 3,
        "event": "finished",
        "status": "failure",
        "started_at": "2026-01-01T00:00:00Z",
        "error": f"cannot log in with {SECRET}",
        "outputs": {"url": f"https://x/?t={TOKEN}", "list": [SECRET, 5, None, True], SECRET: 1},
    }
    cleaned = clean_result(result, secrets_to_mask([SECRET, "finished"]))
    assert cleaned == result | {
        "error": "cannot log in with [MASKED]",
        "outputs": {"url": "https://x/?t=glcbt-[MASKED]", "list": ["[MASKED]", 5, None, True], "[MASKED]": 1},
    }


def test_a_field_that_is_nested_too_deep_is_omitted() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    with pytest.raises(InvalidError, match="nested"):
        without_secrets(deep, secrets_to_mask([]))
    cleaned = clean_result({"seq": 1, "outputs": {"deep": deep}, "inputs": {"a": SECRET}}, secrets_to_mask([SECRET]))
    assert cleaned["outputs"] == "(left out: it is nested more than 64 levels deep)"
    assert (cleaned["seq"], cleaned["inputs"]) == (1, {"a": "[MASKED]"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_values_without_secrets_do_not_change(value: Any) -> None:
    assert without_secrets(value, secrets_to_mask(["not-in-there-at-all"])) == value
