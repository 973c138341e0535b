"""What is wrong with a recipe: every problem, each with its place."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing an author has to change.

    `path` names the place as the author wrote it, such as `steps[0].with.run` (empty: the whole document);
    `line` counts from 1 and is known when the document was read from text.
    """

    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = ": ".join(part for part in (f"line {self.line}" if self.line else "", self.path) if part)
        return f"{where}: {self.message}" if where else self.message


class ProfileError(ValueError):
    """A recipe, reference or plan that cannot be used; `problems` holds all reasons at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = list(problems)
