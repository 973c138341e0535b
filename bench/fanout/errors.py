"""What ends a benchmark run."""

from collections.abc import Mapping

_NAMED = 5


class BenchError(Exception):
    """A tool failed, a machine was left half done, or something that is needed is missing."""


def fail_on(what: str, failures: Mapping[str, str]) -> None:
    """Raises BenchError when any machine failed; it names the first few."""
    if failures:
        few = "".join(f"\n  {name}: {reason}" for name, reason in sorted(failures.items())[:_NAMED])
        raise BenchError(f"{what}: {len(failures)} machines failed{few}")
