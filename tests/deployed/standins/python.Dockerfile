# Stands in for python:3.13.5-slim-bookworm. `machine` has the certificates and pip's settings of this machine.
FROM outbox-standin:trixie
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends python3.13 python3.13-venv \
 && ln -s /usr/bin/python3.13 /usr/local/bin/python3 && ln -s /usr/bin/python3.13 /usr/local/bin/python \
 && rm -rf /var/lib/apt/lists
COPY --from=machine ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=machine pip.conf /etc/pip.conf
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt
CMD ["python3"]
