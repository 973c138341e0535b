"""Recipe text to plain values: YAML 1.2 or JSON, with lines kept and every expansion bounded.

Only null, true and false, decimal numbers and text are made, as YAML's core schema has them. So `on`, `no`,
dates and `0644` stay the text that the author wrote. Mappings and lists remember their lines (`line_of`).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from profiles.problems import Problem, ProfileError

MAX_BYTES = 1_048_576
MAX_DEPTH = 32
# The pure Python scanner reads some 60,000 values a second; the largest real recipe has about 3,000.
MAX_VALUES = 20_000
# What aliases may expand to, in characters of scalars plus one for each value.
MAX_EXPANDED = 2 * MAX_BYTES

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_TRUE = re.compile(r"(?:true|True|TRUE)\Z")
_FALSE = re.compile(r"(?:false|False|FALSE)\Z")
# A leading zero is a file mode, a serial number or a postcode far more often than a number: it stays text.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})\Z")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]{1,19}|(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{0,19})?)(?:[eE][-+]?[0-9]{1,2})?\Z"
)


class LocatedMapping(dict[str, object]):
    """A mapping that knows its own line and the line of each key."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}

    def located(self, key: str | int) -> tuple[int, object] | None:
        """A key's line and value; None for a key that is not here."""
        return (self.lines[key], self[key]) if isinstance(key, str) and key in self else None


class LocatedList(list[object]):
    """A list that knows its own line and the line of each entry."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []

    def located(self, index: str | int) -> tuple[int, object] | None:
        """An entry's line and value; None for an index that is not here."""
        return (self.lines[index], self[index]) if isinstance(index, int) and index < len(self) else None


@dataclass
class _Open:
    """A mapping or list whose end has not been read yet."""

    value: LocatedMapping | LocatedList
    anchor: str | None
    weight: int = 1
    key: str | None = None


def load(text: str | bytes) -> object:
    """Reads one document.

    Raises ProfileError, with the line, for text that is not UTF-8, larger than 1 MiB, nested deeper than 32,
    malformed or empty, for a second document, duplicate keys, tags other than the core schema's, and for
    aliases that point into themselves or expand to more than 2 MiB, and for more than 20,000 values.
    """
    source = _decoded(text)
    if source.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(source, object_pairs_hook=_unique, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            pass  # Flow-style YAML, or a mistake, for which the YAML reader below knows the line.
    return _Builder().build(source)


def line_of(document: object, path: Sequence[str | int]) -> int | None:
    """The line of the value at `path`, or of the nearest thing around it; None when lines are not known."""
    line = document.line if isinstance(document, LocatedMapping | LocatedList) else None
    for part in path:
        inside = document.located(part) if isinstance(document, LocatedMapping | LocatedList) else None
        if inside is None:
            break
        line, document = inside
    return line


def _refuse(message: str, line: int | None = None) -> ProfileError:
    return ProfileError([Problem("", message, line)])


def _decoded(text: str | bytes) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise _refuse(f"the document has {size:,} bytes; at most {MAX_BYTES:,} are read")
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise _refuse("the document is not UTF-8 text", line) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(name)


class _Builder:
    """Builds values from the parser's events, without recursion, so that depth is checked before it hurts."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._result: list[object] = []
        self._values = 0

    def build(self, source: str) -> object:
        documents = 0
        for event in _events(source):
            line = event.start_mark.line + 1
            if isinstance(event, events.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _refuse("a second document begins here; one file holds one recipe", line)
            elif isinstance(event, events.NodeEvent):
                self._node(event, line)
            elif isinstance(event, events.CollectionEndEvent):
                self._close(line)
        if not self._result or self._result[0] is None:
            raise _refuse("the document is empty")
        return self._result[0]

    def _node(self, event: events.NodeEvent, line: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _refuse(f"the document has more than {MAX_VALUES:,} values", line)
        if isinstance(event, events.AliasEvent):
            self._alias(event, line)
        elif isinstance(event, events.ScalarEvent):
            awaits_key = self._open and isinstance(self._open[-1].value, LocatedMapping)
            if awaits_key and self._open[-1].key is None:
                self._key(event, line)
            else:
                self._add(_scalar(event, line), event.anchor, len(event.value) + 1, line)
        else:
            self._start(event, line)

    def _start(self, event: events.NodeEvent, line: int) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _refuse(f"the document is nested deeper than {MAX_DEPTH} levels", line)
        _known_tag(event, line, ("map", "seq"))
        self._no_key_wanted(line)
        value = LocatedMapping(line) if isinstance(event, events.MappingStartEvent) else LocatedList(line)
        self._open.append(_Open(value, event.anchor))

    def _close(self, line: int) -> None:
        done = self._open.pop()
        self._add(done.value, done.anchor, done.weight, done.value.line)

    def _alias(self, event: events.AliasEvent, line: int) -> None:
        self._no_key_wanted(line)
        if event.anchor not in self._anchors:
            raise _refuse(f"the alias *{event.anchor} names no finished anchor before it", line)
        value, weight = self._anchors[event.anchor]
        self._add(value, None, weight, line)

    def _no_key_wanted(self, line: int) -> None:
        if self._open and isinstance(self._open[-1].value, LocatedMapping) and self._open[-1].key is None:
            raise _refuse("a key must be plain text", line)

    def _key(self, event: events.ScalarEvent, line: int) -> None:
        parent = self._open[-1]
        assert isinstance(parent.value, LocatedMapping)
        if event.value in parent.value:
            first = parent.value.lines[event.value]
            raise _refuse(f"the key {event.value[:64]!r} is already given on line {first}", line)
        parent.key = event.value
        parent.value.lines[event.value] = line
        parent.weight += len(event.value)

    def _add(self, value: object, anchor: str | None, weight: int, line: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, weight)
        if not self._open:
            self._result.append(value)
            return
        parent = self._open[-1]
        parent.weight += weight
        if parent.weight > MAX_EXPANDED:
            raise _refuse(f"the aliases expand to more than {MAX_EXPANDED:,} characters", line)
        if isinstance(parent.value, LocatedList):
            parent.value.append(value)
            parent.value.lines.append(line)
        elif parent.key is not None:
            parent.value[parent.key] = value
            parent.key = None


def _events(source: str) -> Iterator[events.Event]:
    try:
        yield from YAML(typ="safe", pure=True).parse(source)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise _refuse(f"not valid YAML: {what}", mark.line + 1 if mark else None) from None
    except YAMLError as error:
        raise _refuse(f"not valid YAML: {str(error).splitlines()[0]}") from None


def _known_tag(event: events.NodeEvent, line: int, names: tuple[str, ...]) -> str | None:
    # Aliases are nodes without a tag in the library's class tree, hence the attribute by name.
    written = getattr(event, "tag", None)
    tag = None if written in (None, "!") else str(written)
    if tag is not None and tag not in {_TAG + name for name in names}:
        raise _refuse(f"the tag {tag[:64]!r} is not supported; write plain values", line)
    return tag


def _scalar(event: events.ScalarEvent, line: int) -> object:
    tag = _known_tag(event, line, ("str", "int", "float", "bool", "null"))
    text: str = event.value
    if event.style or tag == _TAG + "str" or event.tag == "!":
        return text
    value = _plain(text)
    if tag is not None and type(value).__name__ not in (tag.removeprefix(_TAG), "NoneType"):
        raise _refuse(f"{text[:64]!r} is not of the type its tag names", line)
    return value


def _plain(text: str) -> object:
    if _NULL.match(text):
        return None
    if _TRUE.match(text) or _FALSE.match(text):
        return text.lower() == "true"
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text
