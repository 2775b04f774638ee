"""Finds the TLS files of a runner: `tls-ca-file` and others, or else `certs/HOST.crt`, `HOST.auth.crt` and
`HOST.auth.key` beside the configuration file. Jobs get the certificate authority, never the runner's own key."""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.manager.config.values import RunnerConfig


def with_certificates(runner: RunnerConfig, folder: Path) -> RunnerConfig:
    """Add TLS files for the runner's server from `folder`, if they exist and the runner's section names none."""
    host = urlsplit(runner.url).hostname
    if not host or not runner.url.startswith("https:") or not folder.is_dir():
        return runner
    files: dict[str, str] = {}
    if not runner.tls_ca_file and (folder / f"{host}.crt").is_file():
        files["tls_ca_file"] = str(folder / f"{host}.crt")
    own, key = folder / f"{host}.auth.crt", folder / f"{host}.auth.key"
    if not runner.tls_cert_file and own.is_file() and key.is_file():
        files |= {"tls_cert_file": str(own), "tls_key_file": str(key)}
    return msgspec.structs.replace(runner, **files) if files else runner


def authority_of(runner: RunnerConfig) -> str:
    """Return the server's certificate authority as PEM; empty if none is configured or readable, or without https."""
    if not runner.tls_ca_file or not runner.url.startswith("https:"):
        return ""
    try:
        return Path(runner.tls_ca_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""  # the manager's own calls report the error
