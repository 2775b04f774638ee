"""A certificate authority for tests, which issues certificates for servers."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)
_OTHER_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "encipher_only", "decipher_only"),
)


class Authority:
    """An authority with a key of its own; `file` is its certificate. `parent`: the authority that vouches for it."""

    def __init__(self, folder: Path, name: str = "Test Authority", parent: "Authority | None" = None) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        signer = parent or self
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _certificate(self._name, signer._name, self._key, -DAY, 30 * DAY, signer._key)
        usage = dict.fromkeys(_OTHER_USES, False) | {"key_cert_sign": True, "crl_sign": True}
        builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
        self._certificate = builder.add_extension(constraints, critical=True).sign(signer._key, hashes.SHA256())
        self.file = folder / f"{name.lower().replace(' ', '-')}.crt"
        self.file.write_bytes(self.pem)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        *names: str,
        file: str = "cell",
        begins: dt.timedelta = -DAY,
        ends: dt.timedelta = 20 * DAY,
        with_rsa: bool = False,
    ) -> tuple[Path, Path]:
        """Write a certificate for these host names and addresses, and its key. Returns both files; existing ones are
        replaced. `begins`, `ends`: from now. `with_rsa`: with a key of that type instead of elliptic curves."""
        key = rsa.generate_private_key(65537, 2048) if with_rsa else ec.generate_private_key(ec.SECP256R1())
        leaf = (
            _certificate(_name(names[0]), self._name, key, begins, ends, self._key)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = self._folder / f"{file}.crt", self._folder / f"{file}.key"
        contents = (
            leaf.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
        for path, content in zip(files, contents, strict=True):
            new = path.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_bytes(content)
            new.rename(path)
        return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    begins: dt.timedelta,
    ends: dt.timedelta,
    signing_key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
