"""`python -m api`: serves the API until SIGTERM or SIGINT, then ends within 3 seconds."""

import uvicorn

from api.app import create_app
from api.logs import configure_logging
from api.settings import ApiSettings
from database.settings import DatabaseSettings
from database.unit_of_work import Database

# Requests are short; what has not ended by then is cut off, and its transaction rolled back.
GRACE_SECONDS = 2


def main() -> None:
    """Reads the settings, serves."""
    settings = ApiSettings()
    stored = DatabaseSettings()
    configure_logging(settings.log_format)
    database = Database(stored.url, pool_size=stored.pool_size, application_name="bringup-api")
    uvicorn.run(
        create_app(database, settings),
        host=settings.api_host,
        port=settings.api_port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=settings.api_tls_cert,
        ssl_keyfile=settings.api_tls_key,
    )


if __name__ == "__main__":
    main()
