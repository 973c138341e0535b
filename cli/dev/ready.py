"""The ready file: where everything is, for programs that start `bringup dev` and wait for it."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ready:
    """What answers where. `pids` maps api, worker, temporal and postgres to processes."""

    api: str
    ui: str
    temporal: str
    token: str
    tenant: str
    site: str
    pids: Mapping[str, int | None]


def write_ready(path: Path, ready: Ready) -> None:
    """Writes the file, for this user only (it holds a token), by rename."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump(asdict(ready), stream, indent=2)
        stream.write("\n")
    temporary.replace(path)
