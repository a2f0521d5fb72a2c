# One image for projector, console and every command: `docker run IMAGE run`, `... console`, `... migrate`.
# Non-root, and it writes nowhere: run it with a read-only root (and /tmp as tmpfs).
ARG PYTHON=3.13.5-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /src
RUN python -m venv /opt/outbox
# Packages first: they change seldom, and the layer is kept.
COPY requirements/image.txt requirements/
RUN /opt/outbox/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY sql sql
COPY outbox outbox
RUN /opt/outbox/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation . \
 && /opt/outbox/bin/pip uninstall --yes --quiet hatchling editables pip

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="outbox-projector" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin outbox
COPY --from=build /opt/outbox /opt/outbox
# Loopback of a container is reached by nobody, so the metrics and health pages listen on all addresses.
ENV PATH=/opt/outbox/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OUTBOX_METRICS_HOST=0.0.0.0 \
    OUTBOX_LOG_FORMAT=json
USER 10001:10001
EXPOSE 9108 8090
STOPSIGNAL SIGTERM
# The projector's; the console's container sets its own (docker-compose.infra.yml).
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('OUTBOX_METRICS_PORT', '9108') + '/healthz', timeout=3)"]
ENTRYPOINT ["outbox"]
CMD ["run"]
