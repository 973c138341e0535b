"""Identifiers: a kind, an underscore, and a body of 26 (made here) to 52 (derived) characters."""

import hashlib
import secrets
import time

# Crockford's base 32 in lower case, the alphabet of `[0-9a-hjkmnp-tv-z]`.
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
BODY = r"[0-9a-hjkmnp-tv-z]{26,52}"


def _encode(number: int, length: int) -> str:
    return "".join(ALPHABET[(number >> (5 * position)) & 31] for position in reversed(range(length)))


def new_id(kind: str) -> str:
    """A fresh id such as `node_01k...`: 48 bits of milliseconds, then 80 random bits (as a ULID)."""
    return f"{kind}_{_encode(time.time_ns() // 1_000_000 << 80 | secrets.randbits(80), 26)}"


def derived_id(kind: str, *parts: str) -> str:
    """The same parts always give the same id: base 32 of SHA-256, 52 characters."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return f"{kind}_{_encode(int.from_bytes(digest) << 4, 52)}"
