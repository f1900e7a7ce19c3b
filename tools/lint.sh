#!/usr/bin/env bash
# Words that belong to some folders only (comments do not count), and include rules the compiler cannot see.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
status=0

# check PATTERN WHY ALLOWED-REGEX: every use outside the allowed paths is an error.
check() {
  local pattern=$1 why=$2 allowed=$3 hits
  hits=$(git ls-files -co --exclude-standard -- '*.h' '*.cc' | grep -Ev "$allowed" |
    xargs -r grep -nHE "$pattern" -- | grep -Ev '^[^:]+:[0-9]+: *(//|\*)' || true)
  [ -z "$hits" ] && return
  printf '%s\n  ^ %s\n' "$hits" "$why" >&2
  status=1
}

world='^(src/adapters|apps|tests|bench|third_party)/|_test\.cc$|^fuzz/'
check '(system_clock|steady_clock|high_resolution_clock)::now' 'read clocks through Timer and WallClock' "$world"
check 'random_device|std::rand\b|\bsrand\(' 'take randomness from Entropy' "$world"
check 'std::[a-z_]+_distribution' 'std distributions differ between libraries; use our own Random' "$world"
check 'this_thread::sleep_for' 'wait on a Timer' "$world"
check '\bgetenv\(' 'configuration comes from main()' "$world"
check 'boost::asio::detached|\bdetached\b *[,)]' 'use TaskScope: no task outlives what it uses' "$world"
check '#include <boost/beast' 'Beast stays inside adapters/http' '^src/adapters/http/'
check '\b(setlocale|std::locale|strtod|stod|atoi|atof)\b' 'locale functions read input differently by machine' \
  '_test\.cc$|^tests/|^bench/'
check '#include "(adapters|apps)/' 'services, ports and core never see adapters' \
  '^(src/adapters|apps|tests|bench|fuzz)/|^sim/'
exit $status
