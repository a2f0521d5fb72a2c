# Kafka Connect with Debezium's connector for PostgreSQL, for docker-compose.kafka.yml. The digest is that of
# outbox/embedded/pins.py.
# Digests cannot be learned where this is tested; give them with the build: --build-arg KAFKA=4.1.0@sha256:...
ARG MAVEN=3.9-eclipse-temurin-17
ARG KAFKA=4.1.0

FROM maven:${MAVEN} AS plugin
ARG VERSION=3.6.2.Final
ARG SHA256=3a48d716eccd460670ca9885557c6ec9eedce91d715f86714f29f9ebe75a5f71
# 2.10 takes the archive alone. Later ones read its description first, whose parent not every mirror has.
RUN mvn -B -q -C org.apache.maven.plugins:maven-dependency-plugin:2.10:copy -DoutputDirectory=/tmp \
      -Dartifact=io.debezium:debezium-connector-postgres:${VERSION}:tar.gz:plugin \
 && echo "${SHA256}  /tmp/debezium-connector-postgres-${VERSION}-plugin.tar.gz" | sha256sum -c - \
 && mkdir /plugins && tar -xzf /tmp/debezium-connector-postgres-${VERSION}-plugin.tar.gz -C /plugins

FROM apache/kafka:${KAFKA}
COPY --from=plugin /plugins /opt/connect/plugins
USER root
RUN mkdir -p /var/lib/connect && chown appuser:appuser /var/lib/connect
USER appuser
ENV KAFKA_HEAP_OPTS=-Xmx512m
CMD ["/opt/kafka/bin/connect-standalone.sh", "/etc/connect/worker.properties", "/etc/connect/outbox-log.properties"]
