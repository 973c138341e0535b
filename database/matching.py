"""`column = ANY(:values)`: one parameter for any number of values; IN takes 32,767 at most."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, any_, literal
from sqlalchemy.orm import InstrumentedAttribute


def one_of(
    column: InstrumentedAttribute[Any] | ColumnElement[Any], values: Sequence[Any]
) -> ColumnElement[bool]:
    """Whether `column` is among `values`; false for none."""
    return column == any_(literal(list(values), ARRAY(column.type)))
