from pathlib import Path

import pytest

from remuda.stdsteps.checkout import Remote, private_config, split_credentials
from remuda.stdsteps.errors import StepError


def test_credentials_leave_the_address() -> None:
    remote = split_credentials("https://user:p%40ss@host:8443/g/p.git")
    assert remote == Remote(
        url="https://host:8443/g/p.git", origin="https://host:8443/", header="Authorization: Basic dXNlcjpwQHNz"
    )


@pytest.mark.parametrize("url", ["file:///srv/p.git", "/srv/p.git", "git@host:g/p.git", "https://host/p.git"])
def test_other_addresses_stay_as_they_are(url: str) -> None:
    assert split_credentials(url).url == url
    assert split_credentials(url).header is None


def test_no_address_is_an_error() -> None:
    with pytest.raises(StepError, match="repo_url: needed"):
        split_credentials("")


def test_the_configuration_is_private(tmp_path: Path) -> None:
    path = private_config(tmp_path, split_credentials("http://u:p@h/x"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert '[http "http://h/"]' in path.read_text()
