"""Names of new nodes: a format with at most one number in it, and the lowest free numbers."""

import re

from database.refusals import Detail, invalid

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_NUMBER = re.compile(r"%(0?[1-9]?)d")


class NameFormat:
    """A printf-like format: literal text, `%%`, and at most one `%d` (or `%03d`). Nothing is %-formatted.

    Raises Refusal (INVALID_INPUT at `path`) for other directives and for what could not be a node's name.
    """

    def __init__(self, template: str, path: str = "nameFormat") -> None:
        pieces = re.split(r"(%%|%0?[1-9]?d)", template)
        numbers = [piece for piece in pieces if _NUMBER.fullmatch(piece)]
        if len(numbers) > 1 or any("%" in piece for piece in pieces if piece not in ("%%", *numbers)):
            raise invalid(Detail(path, "may hold one %d and no other directive"))
        self.literal = not numbers
        self._width = _NUMBER.sub(r"\1", numbers[0]) if numbers else ""
        texts = ["%" if piece == "%%" else piece for piece in pieces]
        at = texts.index(numbers[0]) if numbers else len(texts)
        self._before, self._after = "".join(texts[:at]), "".join(texts[at + 1 :])
        self.key = template
        if not NAME.match(self.name(1)):
            raise invalid(
                Detail(path, "must make names of 1 to 63 letters, digits, dots, dashes and underscores")
            )

    def name(self, number: int) -> str:
        """The name with this number."""
        shown = "" if self.literal else format(number, f"{self._width}d")
        return f"{self._before}{shown}{self._after}"


class FreeNames:
    """Hands out names that no live node has, lowest numbers first."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._next: dict[tuple[str, int], int] = {}

    def take(self, wanted: NameFormat, offset: int, count: int) -> list[str]:
        """Up to `count` names from number `offset` on. A literal gives one name or, when taken, none."""
        if wanted.literal:
            name = wanted.name(0)
            if count < 1 or name in self._taken:
                return []
            self._taken.add(name)
            return [name]
        names: list[str] = []
        number = self._next.get((wanted.key, offset), offset)
        while len(names) < count:
            name = wanted.name(number)
            number += 1
            if not NAME.match(name):
                break
            if name not in self._taken:
                self._taken.add(name)
                names.append(name)
        self._next[wanted.key, offset] = number
        return names
