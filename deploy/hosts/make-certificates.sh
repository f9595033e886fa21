#!/bin/sh
# Make a certificate authority, and one certificate signed by it for all ends of a Dask cluster. FOLDER is what the hosts
# get. The authority's key stays with you, in FOLDER-authority: it makes the next certificate.
# usage: make-certificates.sh FOLDER [DAYS]
set -eu
folder=${1:?usage: make-certificates.sh FOLDER [DAYS]}
folder=${folder%/}
authority=$folder-authority
days=${2:-365}
if [ -e "$folder" ]; then
    echo "$folder is there already. cure: name another folder, or move it away for a new certificate" >&2
    exit 1
fi
umask 077
mkdir -p "$authority" "$folder"
if [ ! -e "$authority/ca-key.pem" ]; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=mlfs cluster authority" \
        -keyout "$authority/ca-key.pem" -out "$authority/ca.pem" 2>/dev/null
fi
openssl req -newkey rsa:2048 -nodes -subj "/CN=mlfs cluster" \
    -keyout "$folder/key.pem" -out "$authority/request.pem" 2>/dev/null
openssl x509 -req -in "$authority/request.pem" -CA "$authority/ca.pem" -CAkey "$authority/ca-key.pem" \
    -CAcreateserial -days "$days" -out "$folder/cert.pem" 2>/dev/null
cp "$authority/ca.pem" "$folder/ca.pem"
rm "$authority/request.pem"
echo "made $folder for every host: ca.pem, cert.pem and key.pem; $authority stays here"
