"""The address, user and keys of one machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where to log in and as whom.

    `private_key` is the text of an OpenSSH or PEM key (ed25519, ECDSA, RSA) without a passphrase; it is kept
    out of `repr`. `host_key` is the pinned key as `ssh-ed25519 AAAA...`; None trusts what is shown on first
    use, and the connection then reports the key it saw.
    """

    address: str
    port: int
    user: str
    private_key: str = field(repr=False)
    host_key: str | None = None

    @property
    def endpoint(self) -> str:
        """`address:port`, for messages."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    @property
    def identity(self) -> tuple[str, int, str, str, str | None]:
        """What two targets must have in common to share a connection. Holds a digest, not the key."""
        digest = hashlib.sha256(self.private_key.encode()).hexdigest()
        return (self.address, self.port, self.user, digest, self.host_key)
