#!/bin/sh
# Start a scheduler that speaks TLS. usage: scheduler.sh CERTIFICATES [PORT]
set -eu
DASK_CONFIG=${DASK_CONFIG:-$(dirname "$0")/../dask.yaml}
export DASK_CONFIG
certificates=${1:?usage: scheduler.sh CERTIFICATES [PORT]}
exec dask scheduler --protocol tls --port "${2:-8786}" --dashboard-address 127.0.0.1:0 \
    --tls-ca-file "$certificates/ca.pem" --tls-cert "$certificates/cert.pem" --tls-key "$certificates/key.pem"
