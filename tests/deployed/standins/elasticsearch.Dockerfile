# Stands in for elasticsearch:8.14.1. `distribution` is what `python -m outbox.embedded fetch` leaves.
FROM outbox-standin:trixie
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-21-jre-headless curl \
 && rm -rf /var/lib/apt/lists && useradd --uid 1000 --gid 0 --home-dir /usr/share/elasticsearch elasticsearch
COPY --from=distribution --chown=1000:0 . /usr/share/elasticsearch
RUN cd /usr/share/elasticsearch && mkdir -p config data logs plugins \
 && echo "network.host: 0.0.0.0" > config/elasticsearch.yml && chown -R 1000:0 config data logs plugins
WORKDIR /usr/share/elasticsearch
VOLUME /usr/share/elasticsearch/data
USER 1000:0
EXPOSE 9200
# No shell: dash drops variables with a dot in their names. With the type `docker` the server reads its settings from them.
ENTRYPOINT ["java", "-Xms16m", "-Xmx64m", "-Dcli.name=server", \
  "-Dcli.script=/usr/share/elasticsearch/bin/elasticsearch", "-Dcli.libs=lib/tools/server-cli", \
  "-Des.path.home=/usr/share/elasticsearch", "-Des.path.conf=/usr/share/elasticsearch/config", \
  "-Des.distribution.type=docker", "-cp", "/usr/share/elasticsearch/lib/*:/usr/share/elasticsearch/lib/cli-launcher/*", \
  "org.elasticsearch.launcher.CliToolLauncher"]
