#!/bin/sh
# Make a certificate authority and one certificate signed by it, for all ends of a Dask cluster.
# usage: make-certificates.sh FOLDER [DAYS]
set -eu
folder=${1:?usage: make-certificates.sh FOLDER [DAYS]}
days=${2:-365}
if [ -e "$folder/ca.pem" ]; then
    echo "$folder holds certificates already" >&2
    exit 1
fi
umask 077
mkdir -p "$folder"
openssl req -x509 -newkey rsa:2048 -nodes -days "$days" -subj "/CN=mlfs cluster authority" \
    -keyout "$folder/ca-key.pem" -out "$folder/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj "/CN=mlfs cluster" \
    -keyout "$folder/key.pem" -out "$folder/request.pem" 2>/dev/null
openssl x509 -req -in "$folder/request.pem" -CA "$folder/ca.pem" -CAkey "$folder/ca-key.pem" \
    -CAcreateserial -days "$days" -out "$folder/cert.pem" 2>/dev/null
rm "$folder/request.pem"
echo "made $folder/ca.pem, cert.pem and key.pem; keep ca-key.pem off the cluster's hosts"
