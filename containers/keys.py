"""Make certificates and keys for the federation of `compose.yaml`, once: `keys.py SERVER_DIR NODE_DIR...`.

Each directory gets only what its container needs. The key of the certificate authority is not kept, so new
devices need new certificates; docs/deploy.md shows how to do it with an authority of your own.
"""

import sys
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

DAYS = 825
NAMES = ("superlink", "localhost")  # by which nodes, users and its own processes reach the SuperLink


def name_of(common: str) -> x509.Name:
    """Return a name that holds a common name only."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def certificate(
    common: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    """Return a certificate for `key`; with its own key as the issuer's, one of an authority."""
    now = datetime.now(UTC)
    is_authority = key is issuer_key
    builder = (
        x509.CertificateBuilder()
        .subject_name(name_of(common))
        .issuer_name(name_of(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if not is_authority:
        builder = builder.add_extension(
            x509.SubjectAlternativeName(
                [*(x509.DNSName(name) for name in NAMES), x509.IPAddress(IPv4Address("127.0.0.1"))]
            ),
            critical=False,
        )
    return builder.sign(issuer_key, hashes.SHA256())


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def main(server: Path, nodes: list[Path]) -> None:
    """Write the files of the server and of each node, unless the server has its certificate already."""
    if (server / "server.crt").exists():
        print("certificates and keys are there already")
        return
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = certificate("federation", authority_key, "federation", authority_key).public_bytes(
        Encoding.PEM
    )
    for node in nodes:
        key = ec.generate_private_key(ec.SECP384R1())
        write_secret(node / "key", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        (node / "ca.crt").write_bytes(authority)
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        (server / f"{node.name}.pub").write_bytes(public + b"\n")
    (server / "ca.crt").write_bytes(authority)
    write_secret(
        server / "server.key",
        server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
    issued = certificate("superlink", server_key, "federation", authority_key)
    (server / "server.crt").write_bytes(
        issued.public_bytes(Encoding.PEM)
    )  # last: a half-written set is made anew
    print(f"made certificates and keys for the server and {len(nodes)} nodes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
