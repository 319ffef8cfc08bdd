"""Keys and certificates of a control plane, made anew for each.

The API server trusts clients of `ca`; extension API servers trust the API server by `front-proxy-ca`. `control_plane` names
the files to the programs.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=7)
_NAMES = ("localhost", "kubernetes.default.svc")


@dataclass(frozen=True)
class _Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def write(folder: Path) -> None:
    """Write `ca`, `server`, `admin`, `front-proxy-ca` and `front-proxy` as .crt and .key, and the key `sa.key` for tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    ca, front_proxy_ca = _authority(folder, "ca"), _authority(folder, "front-proxy-ca")
    _leaf(folder, "server", ca, _name("kube-apiserver"), server=True)
    _leaf(folder, "admin", ca, _name("admin", organization="system:masters"))
    _leaf(folder, "front-proxy", front_proxy_ca, _name("front-proxy-client"))
    _write_key(folder / "sa.key", _key())


def _authority(folder: Path, name: str) -> _Authority:
    key = _key()
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _certificate(_name(name), _name(name), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder, name, key, certificate)
    return _Authority(key, certificate)


def _leaf(folder: Path, name: str, authority: _Authority, subject: x509.Name, *, server: bool = False) -> None:
    key = _key()
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _certificate(subject, authority.certificate.subject, key)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(issuer, critical=False)
    )
    if server:
        names = [x509.DNSName(one) for one in _NAMES]
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([*names, address]), critical=False)
    _write(folder, name, key, builder.sign(authority.key, hashes.SHA256()))


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + _LIFE)
    )


def _name(common: str, *, organization: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization is not None:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    _write_key(folder / f"{name}.key", key)
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
