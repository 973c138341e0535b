"""The declarative base: naming of constraints, and the column types that recur."""

from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import DateTime, MetaData, String, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

Created = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=func.now())]
Json = dict[str, Any]
TenantId = Annotated[str, mapped_column(String(128), index=True)]


class Base(DeclarativeBase):
    """Every table of the project."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy reads it from the class
        dict[str, Any]: JSONB,
        list[Any]: JSONB,
        list[str]: JSONB,
    }
