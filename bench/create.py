"""From asking for a sandbox to the first byte of a command's output in it, with its phases.

The client asks for a sandbox, then starts `echo` in it, one request after the other, one sandbox at a time.
Phases are told apart by the log of the control plane and of the manager (1 ms):
  asked     until the control plane has written that it is being made
  started   disk, mounts, container runtime, agent listens
  proven    spaced-host started, guest proved
  installed record durable, worker serves
  answered  selected in the control plane's store, answered to the client
  output    the command's request until the first byte of its output
"""

import base64
import contextlib
import datetime
import json
import os
import time

import harness
from harness import median, percentile, say

TARGET_MS = 60  # DESIGN 8: p50, then 30
PHASES = ["asked", "started", "proven", "installed", "answered", "output"]
# What ends a phase: part of the log's file name, event.
MARKS = [("asked", "space-control", "operation.begun"), ("started", "sbx-manager", "node.started"),
         ("proven", "sbx-manager", "bridge.up"), ("installed", "space-control", "install.acknowledged")]


def create_once(platform, template):
    """Seconds since the epoch at the marks of one creation, and the sandbox's id."""
    body = {"template": template, "timeout_s": 600}
    with contextlib.closing(platform.connect()) as connection:
        connection.connect()
        asked = time.time()
        sandbox = json.loads(platform.request(connection, "POST", "sandboxes", body).read())["id"]
        answered = time.time()
        response = platform.request(connection, "POST", "sandboxes/%s/processes" % sandbox,
                                    {"command": "/bin/echo", "arguments": ["ready"]})
        output = b""
        while not output:
            event = json.loads(response.readline())
            if "exited" in event or "error" in event:
                raise RuntimeError("no output: %s" % event)
            output = base64.b64decode(event.get("stdout", ""))
        first_byte = time.time()
        response.read()
    if output != b"ready\n":
        raise RuntimeError("other output: %r" % output)
    return sandbox, {"begin": asked, "answered": answered, "output": first_byte}


def marks_of_logs(platform, sandboxes):
    """sandbox -> {mark: seconds since the epoch}."""
    marks = {sandbox: {} for sandbox in sandboxes}
    folder = os.path.join(platform.data, "log")
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), errors="replace") as f:
            for line in f:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    found = marks.get(event.get("sandbox"))
                    for mark, part, what in MARKS:
                        if found is not None and part in name and event["event"] == what:
                            found.setdefault(mark, datetime.datetime.fromisoformat(event["time"]).timestamp())
    return marks


def main():
    parser = harness.parser("create", __doc__)
    parser.add_argument("-n", type=int, default=50, help="sandboxes")
    parser.add_argument("--template", default="host")
    options = parser.parse_args()
    if options.quick:
        options.n = 3
    machine = harness.start(options)
    times = {}
    with harness.Platform(base=options.template == "base") as platform:
        machine["runtime"] = platform.call("GET", "status")["workers"][0]["runtime"]
        harness.Sandbox(platform, template=options.template).kill()  # the first finds cold caches
        for number in range(options.n):
            sandbox, seen = create_once(platform, options.template)
            times[sandbox] = seen
            platform.call("DELETE", "sandboxes/" + sandbox)
            if (number + 1) % 10 == 0:
                say("%d of %d" % (number + 1, options.n))
        for sandbox, marks in marks_of_logs(platform, times).items():
            times[sandbox].update(marks)

    phases = {name: [] for name in PHASES}
    for seen in times.values():
        before = seen["begin"]
        for name in PHASES:
            phases[name].append((seen[name] - before) * 1000)
            before = seen[name]
    phases["create"] = [(seen["answered"] - seen["begin"]) * 1000 for seen in times.values()]
    phases["create to first byte"] = [(seen["output"] - seen["begin"]) * 1000 for seen in times.values()]
    figures = {name: {"p50_ms": median(values), "p99_ms": percentile(values, 99), "min_ms": min(values),
                      "max_ms": max(values)} for name, values in phases.items()}
    met = figures["create to first byte"]["p50_ms"] <= TARGET_MS
    document = {"benchmark": "create", "machine": machine, "n": options.n, "template": options.template,
                "figures": figures, "target_p50_ms": TARGET_MS}
    text = harness.heading(machine) + "%s, template %s, %d sandboxes; ms\n\n" % (
        machine["runtime"], options.template, options.n)
    text += harness.table(["phase", "p50", "p99", "least", "greatest"],
                          [[name] + ["%.1f" % figures[name][key] for key in ("p50_ms", "p99_ms", "min_ms", "max_ms")]
                           for name in phases])
    if not options.quick:
        text += "\ncreate to first byte, p50 <= %d ms: %s\n" % (TARGET_MS, "met" if met else "missed")
    harness.print_result(options.json, document, text)


if __name__ == "__main__":
    main()
