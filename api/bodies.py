"""Request bodies: bounded, read as JSON whatever their declared type, checked with all problems at once."""

import json
import math
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from api.problems import details_of
from database.refusals import Detail, Refusal, RefusalCode, invalid

MAX_BODY = 16 * 1_048_576
_MAX_DEPTH = 64

M = TypeVar("M", bound=BaseModel)


class Input(BaseModel):
    """Base of every request body: types are what they are, `"3"` is no number and `true` none either."""

    model_config = ConfigDict(strict=True, extra="forbid", populate_by_name=False, frozen=True)


async def _bounded(request: Request) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > MAX_BODY:
        _too_large()
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            _too_large()
    return bytes(body)


def _too_large() -> NoReturn:
    raise Refusal(RefusalCode.TOO_LARGE, f"the body is larger than {MAX_BODY // 1_048_576} MiB")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_text(value: Any, depth: int = 0) -> None:
    """Refuses what cannot be stored: NUL characters, halves of surrogate pairs, bottomless nesting."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH}")
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("text may not hold NUL characters")
        value.encode()
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number is larger than can be stored")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, depth + 1)
            _check_text(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_text(item, depth + 1)


async def read_object(request: Request) -> dict[str, Any]:
    """The body as one JSON object; an empty body is an empty object. Refusal INVALID_INPUT or TOO_LARGE."""
    body = await _bounded(request)
    if not body.strip():
        return {}
    try:
        value = json.loads(body, parse_constant=_no_constant)
        _check_text(value)
    except RecursionError:
        raise invalid(Detail("body", "is nested too deeply")) from None
    except UnicodeError:
        raise invalid(Detail("body", "is not Unicode text")) from None
    except ValueError as error:
        raise invalid(Detail("body", f"is not JSON: {error}")) from None
    if not isinstance(value, dict):
        raise invalid(Detail("body", "must be a JSON object"))
    return value


async def read_body(request: Request, model: type[M]) -> M:
    """The body checked against `model`; Refusal INVALID_INPUT with all problems and what is accepted."""
    value = await read_object(request)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid(*details_of(error, model)) from None


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """The `openapi_extra` that describes a body which is read by hand."""
    schema = model.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    }


def definitions(model: type[BaseModel]) -> dict[str, Any]:
    """The schemas that `documented` refers to."""
    found: dict[str, Any] = model.model_json_schema(
        by_alias=True, ref_template="#/components/schemas/{model}"
    ).get("$defs", {})
    return found
