# Stands in for apache/kafka:4.1.0. `jars` is what `python -m outbox.embedded fetch kafka` leaves.
FROM outbox-standin:trixie
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-21-jre-headless busybox \
 && ln -s /usr/bin/busybox /usr/local/bin/wget && rm -rf /var/lib/apt/lists \
 && useradd --uid 1000 --user-group appuser \
 && install -d -o appuser -g appuser /opt/kafka/config /etc/kafka/docker /mnt/shared/config /var/lib/kafka/data
COPY --from=jars . /opt/kafka/libs
COPY kafka-entry kafka-tool /usr/local/bin/
RUN mkdir /opt/kafka/bin && for tool in kafka-topics kafka-broker-api-versions kafka-consumer-groups connect-standalone; do \
      ln -s /usr/local/bin/kafka-tool /opt/kafka/bin/$tool.sh; done
USER appuser
EXPOSE 9092
CMD ["/usr/local/bin/kafka-entry"]
