"""Finds and checks the TLS files of a runner: `tls-ca-file` and others, or else `certs/HOST.crt`, `HOST.auth.crt` and
`HOST.auth.key` beside the configuration file. Jobs get the certificate authority, never the runner's own key."""

import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.manager.config.values import RunnerConfig

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_ENCRYPTED = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


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


def find_tls_problems(runners: Iterable[tuple[int, RunnerConfig]]) -> Iterator[str]:
    """Yield a text for each TLS file of a runner that cannot be used, beginning with the key. A manager with such a
    file does not start. `runners`: with their index in the configuration."""
    for index, runner in runners:
        where = f"runners[{index}]"
        names = {"ca": runner.tls_ca_file, "cert": runner.tls_cert_file, "key": runner.tls_key_file}
        files = {f"{where}.tls-{kind}-file": (kind, name) for kind, name in names.items() if name}
        problems = [f"{key}: {name}: {text}" for key, (kind, name) in files.items() if (text := _problem(kind, name))]
        yield from problems
        if not problems and runner.tls_cert_file and runner.tls_key_file and not _is_pair(runner):
            text = f"does not belong to the certificate {runner.tls_cert_file}; name the key that it was made with"
            yield f"{where}.tls-key-file: {runner.tls_key_file}: {text}"


def _problem(kind: str, name: str) -> str:
    """Return why a file cannot be used, empty if it can. `kind`: `ca`, `cert` or `key`."""
    try:
        content = Path(name).read_bytes()
    except FileNotFoundError:
        return "no such file; correct the path, or write the file there"
    except OSError as error:
        return f"cannot be read: {error.strerror}; let the manager's user read it, or name another file"
    if kind == "key":
        if any(mark in content for mark in _ENCRYPTED):
            return "needs a passphrase, and the manager has none; write the key without one (openssl pkey)"
        return "" if b"PRIVATE KEY-----" in content else "has no private key in PEM form; name the file with the key"
    missing = "has no certificate in PEM form (-----BEGIN CERTIFICATE-----); convert it, or name another file"
    if _CERTIFICATE not in content:
        return missing
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except ssl.SSLError as error:
        return f"has a damaged certificate ({error.reason or error}); write it again"
    return ""


def _is_pair(runner: RunnerConfig) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(runner.tls_cert_file, runner.tls_key_file)
    except (OSError, ssl.SSLError):
        return False
    return True
