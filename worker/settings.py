"""The worker's settings, from the environment."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class WorkerSettings(BaseSettings):
    """`BRINGUP_...`; what is not given for Temporal is read as the `temporal` command reads it."""

    model_config = SettingsConfigDict(env_prefix="BRINGUP_")

    temporal_address: str | None = None
    temporal_namespace: str | None = None
    task_queue: str = "bringup"
    secrets_dir: Path = Field(
        default=Path("/etc/bringup/secrets"), description="root of secret://file/..., one folder a tenant"
    )
    sandbox_dir: Path | None = Field(default=None, description="serves sandbox:// machines of this folder")
    machine_threads: int = Field(default=128, ge=4, le=2000, description="machines worked on at a time")
    reach_seconds: float = Field(
        default=300, ge=5, le=86_400, description="patience with a machine that does not answer"
    )
    lost_seconds: float = Field(
        default=300, ge=5, le=86_400, description="patience with a machine that goes away during a step"
    )
    stop_seconds: float = Field(default=3.0, ge=0, le=600, description="patience with activities at a stop")
    watch_seconds: float = Field(default=5.0, gt=0, le=3600, description="the watchdog's round")
    log_format: str = Field(default="console", pattern="^(console|json)$")
