# A SuperNode with fbo-flower, for devices. Build it in the root of the repository:
#   docker build -f containers/supernode.Dockerfile -t fbo-supernode:0.1.0 .
# What your objective imports goes into an image of your own, that begins with `FROM fbo-supernode:0.1.0`.
FROM python:3.11.13-slim-bookworm

RUN useradd --uid 49999 --home-dir /app --create-home flower
COPY pyproject.toml README.md LICENSE containers/constraints.txt /source/
COPY fbo_flower /source/fbo_flower
RUN python -m venv /opt/fbo-flower \
    && /opt/fbo-flower/bin/python -m pip install --no-cache-dir --constraint /source/constraints.txt /source \
    && rm -rf /source
# a volume takes over the owner of this directory
RUN mkdir /app/node && chown -R 49999:49999 /app

ENV HOME=/app \
    PATH=/opt/fbo-flower/bin:/usr/local/bin:/usr/bin:/bin \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    OPENBLAS_NUM_THREADS=1
USER 49999:49999
WORKDIR /app
ENTRYPOINT ["flower-supernode"]
CMD ["--root-certificates", "node/ca.crt", "--auth-supernode-private-key", "node/key", \
     "--superlink", "superlink:8000", "--node-config", "agent=\"node\" journal=\"/app/node/journal.db\""]
