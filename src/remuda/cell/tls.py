"""TLS of a cell's HTTP server: reads certificate and key, and reads them again when they are renewed.

A renewed certificate counts for new connections; open ones go on with theirs. As long as the new files are no pair (the
certificate is already new, the key not yet), the old pair stays in use. `CellService` creates a `ServerCertificate`,
`CellServer` takes its context for each connection."""

import asyncio
import ipaddress
import ssl
import stat
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from remuda.cell.errors import CellError
from remuda.cell.settings import CellSettings
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_event
from remuda.telemetry.logs import logger

LOOK_SECONDS = 10.0
"""How often the cell looks whether the files have changed."""
SOON = timedelta(days=7)
"""The log warns of a certificate that expires within this time, once a day."""
_DAY_SECONDS = 24 * 3600.0

_log = logger("cell")


class ServerCertificate:
    """The certificate and key of `settings`. Creating one raises CellError if they cannot be used."""

    def __init__(self, settings: CellSettings, clock: Clock) -> None:
        assert settings.tls_certificate is not None
        self._certificate = settings.tls_certificate
        self._key = settings.tls_key or settings.tls_certificate
        self._url = settings.url
        self._clock = clock
        self._look = self._look_at_files()
        self._refused = self._look
        """State of the files that could not be used, so that each is reported once."""
        self._warned_at = clock.monotonic()
        self.context, self._leaf = self._load()
        """The context of new connections. A renewal makes another: a context keeps a certificate for each type of key,
        and would go on to serve the old one if the new one has another type."""

    @property
    def expires_at(self) -> datetime:
        return self._leaf.not_valid_after_utc

    def warnings(self) -> list[str]:
        """Return what an operator should correct, though the cell can serve."""
        now = datetime.fromtimestamp(self._clock.now(), self.expires_at.tzinfo)
        warnings = []
        if now > self.expires_at:
            warnings.append(f"{self._certificate}: expired at {self.expires_at:%Y-%m-%d %H:%M} UTC; clients refuse it")
        elif now + SOON > self.expires_at:
            warnings.append(f"{self._certificate}: expires at {self.expires_at:%Y-%m-%d %H:%M} UTC; renew it")
        if now < self._leaf.not_valid_before_utc:
            begin = f"{self._leaf.not_valid_before_utc:%Y-%m-%d %H:%M}"
            warnings.append(f"{self._certificate}: is not valid before {begin} UTC; compare the clocks")
        with suppress(OSError):  # `reload` reports a missing key
            if self._key.stat().st_mode & stat.S_IRWXO:
                warnings.append(f"{self._key}: other users of this machine can read the key; chmod o= {self._key}")
        host = urlsplit(self._url).hostname or ""
        names = read_names(self._leaf)
        if not any(covers(name, host) for name in names):
            warnings.append(
                f"{self._certificate}: is for {', '.join(names) or 'no host'}, and the cell's address is {self._url}; "
                "set public_url to an address that the certificate is for"
            )
        return warnings

    def log_warnings(self) -> None:
        self._warned_at = self._clock.monotonic()
        for warning in self.warnings():
            _log.warning("certificate needs attention", problem=warning)

    async def watch(self, stop: asyncio.Event) -> None:
        """Read the files again whenever they have changed; warn once a day of a certificate that expires."""
        while not await wait_for_event(stop, within_seconds=LOOK_SECONDS):
            self.reload_if_changed()
            if self._clock.monotonic() - self._warned_at >= _DAY_SECONDS:
                self.log_warnings()

    def reload_if_changed(self) -> None:
        if self._look_at_files() not in (self._look, self._refused):
            self.reload()

    def reload(self) -> None:
        """Use the certificate and key that the files have now; if they are unusable, keep those in memory."""
        look = self._look_at_files()
        try:
            self.context, self._leaf = self._load()
        except CellError as error:
            self._refused = look
            _log.warning("cannot use the new certificate; keeping the old one", error=str(error))
            return
        self._look = self._refused = look
        _log.info("certificate reloaded", file=str(self._certificate), expires=self.expires_at.isoformat())
        self.log_warnings()

    def _look_at_files(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes whenever one of the files, or a link to it, is replaced or written."""
        looks = []
        for path in (self._certificate, self._key):
            try:
                status = path.stat()
                looks.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                looks.append((0, 0, 0))
        return tuple(looks)

    def _load(self) -> tuple[ssl.SSLContext, x509.Certificate]:
        """Load both files into a context of their own."""
        text = _read("tls_certificate", self._certificate)
        _read("tls_key", self._key)
        try:
            leaf = x509.load_pem_x509_certificates(text)[0]
        except ValueError:
            raise CellError(
                f"tls_certificate {self._certificate}: has no certificate in PEM form, which begins with "
                "-----BEGIN CERTIFICATE-----"
            ) from None
        context = _new_context()
        try:
            context.load_cert_chain(self._certificate, self._key, password=self._refuse_passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise CellError(
                    f"tls_key {self._key}: is not the key of the first certificate in {self._certificate}; the cell's "
                    "own certificate must come first, before those of its authorities"
                ) from None
            raise CellError(
                f"tls_key {self._key}: has no private key in PEM form that can be used ({error.reason or error})"
            ) from None
        except OSError as error:
            raise CellError(
                f"tls_certificate {self._certificate}: cannot be loaded with its key: {error.strerror}"
            ) from None
        return context, leaf

    def _refuse_passphrase(self) -> str:
        raise CellError(
            f"tls_key {self._key}: is encrypted with a passphrase; write it without one: "
            f"openssl pkey -in {self._key} -out NEW"
        )


def read_names(certificate: x509.Certificate) -> Sequence[str]:
    """Return the host names and addresses that the certificate is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def covers(name: str, host: str) -> bool:
    """True if a certificate for `name`, which may begin with `*.`, is accepted for the host."""
    try:
        return ipaddress.ip_address(host) == ipaddress.ip_address(name)
    except ValueError:
        name, host = name.lower(), host.lower()
        return name == host or (name.startswith("*.") and name[2:] == host.partition(".")[2])


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _read(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CellError(f"{setting} {path}: cannot be read: {error.strerror}") from None
