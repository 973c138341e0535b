"""What a step wrote to BRINGUP_OUTPUT: `name=value` lines, or one JSON object."""

import json
import re
from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
MOST_NAMES = 200


class OutputError(ValueError):
    """The file is neither; says where it goes wrong."""


def parse_outputs(data: bytes) -> dict[str, Any]:
    """Reads the file; raises OutputError."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise OutputError(f"BRINGUP_OUTPUT is not UTF-8 text: byte {error.start} is not") from None
    if "\0" in text:
        raise OutputError("BRINGUP_OUTPUT holds a NUL character")
    found = _json(text) if text.lstrip().startswith("{") else _lines(text)
    if len(found) > MOST_NAMES:
        raise OutputError(f"BRINGUP_OUTPUT names {len(found)} outputs; at most {MOST_NAMES} are kept")
    return found


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise OutputError(f"BRINGUP_OUTPUT begins like JSON but is none: {error}") from None
    if "\\u0000" in text:
        raise OutputError("BRINGUP_OUTPUT holds a NUL character")
    found: dict[str, Any] = value
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")


def _lines(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not _NAME.match(name):
            raise OutputError(f"line {number} of BRINGUP_OUTPUT is not name=value: {line[:80]!r}")
        found[name] = value
    return found
