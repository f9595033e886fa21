#!/bin/sh
# Start workers that speak TLS; they end when they have found no scheduler for a minute. usage: worker.sh SETTINGS
set -eu
# Of a name without a slash the shell would look into PATH.
settings=$(realpath "${1:?usage: worker.sh SETTINGS (as in cluster.conf)}")
# shellcheck source=cluster.conf
. "$settings"
DASK_CONFIG=${DASK_CONFIG:-$(dirname "$0")/../dask.yaml}
# Nothing is imported from the folder that this is started in.
PYTHONSAFEPATH=1
export DASK_CONFIG PATH PYTHONSAFEPATH
exec dask worker "tls://$SCHEDULER:$PORT" --nworkers "$WORKERS" --nthreads 1 --memory-limit "$MEMORY" \
    --worker-port "$WORKER_PORTS" --nanny-port "$NANNY_PORTS" ${INTERFACE:+--interface "$INTERFACE"} \
    --death-timeout 60 --dashboard-address 127.0.0.1:0 \
    --tls-ca-file "$CERTIFICATES/ca.pem" --tls-cert "$CERTIFICATES/cert.pem" --tls-key "$CERTIFICATES/key.pem"
