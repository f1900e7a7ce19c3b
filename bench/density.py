"""Host memory per idle sandbox: its bridge, its agent, and what the platform's parts grow by.

RSS counts pages shared between processes in each of them, PSS divides them by their users, private are those
of one process alone. MemAvailable tells what the whole machine lost, kernel memory included.
"""

import time

import harness
from harness import say

TARGET_MIB = 5  # DESIGN 8: host-side resident memory per idle sandbox
PARTS = ["space-control", "sbx-manager", "space-node-api"]
KINDS = ["Rss", "Pss", "Private"]


def available_kib():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable"))


def cgroup_processes(sandbox):
    """Processes in the control groups of a sandbox."""
    return [p for p in harness.pids() if sandbox.id in harness.cpu_groups(p)]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def main():
    parser = harness.parser("density", __doc__)
    parser.add_argument("-n", type=int, default=40, help="sandboxes")
    parser.add_argument("--template", default="host")
    options = parser.parse_args()
    if options.quick:
        options.n = 3
    machine = harness.start(options)
    with harness.Platform(options.n + 1, options.template == "base") as platform:
        harness.Sandbox(platform, template=options.template)  # the first pays for what all share
        parts = {name: platform.pid(name) for name in PARTS}
        manager = parts["sbx-manager"]
        before = {name: harness.memory_kib(pid) for name, pid in parts.items()}
        children = {p for p in harness.pids() if harness.parent(p) == manager}
        free_before = available_kib()
        sandboxes = []
        for number in range(options.n):
            sandboxes.append(harness.Sandbox(platform, template=options.template))
            if (number + 1) % 10 == 0:
                say("%d of %d" % (number + 1, options.n))
        time.sleep(2)  # what ends after a start has ended
        free_after = available_kib()
        growth = {name: {kind: (harness.memory_kib(pid)[kind] - before[name][kind]) / options.n for kind in KINDS}
                  for name, pid in parts.items()}
        bridges = [harness.memory_kib(s.bridge) for s in sandboxes]
        agents = [harness.memory_kib(s.agent) for s in sandboxes]
        # Processes that a sandbox costs besides its bridge and its agent.
        others = {p for p in harness.pids() if harness.parent(p) == manager} - children \
            - {s.bridge for s in sandboxes}
        others |= {p for s in sandboxes for p in cgroup_processes(s)} - {s.agent for s in sandboxes}
        leftovers = sorted(filter(None, map(harness.process_name, others)))
        runtime = platform.call("GET", "status")["workers"][0]["runtime"]

    rows = {"spaced-host": {kind: mean(m[kind] for m in bridges) for kind in KINDS},
            "spaced-guest": {kind: mean(m[kind] for m in agents) for kind in KINDS},
            **{name + " grows by": growth[name] for name in PARTS}}
    host_side = {kind: sum(rows[name][kind] for name in rows if name != "spaced-guest") for kind in KINDS}
    machine_kib = (free_before - free_after) / options.n
    met = host_side["Rss"] <= TARGET_MIB * 1024
    document = {"benchmark": "density", "machine": machine, "runtime": runtime, "n": options.n,
                "template": options.template, "per_sandbox_kib": rows, "host_side_kib": host_side,
                "mem_available_kib": machine_kib, "other_processes": leftovers, "target_kib": TARGET_MIB * 1024}
    text = harness.heading(machine) + "%s, template %s, %d idle sandboxes; KiB per sandbox\n\n" % (
        runtime, options.template, options.n)
    lines = [[name] + ["%.0f" % figures[kind] for kind in KINDS] for name, figures in rows.items()]
    lines.append(["host side (all but spaced-guest)"] + ["%.0f" % host_side[kind] for kind in KINDS])
    text += harness.table(["", "RSS", "PSS", "private"], lines)
    text += "\nMemAvailable: %.0f KiB less per sandbox\nother processes left per sandbox: %s\n" % (
        machine_kib, ", ".join(leftovers) or "none")
    if not options.quick:
        text += "host side, RSS <= %d MiB: %s\n" % (TARGET_MIB, "met" if met else "missed")
    harness.print_result(options.json, document, text)


if __name__ == "__main__":
    main()
