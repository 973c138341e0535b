"""One text for one content: what is stored, digested and run, for ever."""

import hashlib
import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from profiles.content import ProfileContent
from profiles.problems import Problem, ProfileError

M = TypeVar("M", bound=BaseModel)


def stable_json(model: BaseModel) -> str:
    """JSON with sorted keys, defaults filled in, nothing for what is absent, no spaces, not escaped.

    Absent values are left out so that an optional key added by a later release changes no digest.
    """
    values = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(text: str) -> str:
    """`sha256:` and 64 hexadecimal digits over the text's UTF-8."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def canonical(content: ProfileContent) -> str:
    """The text under whose digest a version's content is stored."""
    return stable_json(content)


def from_canonical(text: str) -> ProfileContent:
    """Reads `canonical`'s text back; raises ProfileError when it is anything else."""
    return read_stable(ProfileContent, text)


def read_stable(model: type[M], text: str) -> M:
    """Reads `stable_json`'s text back; raises ProfileError when it is anything else."""
    try:
        value = model.model_validate_json(text)
    except ValidationError as refused:
        raise ProfileError([Problem("", f"not stored content: {refused.errors()[0]['msg']}")]) from None
    if stable_json(value) != text:
        raise ProfileError([Problem("", "not in canonical form")])
    return value
