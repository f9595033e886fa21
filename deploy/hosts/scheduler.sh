#!/bin/sh
# Start a scheduler that speaks TLS. usage: scheduler.sh CERTIFICATES [PORT]
set -eu
certificates=${1:?usage: scheduler.sh CERTIFICATES [PORT]}
exec dask scheduler --protocol tls --port "${2:-8786}" --no-dashboard \
    --tls-ca-file "$certificates/ca.pem" --tls-cert "$certificates/cert.pem" --tls-key "$certificates/key.pem"
