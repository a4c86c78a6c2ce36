#!/bin/sh
# Rings a job as a scheduler does: signs "runId.cutoffIso", posts it with curl, and fails where Tocsin did not take it.
#
#   TICK_SECRET_FILE=/etc/tocsin/shipments-tick TOCSIN_URL=https://tocsin.example.com sh tick.sh shipments.expire
#
# POSIX sh with curl, openssl and od. Every try of one call has the same run id and the same cutoff, and so has another
# call within the same minute: all of them are one run.
#
# The secret is never an argument of a program, because `ps` shows those to everybody on the machine. `openssl dgst`
# takes the key of an HMAC as an argument only, so the HMAC is put together here from two plain hashes (RFC 2104).
set -eu
export LC_ALL=C

usage() {
  echo 'usage: TICK_SECRET_FILE=FILE [TOCSIN_URL=http://HOST:PORT] sh tick.sh JOB [CUTOFF]' >&2
  exit 2
}

fail() {
  printf 'tick.sh: %s\n' "$1" >&2
  exit 1
}

# A job's name and a time need no escaping, neither in JSON nor in a URL.
plain() {
  case $1 in '' | -* | *[!A-Za-z0-9._:+-]*) usage ;; esac
}

# The shell counts in whole numbers, takes a leading zero for octal, and wraps around far up.
whole() {
  case $2 in *[!0-9]* | 0?* | ??????*) fail "$1 must be a whole number up to 99999, not $2" ;; esac
}

# The bytes $2, $3 … (in decimal), each XOR $1, written as they are.
write() {
  mask=$1 text=
  shift
  for byte; do
    byte=$((byte ^ mask))
    text="$text\\0$((byte / 64))$((byte / 8 % 8))$((byte % 8))"
  done
  printf %b "$text"
}

bytes() {
  od -A n -v -t u1
}

# The bytes of the secret's file without the line ends behind them; Tocsin trims its own copy in the same way.
read_key() {
  key='' ends=''
  for byte in $(bytes <"$1"); do
    case $byte in
      10 | 13) ends="$ends $byte" ;;
      *) key="$key$ends $byte" ends='' ;;
    esac
  done
}

# The hex of HMAC-SHA256 of $1 with $key.
hmac() {
  message=$1
  # shellcheck disable=SC2086  # the bytes are words
  set -- $key
  # shellcheck disable=SC2046
  [ "$#" -le 64 ] || set -- $(write 0 "$@" | openssl dgst -sha256 -binary | bytes)
  while [ "$#" -lt 64 ]; do set -- "$@" 0; done
  { write 54 "$@" && printf %s "$message"; } | openssl dgst -sha256 -binary |
    { write 92 "$@" && cat; } | openssl dgst -sha256 -r | cut -d' ' -f1
}

# One try; prints what came back and, on a line of its own, the status (000: nobody answered).
post() {
  printf '{"runId":"%s","cutoffIso":"%s","signature":"%s"}' "$run_id" "$cutoff" "$signature" |
    curl --silent --show-error --stderr - --max-time 30 --header 'content-type: application/json' \
      --data-binary @- --write-out '\n%{http_code}' "$url/v1/jobs/$job/ticks" || true
}

[ "$#" -eq 1 ] || [ "$#" -eq 2 ] || usage
secret_file=${TICK_SECRET_FILE:-}
[ -n "$secret_file" ] || usage
url=${TOCSIN_URL:-http://127.0.0.1:8080}
url=${url%/}
job=$1
cutoff=${2:-$(date -u +%Y-%m-%dT%H:%M:00Z)}
plain "$job"
plain "$cutoff"
tries=${TICK_TRIES:-6} # with the pauses 1, 2, 4, 8 and 16 s: about half a minute without an answer
pause=${TICK_PAUSE:-1}
whole TICK_TRIES "$tries"
whole TICK_PAUSE "$pause"
[ "$tries" -gt 0 ] || fail 'TICK_TRIES must be at least 1'
run_id="$job@$cutoff"

case $(command -v printf) in
  printf) ;;
  *) fail 'this sh has no printf of its own: another program would be handed the secret' ;;
esac
[ ! -d "$secret_file" ] || fail "$secret_file is a folder: TICK_SECRET_FILE names the file with the secret"
[ -r "$secret_file" ] || fail "$secret_file cannot be read"
read_key "$secret_file"
[ -n "$key" ] || fail "$secret_file is empty"
signature=$(hmac "$run_id.$cutoff")
[ "${#signature}" -eq 64 ] || fail 'openssl made no signature'

while :; do
  answer=$(post)
  status=${answer##*
}
  answer=${answer%
*}
  tries=$((tries - 1))
  case $status in
    200 | 202)
      case $answer in *'"duplicate":'*) printf '%s\n' "$answer" && exit 0 ;; esac
      fail "HTTP $status, but not from Tocsin: is $url its address?"
      ;;
    000 | 408 | 425 | 429 | 5??) [ "$tries" -gt 0 ] || fail "not taken, HTTP $status, nothing left to try: $answer" ;;
    *) fail "refused, HTTP $status: $answer" ;;
  esac
  sleep "$pause"
  pause=$((pause * 2))
done
