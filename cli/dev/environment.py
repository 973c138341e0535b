"""The environment of processes that must not depend on the caller's shell."""

import os

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "SSL_CERT_FILE", "VIRTUAL_ENV")


def clean_environment(**added: str) -> dict[str, str]:
    """The few general variables of this process, and `added`; never a stray PG* or TEMPORAL_* one."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, **added}
