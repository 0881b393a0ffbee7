"""Test keys and certificates for a deployment with TLS and authenticated nodes.

In production, a hospital's own certificate authority signs the server's certificate, and each node generates its own
key: a private key never leaves its machine.
"""

import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, write_bytes, write_text

DAYS = 30
BEFORE = datetime.timedelta(days=1)
"""How far a clock may be behind the machine that makes a certificate."""
AUTHORITY, CERTIFICATE, KEY = "ca.crt", "server.pem", "server.key"
"""TLS files in the folder of keys."""
CONNECTION = "config.toml"
"""Flower's own configuration in the folder of keys: where the command `flwr` finds the server."""
LONGEST = 64
"""The most characters of a common name in X.509; clients compare the names of `SubjectAlternativeName` alone."""
SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""What an authority's key is for."""
LOOPBACK = ("localhost", "127.0.0.1")
"""In every server certificate: SuperLink's own processes reach it there."""


def make_keys(
    folder: Path, clients: int, hosts: Sequence[str], port: int, now: datetime.datetime | None = None
) -> None:
    """Writes a test authority `ca.crt`, the server's `server.pem` and `server.key`, `client0`, `client0.pub`, ..., and
    `config.toml`, with which `flwr` connects to the server if `FLWR_HOME` is this folder.

    Args:
      folder: where they are written; private keys are readable by their owner only.
      clients: number of nodes.
      hosts: names and addresses by which nodes reach the server, `LOOPBACK` apart; `flwr` takes the first.
      port: the server's.
      now: certificates are valid for `DAYS` from then on, and `BEFORE` it; None for the present.

    Raises:
      UserError: the folder has keys, which may be in use, or a host is empty or not ASCII.
    """
    if (folder / AUTHORITY).exists():
        raise UserError(f"--keys got '{folder}', which has keys already; expected a new folder; choose another name")
    hosts = list(dict.fromkeys([*hosts, *LOOPBACK]))
    names = [general_name(host) for host in hosts]
    make_folder(folder)
    folder.chmod(0o700)
    now = now or datetime.datetime.now(datetime.UTC)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = key_name("fdgjax test authority")
    root = certificate(issuer, issuer, authority.public_key(), now)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(SIGNS, critical=True)
    leaf = certificate(key_name(hosts[0][:LONGEST]), issuer, server.public_key(), now)
    # Python from 3.13 on checks by RFC 5280 strictly, which wants to know the issuer's key.
    vouching = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    leaf = leaf.add_extension(vouching, critical=False)
    leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for file, built in ((AUTHORITY, root), (CERTIFICATE, leaf)):
        write_bytes(folder / file, built.sign(authority, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))
    write_private(folder / KEY, server, serialization.PrivateFormat.PKCS8)
    for client in range(clients):
        write_node_key(folder, f"client{client}")
    write_text(folder / CONNECTION, connection(f"{hosts[0]}:{port}", folder.absolute() / AUTHORITY))


def connection(address: str, authority: Path) -> str:
    """Flower's configuration for one SuperLink; Flower expects an absolute path."""
    # A JSON string is valid TOML.
    return f"""[superlink]
default = "federation"

[superlink.federation]
address = {json.dumps(address)}
root-certificates = {json.dumps(str(authority))}
"""


def write_node_key(folder: Path, name: str) -> None:
    """Writes a node's key pair, `NAME` and `NAME.pub`, in OpenSSH's format, which Flower reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(folder / name, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_bytes(folder / f"{name}.pub", public + b"\n")


def write_private(file: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    """Writes a private key that only its owner can read."""
    write_bytes(file, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    file.chmod(0o600)


def key_name(words: str) -> x509.Name:
    """A name with this common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)])


def certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    """A certificate that is valid from `now` on, and on machines whose clock is behind, not yet signed."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def general_name(host: str) -> x509.GeneralName:
    """A host's name or address; raises a `UserError` for an empty one, or one that is not ASCII."""
    if not host or not host.isascii():
        raise UserError(
            f"--host got '{host}'; expected a name or address in ASCII, such as server.example or 192.0.2.1; write an "
            "international name as in DNS, xn--..."
        )
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
