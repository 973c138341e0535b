"""Secrets are references; this resolves them, in the activity that needs the value."""

from pathlib import Path

PREFIX = "secret://file/"
LIMIT = 64 * 1024


class SecretError(Exception):
    """A reference that leads to no usable secret. The message never holds a value."""


class FileSecrets:
    """`secret://file/<path>`: a file below the tenant's own folder, which links and `..` cannot leave.

    The tenant is part of the path and never of the reference: no tenant can name another's secret.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def resolve(self, tenant_id: str, reference: str) -> str:
        """The secret's text. Raises SecretError; blocking, but only as long as a small file takes."""
        if not reference.startswith(PREFIX):
            raise SecretError(f"{reference}: only {PREFIX}<path> references are served by this release")
        own = self._root / tenant_id
        path = (own / reference.removeprefix(PREFIX)).resolve()
        if tenant_id in (".", "..") or not path.is_relative_to(own):
            raise SecretError(f"{reference}: leads out of the folder of tenant {tenant_id}")
        if not path.is_file():
            raise SecretError(f"{reference}: there is no such file in the folder of tenant {tenant_id}")
        try:
            if path.stat().st_size > LIMIT:
                raise SecretError(f"{reference}: is larger than {LIMIT} bytes")
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SecretError(f"{reference}: cannot be read: {type(error).__name__}") from error
        if not text.strip():
            raise SecretError(f"{reference}: is empty")
        return text
