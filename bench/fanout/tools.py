"""What every tool of the comparison can do."""

from collections.abc import Sequence
from typing import Protocol

from bench.hosts import Host
from bench.processor import Usage


class Tool(Protocol):
    """A way to get the recipe onto machines. All raise BenchError when anything failed on any machine."""

    name: str
    version: str

    def prepare(self, hosts: Sequence[Host]) -> None:
        """Writes what the tool reads: inventory and recipe."""

    def apply(self) -> float:
        """Applies the recipe to the machines that were prepared; returns how many seconds that took."""

    def check(self) -> None:
        """Looks at what the tool itself says of the last `apply`; not timed."""

    def own_seconds(self, used: Usage) -> float:
        """Processor seconds of the tool's own processes during the last `apply`."""

    def details(self) -> dict[str, float]:
        """Further figures of the last `apply`, by what they say."""

    def undo(self, hosts: Sequence[Host]) -> None:
        """Brings the machines back to where `apply` is needed again."""
