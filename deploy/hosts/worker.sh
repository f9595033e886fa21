#!/bin/sh
# Start workers of one thread each that speak TLS. usage: worker.sh CERTIFICATES ADDRESS [WORKERS] [MEMORY EACH]
set -eu
usage="usage: worker.sh CERTIFICATES ADDRESS [WORKERS] [MEMORY EACH]"
certificates=${1:?$usage}
address=${2:?$usage}
DASK_CONFIG=${DASK_CONFIG:-$(dirname "$0")/../dask.yaml}
export DASK_CONFIG
exec dask worker "$address" --nworkers "${3:-1}" --nthreads 1 --memory-limit "${4:-auto}" --dashboard-address 127.0.0.1:0 \
    --tls-ca-file "$certificates/ca.pem" --tls-cert "$certificates/cert.pem" --tls-key "$certificates/key.pem"
