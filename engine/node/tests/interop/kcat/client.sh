#!/usr/bin/env bash
# kcat as a client of the interop tests; how it is driven: tests/interop/program.rs.
#
# kcat reports where a record went, not which record. Reports come in the order of sending, so the
# how-manieth names it. (Not so without idempotence, where what is sent again may come late.)
set -euo pipefail
mode=$1 bootstrap=$2 topic=$3
debug=feature,protocol,broker,eos

values() { # count
  local number
  for ((number = 0; number < $1; number++)); do
    echo "value-$number"
    if ((number % 5 == 0)); then sleep 0.005; fi
  done
}

reports() {
  local line number=0
  while IFS= read -r line; do
    if [[ $line =~ 'Message delivered to partition 0 (offset '([0-9]+)')' ]]; then
      echo "acked value-$number ${BASH_REMATCH[1]}"
      number=$((number + 1))
    else
      printf '%s\n' "$line" >&2
    fi
  done
}

if [[ $mode == produce ]]; then
  values "$4" \
    | kcat -P -vvv -b "$bootstrap" -t "$topic" -p 0 -X enable.idempotence=true -d "$debug" 2>&1 \
    | reports
else
  exec kcat -C -u -b "$bootstrap" -t "$topic" -p 0 -o beginning -f '%o %s\n' -d "$debug"
fi
