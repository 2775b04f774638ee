from pathlib import Path

import pytest

from remuda.stdsteps.checkout.git import (
    Remote,
    find_reason,
    format_config,
    is_transient,
    is_unreachable,
    split_credentials,
    write_config,
)
from remuda.stdsteps.common.errors import StepError


def test_credentials_are_removed_from_the_url() -> None:
    remote = split_credentials("https://user:p%40ss@host:8443/g/p.git")
    assert remote == Remote(
        url="https://host:8443/g/p.git", origin="https://host:8443/", header="Authorization: Basic dXNlcjpwQHNz"
    )


@pytest.mark.parametrize("url", ["file:///srv/p.git", "/srv/p.git", "git@host:g/p.git", "https://host/p.git"])
def test_urls_without_credentials_are_unchanged(url: str) -> None:
    assert split_credentials(url).url == url
    assert split_credentials(url).header is None


def test_a_missing_url_is_an_error() -> None:
    with pytest.raises(StepError, match="repo_url: required"):
        split_credentials("")


def test_the_configuration_file_is_private(tmp_path: Path) -> None:
    path = write_config(tmp_path, split_credentials("http://u:p@h/x"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert '[http "http://h/"]' in path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "fatal: unable to access 'http://h/': Failed to connect to h port 1 after 404 ms: Couldn't connect",
        "fatal: unable to access 'http://h/': Could not resolve host: h",
        "fatal: unable to access 'http://h/': The requested URL returned error: 503",
        "fatal: unable to access 'http://h/': Recv failure: Connection reset by peer",
        "fatal: unable to access 'http://h/': Empty reply from server",
        "error: RPC failed; curl 18 transfer closed with outstanding read data remaining\nfatal: early EOF",
        "fetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF",
        "fatal: the remote end hung up unexpectedly",
        "fatal: expected flush after ref listing",
    ],
)
def test_errors_of_an_unreachable_server_are_transient(text: str) -> None:
    assert is_transient(text)
    assert is_unreachable(text)


@pytest.mark.parametrize(
    "text",
    [
        "fatal: Authentication failed for 'http://h/'",
        "fatal: unable to access 'http://h/': The requested URL returned error: 403",
        "fatal: repository 'http://h/' not found",
        "fatal: remote error: upload-pack: not our ref 00\nfatal: the remote end hung up unexpectedly",
        "error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413",
        "error: Server does not allow request for unadvertised object 00",
        "fatal: transport 'file' not allowed\nfatal: clone of 'file:///x' into submodule path '/y' failed",
    ],
)
def test_refusals_are_final(text: str) -> None:
    assert not is_transient(text)


def test_ssh_urls_of_the_server_are_replaced_by_https(tmp_path: Path) -> None:
    text = write_config(tmp_path, split_credentials("https://u:p@h:8443/g/x.git"), instead_of_ssh=True).read_text()
    assert '[url "https://h:8443/"]\n\tinsteadOf = git@h:\n\tinsteadOf = ssh://git@h/\n' in text


def test_the_reason_is_the_first_fatal_error() -> None:
    text = (
        "Cloning into 'm'...\nfatal: repository 'u' not found\nfatal: clone of 'u' into 'm' failed\nFailed to clone 'm'"
    )
    assert find_reason(text) == "fatal: repository 'u' not found"
    assert find_reason("one\n\ntwo\n") == "two"
    assert find_reason("") == "git gave no reason"


@pytest.mark.parametrize(("url", "allowed"), [("file:///r/p.git", True), ("https://h/p.git", False)])
def test_local_submodules_are_allowed_for_local_repositories_only(tmp_path: Path, url: str, allowed: bool) -> None:
    assert ('[protocol "file"]' in write_config(tmp_path, split_credentials(url)).read_text()) is allowed


def test_the_certificate_authority_is_set_for_the_server_only() -> None:
    text = format_config(split_credentials("https://u:p@h.example/x.git"), authority="/a b/ca.pem")
    assert '[http "https://h.example/"]\n\tsslCAInfo = "/a b/ca.pem"' in text
    assert "sslCAInfo" not in format_config(split_credentials("http://u:p@h/x.git"), authority="/ca.pem")
    assert "sslCAInfo" not in format_config(split_credentials("https://u:p@h/x.git"))
