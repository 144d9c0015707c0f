#!/bin/sh
# Creates missing secrets of ../compose.yaml in compose/secrets. Run it from any directory.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
cd secrets

new() { # create file $1 with content $2, unless it exists
    [ -s "$1" ] || printf '%s' "$2" > "$1"
}
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

new valkey_password "$(random)"
new postgres_password "$(random)"
new grafana_password "$(random)"
new redis_url "redis://:$(cat valkey_password)@valkey:6379/0"
new database_url "postgresql://thriftgate:$(cat postgres_password)@postgres/thriftgate"
new openai_api_key "${OPENAI_API_KEY:-put-the-key-here}"
new metrics_key "made-once-the-gateway-runs"

# Containers with other users mount single files, so these are readable; the folder keeps other users out.
chmod 644 ./*
