"""Whom to trust about a server: the files of `tls-ca-file` and its like, or those that lie beside the configuration.

gitlab-runner looks for `certs/HOST.crt` beside its file (`HOST.auth.crt` and `HOST.auth.key` for the runner's own
certificate) where a runner names none; so does this. Jobs get the authority as a file of theirs, because they may run
on another machine; the runner's own key they never get.
"""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.manager.config.values import RunnerConfig


def with_certificates(runner: RunnerConfig, folder: Path) -> RunnerConfig:
    """The runner with the files that lie in a folder for its server, where it names none."""
    host = urlsplit(runner.url).hostname
    if not host or not runner.url.startswith("https:") or not folder.is_dir():
        return runner
    found: dict[str, str] = {}
    if not runner.tls_ca_file and (folder / f"{host}.crt").is_file():
        found["tls_ca_file"] = str(folder / f"{host}.crt")
    own, key = folder / f"{host}.auth.crt", folder / f"{host}.auth.key"
    if not runner.tls_cert_file and own.is_file() and key.is_file():
        found |= {"tls_cert_file": str(own), "tls_key_file": str(key)}
    return msgspec.structs.replace(runner, **found) if found else runner


def authority_of(runner: RunnerConfig) -> str:
    """The text of the authority's certificates; empty where there are none, or the address needs none."""
    if not runner.tls_ca_file or not runner.url.startswith("https:"):
        return ""
    try:
        return Path(runner.tls_ca_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""  # the manager's own calls to the server fail for it, and say so
