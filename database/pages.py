"""Pages of a list: the rows after a cursor, and the cursor of the next page."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, literal, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from database.refusals import Detail, invalid


@dataclass(frozen=True, slots=True)
class PageRequest:
    """How many rows, after which."""

    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, and the cursor of the next page while there is one."""

    rows: list[Any]
    next_cursor: str | None


def _encode(key: Sequence[Any]) -> str:
    texts = [part.isoformat() if isinstance(part, datetime) else str(part) for part in key]
    return base64.urlsafe_b64encode(json.dumps(texts).encode()).decode().rstrip("=")


def _decode(cursor: str, kinds: Sequence[Callable[[str], Any]]) -> list[Any]:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        texts = json.loads(base64.urlsafe_b64decode(padded))
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return [kind(text) for kind, text in zip(kinds, texts, strict=True)]
    except (ValueError, RecursionError):
        pass
    raise invalid(Detail("cursor", "must be a nextCursor that this list has answered"))


async def page_of(
    session: AsyncSession,
    query: Select[*tuple[Any, ...]],
    keys: Sequence[InstrumentedAttribute[Any]],
    request: PageRequest,
    *,
    kinds: Sequence[Callable[[str], Any]] = (str,),
    descending: bool = False,
) -> Page:
    """One page of `query` in the order of `keys`, columns of its first entity that are unique together.

    `kinds` read a key back from its text. Rows are entities, or tuples when the query has several.
    """
    if request.cursor is not None:
        values = _decode(request.cursor, kinds)
        last = [literal(value, key.type) for value, key in zip(values, keys, strict=True)]
        here = tuple_(*keys)
        query = query.where(here < tuple_(*last) if descending else here > tuple_(*last))
    order = [key.desc() if descending else key.asc() for key in keys]
    found = (await session.execute(query.order_by(*order).limit(request.limit + 1))).all()
    rows = [row[0] if len(row) == 1 else tuple(row) for row in found[: request.limit]]
    cursor = None
    if len(found) > request.limit:
        cursor = _encode([getattr(found[request.limit - 1][0], key.key) for key in keys])
    return Page(rows, cursor)
