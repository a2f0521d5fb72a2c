# Stands in for maven:3.9-eclipse-temurin-17. `machine` has the certificates and Maven's settings of this machine.
FROM outbox-standin:trixie
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends maven openjdk-21-jre-headless \
 && rm -rf /var/lib/apt/lists
COPY --from=machine cacerts /etc/ssl/certs/java/cacerts
COPY --from=machine settings.xml /root/.m2/settings.xml
