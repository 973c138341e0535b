"""YAML files to documents, each with its kind and its place for error messages."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.resolver import VersionedResolver

from cli.errors import CliError

# Applied in this order, whatever order the files have: each may name those before it.
KINDS = ("Site", "MachineType", "Pool", "Profile", "Cluster")
_MAX_BYTES = 4_194_304


@dataclass(frozen=True)
class Document:
    """One object of a file. `fields` is all but its kind; `folder` is what relative paths start from."""

    kind: str
    name: str
    fields: dict[str, Any]
    where: str
    folder: Path


_SCALARS = (
    ("null", r"^(?:~|null|Null|NULL|)$", ("~", "n", "N", "")),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,18})$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,2})?$",
        "-+.0123456789",
    ),
)


_BY_FIRST: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
for _name, _pattern, _first in _SCALARS:
    for _char in _first:
        _BY_FIRST.setdefault(_char, []).append((f"tag:yaml.org,2002:{_name}", re.compile(_pattern)))


class _CoreResolver(VersionedResolver):
    """Types of plain scalars as YAML's core schema has them: dates, `on`, `no` and `0644` stay text."""

    @property
    def versioned_resolver(self) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
        return _BY_FIRST


def read_documents(paths: Sequence[Path]) -> list[Document]:
    """The documents of these files (of folders: their *.yaml; `-`: standard input) in the order to apply.

    Raises CliError that names file and document for what cannot be read, has no known kind, or stands twice.
    """
    documents = [found for path in paths for found in _read(path)]
    seen: dict[tuple[str, str], str] = {}
    for document in documents:
        key = (document.kind, document.name)
        if key in seen:
            raise CliError(f"{document.where}: {' '.join(key)} stands in {seen[key]} already")
        seen[key] = document.where
    return sorted(documents, key=lambda document: KINDS.index(document.kind))


def load_yaml(text: str, where: str) -> list[Any]:
    """All documents of a YAML text as plain values; CliError with the line for what is not YAML."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver = _CoreResolver
    try:
        values = [value for value in yaml.load_all(text) if value is not None]
    except MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = str(error.problem or error.context).splitlines()[0]
        raise CliError(f"{where}{line}: not valid YAML: {problem}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise CliError(f"{where}: not valid YAML: {str(error).splitlines()[0]}") from None
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CliError(f"{where}: only text, numbers, true, false, lists and mappings: {error}") from None
    return values


def read_text(path: Path) -> str:
    """A file's text, or standard input's for `-`; CliError when it cannot be read."""
    try:
        data = sys.stdin.buffer.read(_MAX_BYTES + 1) if str(path) == "-" else path.read_bytes()
        if len(data) > _MAX_BYTES:
            raise CliError(f"{path}: larger than {_MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CliError(f"{path}: not UTF-8 text") from None


def _read(path: Path) -> Iterator[Document]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
        if not files:
            raise CliError(f"{path}: no *.yaml in this folder")
        for file in files:
            yield from _read(file)
        return
    values = load_yaml(read_text(path), str(path))
    if not values:
        raise CliError(f"{path}: holds no document")
    for number, value in enumerate(values, 1):
        yield _document(value, path, f"{path} document {number}" if len(values) > 1 else str(path))


def _document(value: object, path: Path, where: str) -> Document:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise CliError(f"{where}: must be a mapping with kind and name")
    fields = dict(value)
    kind, name = fields.pop("kind", None), fields.pop("name", None)
    if kind not in KINDS:
        raise CliError(f"{where}: kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if not isinstance(name, str) or not name:
        raise CliError(f"{where}: {kind} must have a name (text)")
    return Document(str(kind), name, fields, f"{where} ({kind} {name})", path.parent)
