import asyncio
import datetime as dt
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority

from remuda.cell import tls
from remuda.cell.errors import CellError
from remuda.cell.settings import CellSettings
from remuda.cell.tls import ServerCertificate, covers
from remuda.lib.clock import SystemClock

DAY = dt.timedelta(days=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def certificate_of(certificate: Path, key: Path | None = None, **settings: Any) -> ServerCertificate:
    settings = {"public_url": "https://cell.example", **settings}
    return ServerCertificate(
        CellSettings(data=Path("/nowhere"), tls_certificate=certificate, tls_key=key, **settings), SystemClock()
    )


def serial_at(server: ServerCertificate, authority: Authority, name: str | None = "cell.example") -> int:
    """Shake hands in memory. Returns the serial number that a client sees; it verifies the certificate."""
    client = ssl.create_default_context(cafile=str(authority.file))
    client.check_hostname = name is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    open_ends = list(ends)
    while open_ends:
        for end in list(open_ends):
            try:
                end.do_handshake()
                open_ends.remove(end)
            except ssl.SSLWantReadError:
                continue
    certificate = ends[0].getpeercert()
    assert certificate is not None
    return int(str(certificate["serialNumber"]), 16)


@pytest.mark.parametrize("name", ["cell.example", None])
def test_a_renewed_certificate_is_used_for_new_connections(authority: Authority, name: str | None) -> None:
    files = authority.issue("cell.example")
    server = certificate_of(*files)
    first = serial_at(server, authority, name)
    server.reload_if_changed()
    assert serial_at(server, authority, name) == first
    authority.issue("cell.example")
    server.reload_if_changed()
    assert serial_at(server, authority, name) != first


@pytest.mark.parametrize("with_rsa", [True, False])
def test_a_renewal_may_change_the_type_of_the_key(authority: Authority, with_rsa: bool) -> None:
    server = certificate_of(*authority.issue("cell.example", with_rsa=not with_rsa))
    first = serial_at(server, authority)
    authority.issue("cell.example", with_rsa=with_rsa)
    server.reload_if_changed()
    assert serial_at(server, authority) != first


def test_a_half_renewed_pair_keeps_the_old_one(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("cell.example")
    server = certificate_of(*files)
    first = serial_at(server, authority)
    new_certificate, new_key = authority.issue("cell.example", file="new")
    new_certificate.rename(files[0])
    server.reload_if_changed()
    assert serial_at(server, authority) == first
    new_key.rename(files[1])
    server.reload_if_changed()
    assert serial_at(server, authority) != first
    files[0].unlink()
    server.reload()
    assert serial_at(server, authority) != first


def test_the_key_may_be_in_the_certificates_file(authority: Authority, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(path.read_bytes() for path in authority.issue("cell.example")))
    assert serial_at(certificate_of(both), authority)


def test_intermediate_authorities_are_sent(authority: Authority, tmp_path: Path) -> None:
    intermediate = Authority(tmp_path, "Intermediate", parent=authority)
    certificate, key = intermediate.issue("cell.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        serial_at(certificate_of(certificate, key), authority)
    certificate.write_bytes(certificate.read_bytes() + intermediate.pem)
    assert serial_at(certificate_of(certificate, key), authority)


def test_tls_1_2_is_the_oldest_version(authority: Authority) -> None:
    assert certificate_of(*authority.issue("cell.example")).context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_missing_files_and_other_contents(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("cell.example")
    with pytest.raises(CellError, match=r"^tls_certificate /no.crt: cannot be read: No such file or directory$"):
        certificate_of(Path("/no.crt"), key)
    with pytest.raises(CellError, match=r"^tls_key /no.key: cannot be read: No such file or directory$"):
        certificate_of(certificate, Path("/no.key"))
    with pytest.raises(CellError, match=r"cell.key: has no certificate in PEM form"):
        certificate_of(key, key)
    with pytest.raises(CellError, match=r"tls_key .*cell.crt: has no private key in PEM form"):
        certificate_of(certificate)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(CellError, match=r"empty: has no certificate in PEM form"):
        certificate_of(empty, key)


def test_the_key_of_another_certificate(authority: Authority, tmp_path: Path) -> None:
    certificate, _ = authority.issue("cell.example")
    _, other_key = authority.issue("cell.example", file="other")
    with pytest.raises(CellError, match=r"tls_key .*other.key: is not the key of the first certificate in .*cell.crt"):
        certificate_of(certificate, other_key)


def test_an_encrypted_key(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as pem

    certificate, key = authority.issue("cell.example")
    private = pem.load_pem_private_key(key.read_bytes(), None)
    encryption = pem.BestAvailableEncryption(b"secret")
    key.write_bytes(private.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, encryption))
    with pytest.raises(CellError, match="is encrypted with a passphrase; write it without one: openssl pkey -in"):
        certificate_of(certificate, key)


def test_a_key_without_a_certificate() -> None:
    with pytest.raises(CellError, match="tls_key: needs a certificate; set tls_certificate, too"):
        CellSettings(data=Path("/nowhere"), tls_key=Path("/key"))


def test_no_warnings(authority: Authority) -> None:
    assert certificate_of(*authority.issue("cell.example")).warnings() == []


@pytest.mark.parametrize(
    ("begins", "ends", "warning"),
    [
        (-2 * DAY, -DAY, "expired at"),
        (-2 * DAY, 2 * DAY, "renew it"),
        (DAY, 30 * DAY, "is not valid before"),
    ],
)
def test_warning_about_validity(authority: Authority, begins: dt.timedelta, ends: dt.timedelta, warning: str) -> None:
    [text] = certificate_of(*authority.issue("cell.example", begins=begins, ends=ends)).warnings()
    assert warning in text


def test_warning_about_a_key_that_others_can_read(authority: Authority) -> None:
    certificate, key = authority.issue("cell.example")
    key.chmod(0o640)
    assert certificate_of(certificate, key).warnings() == []
    key.chmod(0o644)
    [text] = certificate_of(certificate, key).warnings()
    assert text == f"{key}: other users of this machine can read the key; chmod o= {key}"


def test_warnings_without_the_key_file(authority: Authority) -> None:
    certificate, key = authority.issue("cell.example", ends=2 * DAY)
    server = certificate_of(certificate, key)
    key.unlink()
    [text] = server.warnings()
    assert "renew it" in text


def test_a_key_that_vanishes_while_it_is_loaded(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = authority.issue("cell.example")
    server = certificate_of(certificate, key)
    new_context = tls._new_context

    def remove_key() -> ssl.SSLContext:
        key.unlink()
        return new_context()

    monkeypatch.setattr(tls, "_new_context", remove_key)
    with pytest.raises(CellError, match=r"^tls_certificate .*cell.crt: cannot be loaded with its key: No such file"):
        server._load()


def test_warning_about_another_host(authority: Authority) -> None:
    files = authority.issue("cell.example", "10.0.0.1")
    [text] = certificate_of(*files, public_url="https://other.example").warnings()
    assert "is for cell.example, 10.0.0.1, and the cell's address is https://other.example" in text


@pytest.mark.parametrize(
    ("name", "host", "expected"),
    [
        ("cell.example", "CELL.example", True),
        ("*.example", "cell.example", True),
        ("*.example", "a.cell.example", False),
        ("*.example", "example", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("::1", "::1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("cell.example", "10.0.0.1", False),
    ],
)
def test_covers(name: str, host: str, *, expected: bool) -> None:
    assert covers(name, host) is expected


async def test_watching_ends_with_the_cell(authority: Authority) -> None:
    stop = asyncio.Event()
    stop.set()
    async with asyncio.timeout(5):
        await certificate_of(*authority.issue("cell.example")).watch(stop)
