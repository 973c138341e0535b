"""Which API is meant, and as whom: options, environment, or the `bringup dev` of this directory."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CliError

DEFAULT_API = "http://127.0.0.1:8080"
DEFAULT_TENANT = "dev"
DEV_DIRECTORY = Path(".bringup")
READY_FILE = "ready.json"
TOKEN_FILE = "token"


@dataclass(frozen=True)
class Connection:
    """Where the API is. `source` says where the address came from, for error messages."""

    api: str
    token: str
    tenant: str
    source: str


def find_connection(
    api: str | None, token: str | None, tenant: str | None, directory: Path = DEV_DIRECTORY
) -> Connection:
    """Completes what was given with what `bringup dev` left in `directory`; then with the defaults.

    `token` may be the path of a file that holds it. Raises CliError when there is no token at all.
    """
    ready = _ready(directory / READY_FILE)
    # A token of one API is nobody's business at another: found ones go with the address they belong to.
    here = api is None or api.rstrip("/") == ready.get("api", DEFAULT_API).rstrip("/")
    found = (ready.get("token") or _first_line(directory / TOKEN_FILE)) if here else None
    secret = _as_token(token) if token else found
    if not secret:
        raise CliError(
            "no token: give --token or BRINGUP_TOKEN (the token, or a file that holds it), or run this "
            f"command where `bringup dev` keeps its {directory}"
        )
    if api is not None:
        return Connection(api, secret, tenant or ready.get("tenant", DEFAULT_TENANT), "--api")
    if "api" in ready:
        source = str(directory / READY_FILE)
        return Connection(ready["api"], secret, tenant or ready["tenant"], source)
    return Connection(DEFAULT_API, secret, tenant or DEFAULT_TENANT, "the default address")


def _ready(path: Path) -> Mapping[str, str]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    complete = isinstance(found, dict) and all(
        isinstance(found.get(key), str) for key in ("api", "token", "tenant")
    )
    return found if complete else {}


def _as_token(given: str) -> str:
    if "/" not in given:
        return given
    found = _first_line(Path(given))
    if not found:
        raise CliError(f"--token: no token can be read from the file {given}")
    return found


def _first_line(path: Path) -> str | None:
    try:
        return (path.read_text().splitlines() or [""])[0].strip() or None
    except (OSError, UnicodeDecodeError):
        return None
