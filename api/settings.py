"""The API's settings, from the environment."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ApiSettings(BaseSettings):
    """`BRINGUP_API_*`, and what it shares with the other processes."""

    model_config = SettingsConfigDict(env_prefix="BRINGUP_", env_ignore_empty=True)

    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8080, ge=0, le=65535)
    api_tls_cert: Path | None = Field(default=None, description="PEM certificate chain; needs the key too")
    api_tls_key: Path | None = None
    root_path: str = Field(default="", description="the prefix under which a proxy serves the API")
    temporal_ui: str = Field(default="", description="base URL of the Temporal Web UI, for links")
    temporal_namespace: str = Field(default="default", description="the workers' namespace, for links")
    sandbox_dir: Path | None = Field(default=None, description="set: sandbox machines may join")
    log_format: Literal["json", "console"] = "json"

    @field_validator("root_path", "temporal_ui")
    @classmethod
    def _without_last_slash(cls, value: str) -> str:
        return value.rstrip("/")

    @model_validator(mode="after")
    def _checked(self) -> "ApiSettings":
        if self.root_path and not self.root_path.startswith("/"):
            raise ValueError("BRINGUP_ROOT_PATH must begin with /")
        if (self.api_tls_cert is None) != (self.api_tls_key is None):
            raise ValueError("BRINGUP_API_TLS_CERT and BRINGUP_API_TLS_KEY come together")
        return self
