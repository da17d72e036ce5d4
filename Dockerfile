# A node of MortarMQ: docker build -t mortarmq .
# docs/deploying.md says what it needs to be told.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# The folder for the data is made here: the image below has no shell, and a volume takes over whose it is.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package mortarmq --bin mortarmq \
    && cp target/release/mortarmq /usr/local/bin/mortarmq \
    && mkdir /data

# The C library of the same Debian, certificates of public CAs, and nothing else: no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /usr/local/bin/mortarmq /usr/local/bin/mortarmq
COPY --from=build --chown=65532:65532 /data /var/lib/mortarmq
ENV MORTARMQ_DATA_DIR=/var/lib/mortarmq
VOLUME /var/lib/mortarmq
# Clients, other nodes, operators.
EXPOSE 7188 7189 7190
USER 65532:65532
# A node that leads hands its office over first.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["mortarmq", "broker", "ready"]
ENTRYPOINT ["mortarmq"]
CMD ["serve"]
