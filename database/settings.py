"""Where the database is, from the environment."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class DatabaseSettings(BaseSettings):
    """`BRINGUP_DATABASE_URL` and its companions."""

    model_config = SettingsConfigDict(env_prefix="BRINGUP_DATABASE_")

    url: str = Field(description="postgresql+asyncpg://... of the application's role")
    pool_size: int = Field(default=20, ge=1, le=500)


class OwnerSettings(BaseSettings):
    """What migrations need: the role that owns the tables, and the name of the one that only uses them."""

    model_config = SettingsConfigDict(env_prefix="BRINGUP_DATABASE_")

    owner_url: str
    app_role: str = Field(default="bringup_app", pattern=r"^[a-z_][a-z0-9_]{0,62}$")
