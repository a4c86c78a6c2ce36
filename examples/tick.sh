#!/bin/sh
# Rings a job as a scheduler does: signs "runId.cutoffIso" with openssl, posts it with curl, and fails where Tocsin did
# not take it.
#
#   TICK_SECRET_FILE=/run/secrets/shipments-tick TOCSIN_URL=https://tocsin.example.com sh tick.sh shipments.expire
#
# Within one minute the run id stays the same: a scheduler that fires twice, or a retry, is one run.
set -eu

if [ "$#" -lt 1 ] || [ "$#" -gt 2 ] || [ "$1" = -h ] || [ "$1" = --help ]; then
  echo 'usage: TICK_SECRET_FILE=FILE [TOCSIN_URL=http://HOST:PORT] sh tick.sh JOB [CUTOFF]' >&2
  exit 2
fi

url=${TOCSIN_URL:-http://127.0.0.1:8080}
job=$1
cutoff=${2:-$(date -u +%Y-%m-%dT%H:%M:00Z)}
run_id="$job@$cutoff"
secret=$(cat "${TICK_SECRET_FILE:?name the file that holds the tick secret}")

# printf, because echo would sign a line end too; -r and cut, because openssl prints more than the hex.
signature=$(printf '%s' "$run_id.$cutoff" | openssl dgst -sha256 -hmac "$secret" -r | cut -d' ' -f1)

printf '{"runId":"%s","cutoffIso":"%s","signature":"%s"}' "$run_id" "$cutoff" "$signature" |
  curl --fail-with-body --silent --show-error --max-time 30 --retry 5 --retry-connrefused \
    --header 'content-type: application/json' --data-binary @- "$url/v1/jobs/$job/ticks"
