#!/usr/bin/env bash
# Fails when a core archive refers to the clock, entropy, files, sockets, threads or the environment.
set -euo pipefail
banned='^(clock_gettime|gettimeofday|time|getrandom|getentropy|open(at|64)?|fopen(64)?|read|write|socket|connect|send|recv|getenv|pthread_create|nanosleep|usleep|rand|random)(@|$)|random_device|chrono::_V2::[a-z_]*::now|basic_(if|of|f)stream|std::thread|std::filesystem'
if nm -uC "$1" | awk '$1 == "U" { $1 = ""; print substr($0, 2) }' | sort -u | grep -E "$banned"; then
  echo "error: $1 must not perform I/O; take the value as a parameter or use a port" >&2
  exit 1
fi
