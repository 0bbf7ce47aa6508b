#!/bin/sh
# Register the public keys NAME.pub in a directory at the SuperLink, once: register.sh DIRECTORY
set -eu
for key in "$1"/*.pub; do
    if [ -e "/app/state/$(basename "$key").registered" ]; then
        continue
    fi
    flwr supernode register "$key" deploy
    touch "/app/state/$(basename "$key").registered"
done
