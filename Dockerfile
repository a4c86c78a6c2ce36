# Not built where it was written (no container engine there), only linted: build it once before you rely on it.
#   docker build -t tocsin .
#   docker run --rm -p 8080:8080 -v tocsin-data:/var/lib/tocsin -e TOCSIN_HOST=0.0.0.0 tocsin
FROM python:3.11-slim AS build

WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/tocsin

# The locks first: this layer is rebuilt only when they change.
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN /opt/tocsin/bin/pip install --require-hashes -r requirements/runtime.txt \
    && pip install --require-hashes -r requirements/build.txt

COPY pyproject.toml README.md ./
COPY alembic alembic
COPY service service
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
    && /opt/tocsin/bin/pip install --no-deps /tmp/wheels/*.whl


FROM python:3.11-slim

# A number, so that an orchestrator can tell that it is not root; a name, because initdb asks for one.
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin tocsin \
    && install -d -o tocsin -g tocsin -m 0700 /var/lib/tocsin
COPY --from=build /opt/tocsin /opt/tocsin
ENV PATH=/opt/tocsin/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TOCSIN_CONFIG=/etc/tocsin/tocsin.toml \
    TOCSIN_DATA_DIR=/var/lib/tocsin \
    TOCSIN_HOST=0.0.0.0 \
    TOCSIN_LOG_FORMAT=json

USER 10001
WORKDIR /var/lib/tocsin
VOLUME /var/lib/tocsin
EXPOSE 8080

# For `up` and `serve`; start a bare `worker` with --no-healthcheck, it listens on nothing.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{os.environ.get('TOCSIN_PORT', '8080')}/livez\", timeout=3)"]

# No shell in between: SIGTERM reaches the process, which drains what is in flight.
ENTRYPOINT ["tocsin"]
CMD ["up"]
