import base64
import io
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.resolving import git
from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError
from remuda.steps.resolving.git import Tip, choose_tip, environment_of, failure, repository

UNABLE = "fatal: unable to access 'https://h/p/'"
A, B, TAG = "a" * 40, "abcdef12" + "0" * 32, "c" * 40
REFS = {
    "refs/heads/main": A,
    "refs/heads/feature/x": B,
    "refs/tags/main": TAG,
    "refs/tags/v1": TAG,
    "refs/tags/v1^{}": B,
    "refs/heads/abcdef12": A,
}


@pytest.mark.parametrize(
    ("version", "tip"),
    [
        ("refs/heads/main", Tip(commit=A)),
        ("refs/tags/main", Tip(commit=TAG, is_tag=True)),
        ("refs/heads/v1", Tip()),
        ("refs/tags/v1", Tip(commit=B, is_tag=True)),
        ("v1", Tip(commit=B, is_tag=True)),
        ("feature/x", Tip(commit=B)),
        ("x", Tip()),
        ("abcdef12", Tip(commit=A)),
        ("abcdef120", Tip(commit=B)),
        ("aaaaaaaa", Tip(commit=A)),
        ("aaaaaaa", Tip()),
        ("00000000", Tip()),
    ],
)
def test_a_version_is_a_tag_then_a_branch_then_a_commit(version: str, tip: Tip) -> None:
    assert choose_tip(REFS, version) == tip


def test_a_name_of_a_different_tag_and_branch_is_refused() -> None:
    with pytest.raises(ResolveError, match="write refs/tags/main or refs/heads/main"):
        choose_tip(REFS, "main")
    refs = {"refs/tags/main": TAG, "refs/tags/main^{}": A, "refs/heads/main": A}
    assert choose_tip(refs, "main") == Tip(commit=A, is_tag=True)


def test_an_ambiguous_prefix_of_a_commit_is_not_found() -> None:
    refs = {"refs/heads/a": "12345678" + "0" * 32, "refs/heads/b": "12345678" + "1" * 32}
    assert choose_tip(refs, "12345678") == Tip()
    assert choose_tip(refs, "123456780").commit == refs["refs/heads/a"]


def test_complete_commit_ids_are_recognized() -> None:
    assert git.is_whole_commit(A)
    assert git.is_whole_commit("0" * 64)
    assert not git.is_whole_commit(A[:-1])
    assert not git.is_whole_commit("G" * 40)
    assert choose_tip({"refs/heads/a": "0" * 64}, "a").is_sha256


@given(user=st.text(max_size=5).map(lambda text: text.replace(":", "")), password=st.text(min_size=1, max_size=8))
def test_credentials_are_passed_to_git_in_the_environment_only(user: str, password: str) -> None:
    url_with_credentials = f"https://{quote(user, safe='')}:{quote(password, safe='')}@Host.example:8443/group/p.git/"
    target = repository(url_with_credentials, {"PATH": "/bin", "HOME": "/home/x", "LD_PRELOAD": "/evil.so"})
    assert target.url == "https://host.example:8443/group/p.git"
    env = environment_of(target)
    (header,) = [value for value in env.values() if value.startswith("Authorization: Basic ")]
    assert base64.b64decode(header.split()[2]).decode() == f"{user}:{password}"
    assert env["HOME"] == "/nonexistent"
    assert "LD_PRELOAD" not in env
    assert "http.https://host.example:8443/.extraHeader" in env.values()


def test_a_url_without_a_scheme_is_https() -> None:
    assert repository("user:pw@host/p", {}).url == "https://host/p"
    for url in ("file:///tmp/x", "ssh://git@host/x", "https:///x"):
        with pytest.raises(ResolveError, match="not the address of a git repository"):
            repository(url, {})


def test_certificate_settings_are_passed_to_git() -> None:
    env = {"CI_SERVER_TLS_CA_FILE": "/ca.pem", "CI_SERVER_URL": "https://ci.example", "SSL_CERT_FILE": "/all.pem"}
    git_env = environment_of(repository("https://host/p", env))
    number = next(key for key, value in git_env.items() if value == "http.https://ci.example.sslCAInfo")[-1]
    assert git_env[f"GIT_CONFIG_VALUE_{number}"] == "/ca.pem"
    assert git_env["GIT_SSL_CAINFO"] == "/all.pem"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("fatal: Authentication failed for 'https://h/p/'", ResolveError, "asks for credentials"),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", ResolveError, "credentials"),
        ("remote: x\nfatal: repository 'https://h/p/' not found", ResolveError, "cannot be read: repository"),
        (
            f"{UNABLE}: The requested URL returned error: 404",
            ResolveError,
            "cannot be read",
        ),
        (f"{UNABLE}: The requested URL returned error: 503", TemporaryResolveError, "503"),
        (
            f"{UNABLE}: Could not resolve host: h",
            TemporaryResolveError,
            "cannot be reached",
        ),
        (f"{UNABLE}: Failed to connect to h port 1", TemporaryResolveError, "reached"),
        (
            f"{UNABLE}: server certificate verification failed. CAfile: none CRLfile: none",
            TemporaryResolveError,
            "package ca-certificates",
        ),
        (
            f"{UNABLE}: Problem with the SSL CA cert (path? access rights?)",
            TemporaryResolveError,
            "package ca-certificates",
        ),
        ("", TemporaryResolveError, "git gave no reason"),
    ],
)
def test_error_messages_of_git_are_classified(text: str, kind: type[ResolveError], message: str) -> None:
    error = failure(repository("https://h/p", {}), text)
    assert type(error) is kind
    assert message in str(error)


async def test_invalid_versions_are_refused_before_git_is_called() -> None:
    for version in ("", "--upload-pack=evil", "a b", "a\nb"):
        with pytest.raises(ResolveError, match="is not a version"):
            await git.ask(repository("https://h/p", {}), version)


def test_names_that_git_does_not_create_are_refused(tmp_path: Path) -> None:
    for name in ("../x", "a/../../x", ".git/config", "a/.GIT/hooks/x", "a//b", "./a"):
        with pytest.raises(ResolveError, match="a name that git does not create"):
            git._write(tmp_path / "out", name, "100644", io.BytesIO(), 0)
    assert git._write(tmp_path / "out", "a", "120000", io.BytesIO(b"/tmp"), 4)
    with pytest.raises(ResolveError, match="twice"):
        git._write(tmp_path / "out", "a", "100644", io.BytesIO(), 0)
    with pytest.raises(ResolveError, match="too long"):
        git._write(tmp_path / "out", "b", "120000", io.BytesIO(b"x" * 5000), 5000)


def test_files_are_read_from_a_stream_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_CHUNK", 3)
    source = io.BytesIO(b"0123456789\nrest")
    assert git._write(tmp_path, "whole", "100755", source, 10)
    assert ((tmp_path / "whole").read_bytes(), source.read(1)) == (b"0123456789", b"\n")
    assert not git._write(tmp_path, "cut", "100644", source, 10)
