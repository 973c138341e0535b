"""Checks a recipe and finds every problem at once, each with its path and, where known, its line."""

import difflib
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from profiles.content import STEP_KINDS, ProfileContent
from profiles.documents import line_of
from profiles.hostnames import HOSTNAME_STEP
from profiles.kinds.base import StepHeader, described
from profiles.problems import Problem, ProfileError

# More than anyone reads; keeps the answer to a hostile document small.
MAX_PROBLEMS = 1_000

_Path = tuple[str | int, ...]
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class _Found(NamedTuple):
    path: _Path
    message: str


def check(raw: object) -> list[Problem]:
    """All problems of a recipe's content, in the order of the document; empty when it can be used.

    `raw` is what `documents.load` returned (then problems carry lines) or any JSON-like value.
    """
    return _validated(raw)[1]


def parse(raw: object) -> ProfileContent:
    """The content that `raw` describes; raises ProfileError with everything that `check` finds."""
    content, problems = _validated(raw)
    if problems or content is None:
        raise ProfileError(problems)
    return content


def _validated(raw: object) -> tuple[ProfileContent | None, list[Problem]]:
    content: ProfileContent | None = None
    found: list[_Found] = []
    try:
        content = ProfileContent.model_validate(raw)
    except ValidationError as refused:
        for error in refused.errors(include_url=False):
            found += _explained(raw, error)
    found += _names_taken(raw)
    kept = sorted(found[:MAX_PROBLEMS], key=lambda problem: _order(raw, problem.path))
    problems = [Problem(_written(path), message, line_of(raw, path)) for path, message in kept]
    if len(found) > MAX_PROBLEMS:
        problems.append(Problem("", f"there are {len(found) - MAX_PROBLEMS:,} more problems"))
    return content, problems


def _explained(raw: object, error: ErrorDetails) -> Iterator[_Found]:
    location = error["loc"]
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        yield from _unknown_kind(location, error["input"])
        return
    # Inside a step pydantic puts the kind between the index and the key.
    path = location[:2] + location[3:] if location[:1] == ("steps",) else location
    yield _Found(path, _message(error))


def _unknown_kind(path: _Path, step: object) -> Iterator[_Found]:
    """Without a kind `with` cannot be judged, but all the other keys can."""
    kinds = ", ".join(STEP_KINDS)
    uses = step.get("uses") if isinstance(step, dict) else None
    if not isinstance(step, dict) or "uses" in step:
        near = _nearest(uses, STEP_KINDS) if isinstance(uses, str) else ""
        message = f"this release has no step kind {described(uses)}; it has {kinds}{near}"
        yield _Found((*path, "uses"), message)
    else:
        yield _Found((*path, "uses"), f"is missing; one of {kinds}")
    try:
        StepHeader.model_validate(step)
    except ValidationError as refused:
        for error in refused.errors(include_url=False):
            if error["loc"][:1] != ("uses",):
                yield _Found(path + error["loc"], _message(error, StepHeader))


def _message(error: ErrorDetails, model: type[BaseModel] | None = None) -> str:
    kind = error["type"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        key = str(error["loc"][-1])
        within = model if model and len(error["loc"]) == 1 else _model_at(error["loc"][:-1])
        known = [field.alias or name for name, field in within.model_fields.items()]
        return f"unknown key{_nearest(key, known) or '; known are ' + ', '.join(known)}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"must be a mapping, not {described(error['input'])}"
    return error["msg"]


def _model_at(location: _Path) -> type[BaseModel]:
    """The model whose keys are allowed at a place that pydantic reported."""
    model: type[BaseModel] = ProfileContent
    if len(location) > 2 and location[0] == "steps":
        model, location = STEP_KINDS[str(location[2])], location[3:]
    for part in location:
        for field in model.model_fields.values():
            if field.alias == part and isinstance(field.annotation, type):
                model = field.annotation
    return model


def _nearest(word: str, known: object) -> str:
    names = list(known) if isinstance(known, list | dict) else []
    near = difflib.get_close_matches(word[:64], names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _names_taken(raw: object) -> Iterator[_Found]:
    steps = raw.get("steps") if isinstance(raw, dict) else None
    first: dict[str, int] = {}
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        name = step.get("name") if isinstance(step, dict) else None
        if not isinstance(name, str):
            continue
        if name == HOSTNAME_STEP:
            message = f"the name {name!r} belongs to the platform's own step, which sets the node's hostname"
            yield _Found(("steps", index, "name"), message)
        elif name in first:
            message = f"the name {described(name)} is already taken by steps[{first[name]}]"
            yield _Found(("steps", index, "name"), message)
        else:
            first[name] = index


def _order(raw: object, path: _Path) -> tuple[int, ...]:
    """Where a place stands in the document; what is missing comes after what is there."""
    order: list[int] = []
    for part in path:
        if isinstance(raw, dict):
            keys = list(raw)
            order.append(keys.index(part) if part in raw else len(keys))
            raw = raw.get(part)
        elif isinstance(raw, list | tuple) and isinstance(part, int):
            order.append(part)
            raw = raw[part] if part < len(raw) else None
    return tuple(order)


def _written(path: _Path) -> str:
    """`("steps", 0, "with", "run")` as an author reads it: `steps[0].with.run`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part[:64])}]"
    return text
