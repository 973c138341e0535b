"""Small JSON files that are either there and whole, or not there."""

import json
from collections.abc import Mapping
from pathlib import Path


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file by rename, so that no reader and no crash sees half of it."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(content, indent=2) + "\n")
    draft.rename(path)


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON file that holds an object."""
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return content
