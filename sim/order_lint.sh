#!/bin/sh
# Fails when production code that the simulation runs orders anything by address: such an order differs
# between two runs of one seed. $1: the project's folder.
cd "$1/src" || exit 2
found=$(grep -rnE '(std::(multi)?(set|map)|unordered_(multi)?(set|map))<[A-Za-z_:]+ ?\*' \
  --include='*.h' --include='*.cc' core ports services | grep -v '/testing/')
found="$found$(grep -rnE 'std::(uniform_|normal_|bernoulli_|discrete_)|random_device|system_clock::now|steady_clock::now' \
  --include='*.h' --include='*.cc' core ports services | grep -v _test.cc)"
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
exit 1
