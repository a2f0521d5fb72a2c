# Stands in for outbox-connect:4.1.0 where Maven's image is not available. `plugins` is what `fetch connect` leaves.
FROM apache/kafka:4.1.0
COPY --from=plugins . /opt/connect/plugins
USER root
RUN mkdir -p /var/lib/connect && chown appuser:appuser /var/lib/connect
USER appuser
ENV KAFKA_HEAP_OPTS=-Xmx512m
CMD ["/opt/kafka/bin/connect-standalone.sh", "/etc/connect/worker.properties", "/etc/connect/outbox-log.properties"]
