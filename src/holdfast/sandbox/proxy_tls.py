"""Ends TLS inside the proxy, on the way to the hosts of secrets: with a certificate of its own towards the program,
and a verified connection towards the server. Between the two lies plain HTTP, which `proxy_exchange` reads.
`proxy_streams` moves the bytes.

The authority for these certificates is made in the driver and given to the proxy. Its key is in memory only, and only
the sandboxes of its runtime trust it.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import SYSTEM_CLOCK
from holdfast.protocol.allowed import address_of
from holdfast.protocol.traffic import Authority
from holdfast.sandbox.unnamed import unnamed_file

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

BUNDLE = "/run/holdfast/ca.pem"
"""Where programs inside find the authorities that they may trust, if a sandbox has files of its own."""
_VARIABLES = (
    "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT",
    "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT",
)  # fmt: skip
_DAYS = 3_650
"""How long certificates are valid: longer than any runtime and its commands live. Their keys are on no disk."""
_MACHINES = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)  # fmt: skip
"""Where systems keep the authorities that they trust."""
_MOST_HOSTS = 256


def variables(bundle: str = BUNDLE) -> dict[str, str]:
    """Return what tells programs which authorities they may trust: those in this file."""
    return dict.fromkeys(_VARIABLES, bundle)


# --- certificates ---------------------------------------------------------------------------------


def new_authority() -> Authority:
    """Return a new authority, which nothing trusts yet."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "Holdfast, for one sandbox")])
    certificate = (
        _begun(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), _key_pem(key))


def bundle(authority: Authority) -> bytes:
    """Return all that programs inside may trust: what this machine trusts, and this authority."""
    system = next(filter(os.path.isfile, _MACHINES), None)
    chosen = {system, ssl.get_default_verify_paths().cafile} - {None}
    found = [Path(file).read_bytes() for file in sorted(filter(None, chosen))]
    return b"\n".join([*found, authority.certificate.encode()])


class Certificates:
    """Makes a certificate for each host, and keeps it."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._contexts = dict[str, ssl.SSLContext]()

    def context(self, host: str) -> ssl.SSLContext:
        """Return what a server of this name needs."""
        found = self._contexts.get(host)
        if found is None:
            if len(self._contexts) >= _MOST_HOSTS:
                self._contexts.clear()
            found = self._contexts[host] = self._made(host)
        return found

    def _made(self, host: str) -> ssl.SSLContext:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        above = x509.load_pem_x509_certificate(self._authority.certificate.encode())
        signing = serialization.load_pem_private_key(self._authority.key.encode(), None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        is_address = address_of(host) is not None
        named = x509.IPAddress(ipaddress.ip_address(host)) if is_address else x509.DNSName(host)
        certificate = (
            _begun(x509.Name([]), above.subject, key)
            .add_extension(x509.SubjectAlternativeName([named]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
            )
            .sign(signing, hashes.SHA256())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with unnamed_file() as file:
            file.write((_key_pem(key) + _pem(certificate)).encode())
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context


def _begun(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() // 1000, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")  # fmt: skip
    used = {"key_cert_sign", "crl_sign"} if is_authority else {"digital_signature"}
    return x509.KeyUsage(**{name: name in used for name in names})


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: str = certificate.public_bytes(Encoding.PEM).decode()
    return text


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


@cache
def trusting() -> ssl.SSLContext:
    """Return what verifies servers, as this machine does."""
    return ssl.create_default_context()
