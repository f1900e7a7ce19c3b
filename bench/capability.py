"""The manager's check of a capability, seen before and new, against libsodium's verification.

  seen        verify (signature cached; time, purpose, holder, access checked), find the record, compare:
              2,048 capabilities of 64 sandboxes in turn
  same        the same with one capability only
  with lease  `seen`, and the lease taken and released
  new         the same check of a capability whose signature was not seen yet
  libsodium   crypto_sign_verify_detached of the same message

CPU time of one thread, each in turn within a round.
"""

import json
import os
import subprocess

import harness
from harness import median, percentile

NAMES = [("seen_ns", "seen"), ("seen_same_ns", "same"), ("seen_lease_ns", "with lease"), ("new_ns", "new"),
         ("libsodium_ns", "libsodium")]
SEEN_TARGET_NS, NEW_TARGET = 1000, 1.05  # DESIGN 8


def main():
    parser = harness.parser("capability", __doc__)
    parser.add_argument("--rounds", type=int, default=101)
    options = parser.parse_args()
    result = subprocess.run([os.path.join(harness.PROGRAMS, "bench-capability"), "--rounds",
                             "2" if options.quick else str(options.rounds)], capture_output=True, check=True)
    measured = json.loads(result.stdout)
    rounds = measured.pop("rounds")
    figures = {name: {"median": median([r[name] for r in rounds]), "min": min(r[name] for r in rounds),
                      "p90": percentile([r[name] for r in rounds], 90)} for name, _ in NAMES}
    ratio = median([r["new_ns"] / r["libsodium_ns"] for r in rounds])
    machine = harness.start(options)
    document = {"benchmark": "capability", "machine": machine, **measured, "figures": figures,
                "new_to_libsodium": ratio, "targets": {"seen_ns": SEEN_TARGET_NS, "new_to_libsodium": NEW_TARGET}}

    def verdict(met):
        return "" if options.quick else "met" if met else "missed"
    rows = [[label, "%.0f" % figures[name]["median"], "%.0f" % figures[name]["min"],
             "%.0f" % figures[name]["p90"]] for name, label in NAMES]
    text = harness.heading(machine) + "message %d bytes; ns of CPU time per check, %d rounds\n\n" % (
        measured["message_bytes"], len(rounds))
    text += harness.table(["", "median", "least", "p90"], rows)
    text += "\nseen <= %d ns: %s\n" % (SEEN_TARGET_NS, verdict(figures["seen_ns"]["median"] <= SEEN_TARGET_NS))
    text += "new / libsodium within each round: %.3f; <= %.2f: %s\n" % (ratio, NEW_TARGET, verdict(ratio <= NEW_TARGET))
    harness.print_result(options.json, document, text)


if __name__ == "__main__":
    main()
