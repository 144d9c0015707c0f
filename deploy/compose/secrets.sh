#!/bin/sh
# Makes the secrets of ../compose.yaml that are not there yet, below compose/secrets. Run it from anywhere.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
cd secrets

new() { # a name and what to write, where there is nothing yet
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

# Each is mounted by itself into containers whose users are not yours; the folder keeps everybody else out.
chmod 644 ./*
