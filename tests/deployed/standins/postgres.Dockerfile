# Stands in for postgres:18.1: the same user, folders and variables, with Debian's server.
FROM outbox-standin:sid
RUN groupadd --system --gid 999 postgres \
 && useradd --system --uid 999 --gid 999 --home-dir /var/lib/postgresql --shell /bin/bash postgres \
 && apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql-common \
 && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf \
 && apt-get install -y -qq --no-install-recommends postgresql-18 \
 && echo "listen_addresses = '*'" >> /usr/share/postgresql/18/postgresql.conf.sample \
 && rm -rf /var/lib/apt/lists /var/lib/postgresql/18 \
 && install -d -o postgres -g postgres /docker-entrypoint-initdb.d /var/lib/postgresql \
 && install -d -o postgres -g postgres -m 3777 /var/run/postgresql
ENV PATH=/usr/lib/postgresql/18/bin:$PATH LANG=C.UTF-8 PGDATA=/var/lib/postgresql/18/docker
COPY postgres-entry /usr/local/bin/postgres-entry
VOLUME /var/lib/postgresql
STOPSIGNAL SIGINT
EXPOSE 5432
ENTRYPOINT ["/usr/local/bin/postgres-entry"]
CMD ["postgres"]
