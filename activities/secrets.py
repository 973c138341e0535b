"""Secrets are references; this resolves them, in the activity that needs the value."""

from pathlib import Path

PREFIX = "secret://file/"
LIMIT = 64 * 1024


class SecretError(Exception):
    """A reference that leads to no usable secret. The message never holds a value."""


class FileSecrets:
    """`secret://file/<path>`: a file below one folder, which links and `..` cannot leave."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def resolve(self, reference: str) -> str:
        """The secret's text. Raises SecretError; blocking, but only as long as a small file takes."""
        if not reference.startswith(PREFIX):
            raise SecretError(f"{reference}: only {PREFIX}<path> references are served by this release")
        path = (self._root / reference.removeprefix(PREFIX)).resolve()
        if not path.is_relative_to(self._root):
            raise SecretError(f"{reference}: leads out of the secrets folder")
        if not path.is_file():
            raise SecretError(f"{reference}: there is no such file in the secrets folder")
        try:
            if path.stat().st_size > LIMIT:
                raise SecretError(f"{reference}: is larger than {LIMIT} bytes")
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SecretError(f"{reference}: cannot be read: {type(error).__name__}") from error
        if not text.strip():
            raise SecretError(f"{reference}: is empty")
        return text
