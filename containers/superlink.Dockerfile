# A SuperLink with fbo-flower, for servers. Build it in the root of the repository:
#   docker build -f containers/superlink.Dockerfile -t fbo-superlink:0.1.0 .
FROM python:3.11.13-slim-bookworm

RUN useradd --uid 49999 --home-dir /app --create-home flower
COPY pyproject.toml README.md LICENSE containers/constraints.txt /source/
COPY fbo_flower /source/fbo_flower
RUN python -m venv /opt/fbo-flower \
    && /opt/fbo-flower/bin/python -m pip install --no-cache-dir --constraint /source/constraints.txt /source \
    && rm -rf /source
# who runs flwr in this container finds the SuperLink of compose.yaml under the name "deploy"
COPY --chown=49999:49999 containers/config.toml /app/.flwr/config.toml
COPY containers/keys.py containers/register.sh /opt/fbo-flower/bin/
# a volume takes over the owner of the directory that it is mounted on
RUN mkdir -p /app/cert /app/state /app/nodes/north /app/nodes/south /app/nodes/east \
    && chown -R 49999:49999 /app

ENV HOME=/app \
    PATH=/opt/fbo-flower/bin:/usr/local/bin:/usr/bin:/bin \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    OPENBLAS_NUM_THREADS=1
USER 49999:49999
WORKDIR /app
EXPOSE 8000
ENTRYPOINT ["flower-superlink"]
CMD ["--ssl-ca-certfile", "cert/ca.crt", "--ssl-certfile", "cert/server.crt", "--ssl-keyfile", "cert/server.key", \
     "--enable-supernode-auth", "--disable-runtime-dependency-installation", \
     "--database", "state/superlink.db", "--host", "0.0.0.0", "--port", "8000"]
