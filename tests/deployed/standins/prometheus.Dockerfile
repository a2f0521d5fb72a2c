# Stands in for prom/prometheus:v3.5.0 and prom/alertmanager:v0.28.1.
FROM outbox-standin:sid
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus prometheus-alertmanager busybox \
 && ln -s /usr/bin/busybox /usr/local/bin/wget && ln -s prometheus-alertmanager /usr/bin/alertmanager && rm -rf /var/lib/apt/lists \
 && install -d -o 65534 -g 65534 /prometheus
VOLUME /prometheus
USER 65534
EXPOSE 9090
ENTRYPOINT ["/usr/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
