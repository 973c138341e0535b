"""Parsing of private keys and comparison of host keys."""

from __future__ import annotations

import io

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from activities.ssh.errors import AuthError, HostKeyError


def parse_private_key(text: str) -> paramiko.PKey:
    """Read an ed25519, ECDSA or RSA key in any text format (OpenSSH, PKCS#1, SEC1, PKCS#8).

    The formats are unified by way of OpenSSH's, since paramiko's classes do not read all of them.
    Raises AuthError without repeating any of the text.
    """
    key = _load(text.strip().encode() + b"\n")
    kind: type[paramiko.PKey]
    if isinstance(key, ed25519.Ed25519PrivateKey):
        kind = paramiko.Ed25519Key
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        kind = paramiko.ECDSAKey
    elif isinstance(key, rsa.RSAPrivateKey):
        kind = paramiko.RSAKey
    else:
        raise AuthError(
            f"private key of type {type(key).__name__} is not supported; use ed25519, ECDSA or RSA"
        )
    openssh = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return kind.from_private_key(io.StringIO(openssh.decode()))


def _load(data: bytes) -> object:
    try:
        if b"BEGIN OPENSSH PRIVATE KEY" in data:
            return serialization.load_ssh_private_key(data, password=None)
        return serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AuthError(
            f"the private key cannot be read ({type(error).__name__}); "
            "it must be an OpenSSH or PEM key without a passphrase"
        ) from None


def host_key_text(key: paramiko.PKey) -> str:
    """A host key as `type base64`, the form it is pinned in."""
    return f"{key.get_name()} {key.get_base64()}"


def pinned_parts(pinned: str, endpoint: str) -> tuple[str, str]:
    """Type and base64 of a pinned key; a comment after them is dropped. Raises HostKeyError."""
    parts = pinned.split()
    if len(parts) < 2:
        raise HostKeyError(f"{endpoint}: the pinned host key is not of the form 'type base64'")
    return parts[0], parts[1]
