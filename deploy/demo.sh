#!/usr/bin/env bash
# What SPACE does, shown on a running platform: every step prints what was proved. Starts the platform when it
# is down, leaves it up, and removes only the sandbox it made.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "$0")")")
build=${SPACE_BUILD:-$root/build/release}
export SPACE_DATA=${SPACE_DATA:-$root/.space}
space() { "$build/bin/space" "$@"; }
probe() { "$build/tests/probe/space-probe" "$SPACE_DATA/space.toml" "$@"; }
json() { python3 -c 'import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1].split("."):
    value = value[int(key)] if key.isdigit() else value[key]
print(value)' "$1"; }

begin=0
step=0
now() { date +%s%3N; }
title() { step=$((step + 1)); printf '\n%d. %s\n' "$step" "$*"; begin=$(now); }
proved() { printf '   %-84s %6d ms\n' "$*" "$(($(now) - begin))"; begin=$(now); }
show() { printf '   %s\n' "$*"; }
fail() { printf '\ndemo: %s\n' "$*" >&2; exit 1; }
execution() { space --json route "$1" | python3 -c 'import json, sys
route = json.load(sys.stdin)["selected"]
print("{sandbox}.{generation}@{worker}".format(**route) if route else "none")'; }

# A capability minted for the old execution goes to the worker that served it. That worker has retired the
# execution, so its comparator answers, and no byte reaches any guest.
show_stale_refusal() {  # WORKER SANDBOX CAPABILITY
  local verdict
  verdict=$(probe present "$1" "$2" "$3" /home/user/note.txt) || fail "the probe failed: $verdict"
  case $verdict in
    admitted*) fail "the old capability was admitted at $1" ;;
    *) proved "worker $1 answers: $verdict" ;;
  esac
}

id=
cleanup() { [ -z "$id" ] || space kill "$id" >/dev/null 2>&1 || true; }
trap cleanup EXIT

title "Platform"
up=$(space --json up)
proved "$(echo "$up" | json url), workers $(echo "$up" | python3 -c 'import json, sys
print(", ".join("%s (%s, evidence %s)" % (w["id"], w["runtime"], w["evidence"]) for w in json.load(sys.stdin)["workers"]))')"

w1=$(echo "$up" | json workers.0.id)
w2=$(echo "$up" | json workers.1.id)

title "Create a sandbox on worker $w1"
id=$(space --json create --worker "$w1" --timeout 900 -m made-by=demo | json id)
proved "sandbox $id"
old=$(execution "$id")
show "selected execution: $old"

title "Write a file, run a program on it, read it back"
text="seven of nine, $(date +%s)"
printf '%s\n' "$text" >"${TMPDIR:-/tmp}/space-demo.$$"
written=$(space --json cp "${TMPDIR:-/tmp}/space-demo.$$" "$id:note.txt")
rm -f "${TMPDIR:-/tmp}/space-demo.$$"
[ "$(echo "$written" | json execution)" = "$old" ] || fail "the write reached $written"
proved "written, by execution $(echo "$written" | json execution)"
sum=$(space exec "$id" -- sha256sum note.txt)
[ "${sum%% *}" = "$(printf '%s\n' "$text" | sha256sum | cut -d' ' -f1)" ] || fail "wrong sum: $sum"
proved "sha256sum in the sandbox agrees: ${sum:0:16}..."
code=0
space exec "$id" -- sh -c 'exit 7' || code=$?
[ "$code" = 7 ] || fail "exit code $code instead of 7"
proved "exit code of a remote command: 7"
[ "$(space cat "$id" note.txt)" = "$text" ] || fail "the file came back different"
proved "read back the same"

title "Keep a capability of this execution, then pause"
key=$(sed -n 's/^api_key = "\(.*\)"/\1/p' "$SPACE_DATA/cli.toml")
capability=$(probe mint "$key" "$id")
proved "minted for $old: ${#capability} hex digits"
space pause "$id" >/dev/null
proved "paused: processes stopped, writes durable, $old retired"

title "Resume on worker $w2"
space resume "$id" --worker "$w2" >/dev/null
new=$(execution "$id")
proved "selected execution: $new"
generation=${old#*.}
generation=${generation%@*}
[ "$new" = "$id.$((generation + 1))@$w2" ] || fail "the generation did not step by one: $old -> $new"
show "same sandbox, next generation, other worker: $old -> $new"
[ "$(space cat "$id" note.txt)" = "$text" ] || fail "the file is not there"
proved "note.txt is still there"

title "Present the old capability"
show_stale_refusal "$w1" "$id" "$capability"
show_stale_refusal "$w2" "$id" "$capability"
space route "$id" | sed 's/^/   /'

title "Remove the sandbox"
space kill "$id" >/dev/null
id=
proved "killed; the platform stays up"

cat <<TEXT

What to type next (in $root):
  ID=\$(./dev space create)
  ./dev space exec \$ID -- uname -a
  ./dev space route \$ID
  ./dev space --help
  ./dev down
TEXT
