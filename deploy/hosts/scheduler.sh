#!/bin/sh
# Start a scheduler that speaks TLS. usage: scheduler.sh SETTINGS (as in cluster.conf)
set -eu
# Of a name without a slash the shell would look into PATH.
settings=$(realpath "${1:?usage: scheduler.sh SETTINGS}")
# shellcheck source=cluster.conf
. "$settings"
DASK_CONFIG=${DASK_CONFIG:-$(dirname "$0")/../dask.yaml}
# Nothing is imported from the folder that this is started in.
PYTHONSAFEPATH=1
export DASK_CONFIG PATH PYTHONSAFEPATH
exec dask scheduler --protocol tls --host "$SCHEDULER" --port "$PORT" --dashboard-address 127.0.0.1:0 \
    --tls-ca-file "$CERTIFICATES/ca.pem" --tls-cert "$CERTIFICATES/cert.pem" --tls-key "$CERTIFICATES/key.pem"
