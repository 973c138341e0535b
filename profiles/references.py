"""`tenant/name@3`: one version of one recipe."""

import re
from dataclasses import dataclass

from profiles.problems import Problem, ProfileError

_TENANT = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}\Z")


@dataclass(frozen=True)
class ProfileRef:
    """Names a version for good: there is no `latest`, whose meaning would change under a running node."""

    tenant: str
    name: str
    number: int

    @classmethod
    def parse(cls, text: str) -> "ProfileRef":
        """Reads `tenant/name@number`; raises ProfileError that says which part is wrong and what it takes."""
        owner, slash, versioned = text.partition("/")
        name, at, number = versioned.partition("@")
        if not slash:
            raise _wrong(
                text, "the tenant is missing: write tenant/name@number, such as builtin/linux-baseline@1"
            )
        if not at:
            raise _wrong(text, "the version is missing: write tenant/name@number, such as @1 at the end")
        if number == "latest":
            raise _wrong(text, "'latest' would mean another recipe tomorrow: give the version's number")
        if not _TENANT.match(owner):
            raise _wrong(text, "the tenant must be 1 to 128 letters, digits and any of . _ : -")
        if not _NAME.match(name):
            raise _wrong(text, "the name must be 1 to 63 lower-case letters, digits and dashes")
        if not _NUMBER.match(number):
            raise _wrong(text, "the version must be a whole number from 1, without leading zeros")
        return cls(owner, name, int(number))

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}@{self.number}"


def _wrong(text: str, reason: str) -> ProfileError:
    shown = text if len(text) <= 80 else text[:80] + "..."
    return ProfileError([Problem("", f"{shown!r} is not a profile version: {reason}")])
