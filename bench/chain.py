"""A 4 KiB file read through the whole request path, against plain HTTP and three nginx hops.

  chain   through node-api, sbx-manager, spaced-host and spaced-guest, into a sandbox, by our own API
  e2b     the same as the E2B SDKs ask for it
  plain   from the agent's own read function behind plain HTTP on a Unix socket, in an equal sandbox
  nginx3  from the same as `plain`, through three chained nginx proxies

One load generator measures each at 1, 16 and 64 concurrent requests, with the servers pinned to one CPU and
the generator to another, and unpinned. The variants alternate within each round.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile

import harness
from harness import PROGRAMS, median, own_platform, say

FILE_BYTES = 4096
FILE = "/home/user/bench.bin"
# Against which yardstick, least share of its throughput at 64 concurrent, pinned (DESIGN 8).
TARGETS = {"chain": [("nginx3", 2.5), ("plain", 0.6)], "e2b": [("nginx3", 2.5), ("plain", 0.6)]}
VARIANTS = ["chain", "e2b", "plain", "nginx3"]

NGINX_HOP = """\
worker_processes 1;
daemon off;
user root;
pid {folder}/{name}.pid;
error_log {folder}/{name}.log warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/{name}-body;
  proxy_temp_path {folder}/{name}-proxy;
  fastcgi_temp_path {folder}/{name}-fastcgi;
  uwsgi_temp_path {folder}/{name}-uwsgi;
  scgi_temp_path {folder}/{name}-scgi;
  upstream next {{ server unix:{upstream}; keepalive 128; keepalive_requests 1000000000; }}
  server {{
    listen {listen} backlog=1024;
    location / {{
      proxy_pass http://next;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""


class Variant:
    """Something that serves the file: where, how it is asked, and which processes do it."""

    def __init__(self, name, address, target, headers, servers):
        self.name = name
        self.address = address
        self.head = "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n%s" % (
            target, "".join("%s: %s\r\n" % header for header in headers))
        self.servers = servers  # label -> pids

    def pids(self):
        return [pid for pids in self.servers.values() for pid in pids]

    def request(self, size):
        """The bytes of the request, `size` of them: all variants read and write equally many."""
        filler = size - len(self.head) - len("X-Filler: \r\n\r\n")
        return "%sX-Filler: %s\r\n\r\n" % (self.head, "x" * filler)


def start_chain(platform, content):
    """The variants `chain` and `e2b`: one sandbox, two ways to ask for its file."""
    sandbox = harness.Sandbox(platform)
    sandbox.write(FILE, content)
    token = platform.call("POST", "/v2/sandboxes/%s/connect" % sandbox.id, {"timeout": 7200})["envdAccessToken"]
    address = "tcp:127.0.0.1:%d" % platform.port
    servers = {"node-api": [platform.pid("space-node-api")], "sbx-manager": [platform.pid("sbx-manager")],
               "spaced-host": [sandbox.bridge], "spaced-guest": [sandbox.agent],
               "control": [platform.pid("space-control")]}
    return {"chain": Variant("chain", address, "/space/v1/sandboxes/%s/files?path=%s" % (sandbox.id, FILE),
                             [("X-API-KEY", platform.key)], servers),
            "e2b": Variant("e2b", address, "/files?path=%s&username=user" % FILE,
                           [("E2b-Sandbox-Id", sandbox.id), ("E2b-Sandbox-Port", "49983"), ("X-Access-Token", token)],
                           servers)}


def start_plain(platform, content):
    sandbox = harness.Sandbox(platform)
    sandbox.write(FILE, content)
    with open(os.path.join(PROGRAMS, "plain-http-guest"), "rb") as f:
        platform.call("PUT", sandbox.path("files?path=/root/plain-http-guest&user=root&mode=755"), raw=f.read())
    process = sandbox.start("/root/plain-http-guest", "unix:/root/plain.sock")
    process.wait_for_output("listening")
    pid = next(p for p in harness.pids() if harness.process_name(p) == "plain-http-guest"
               and sandbox.id in harness.cpu_groups(p))
    variant = Variant("plain", "unix:/proc/%d/root/root/plain.sock" % pid, FILE, [], {"plain": [pid]})
    variant.process = process  # its event stream stays open as long as it serves
    return variant


def find_nginx():
    return shutil.which("nginx", path=os.pathsep.join(
        [os.path.join(harness.ROOT, "build/nginx/usr/sbin"), os.environ["PATH"]]))


def start_nginx(stack, folder, plain):
    nginx = find_nginx()
    port = own_platform.free_port()
    upstream = plain.address.removeprefix("unix:")
    servers = {}
    for hop in (3, 2, 1):
        name = "nginx-%d" % hop
        socket = os.path.join(folder, name + ".sock")
        config = os.path.join(folder, name + ".conf")
        with open(config, "w") as f:
            f.write(NGINX_HOP.format(folder=folder, name=name, upstream=upstream,
                                     listen="127.0.0.1:%d" % port if hop == 1 else "unix:" + socket))
        server = harness.Server([nginx, "-p", folder, "-c", config, "-e", os.path.join(folder, name + ".log")])
        stack.callback(server.stop)
        workers = harness.wait_until(server.children, name)
        servers[name] = [server.process.pid, *workers]
        upstream = socket
    servers.update(plain.servers)
    variant = Variant("nginx3", "tcp:127.0.0.1:%d" % port, FILE, [], servers)
    variant.version = subprocess.run([nginx, "-v"], capture_output=True, text=True,
                                     check=True).stderr.strip().split("/")[-1]
    return variant


def measure(variant, files, connections, pinned, options):
    """One run of the load generator; its figures, with the servers' CPU time by label."""
    cpus = {harness.SERVER_CPU} if pinned else set(range(os.cpu_count()))
    for pid in variant.pids():
        harness.pin(pid, cpus)
    command = [os.path.join(PROGRAMS, "space-load"), "--connect", variant.address,
               "--request", files[variant.name], "--body", files["body"],
               "--connections", str(connections), "--seconds", str(options.seconds),
               "--warm-up", str(options.warm_up)]
    if options.requests:
        command += ["--requests", str(options.requests)]
    for pid in variant.pids():
        command += ["--pid", str(pid)]
    own = {harness.CLIENT_CPU} if pinned else cpus
    result = subprocess.run(command, capture_output=True, text=True, check=False,
                            preexec_fn=lambda: os.sched_setaffinity(0, own))
    if result.returncode != 0:
        raise RuntimeError("%s: %s" % (variant.name, result.stderr))
    figures = json.loads(result.stdout)
    by_pid = figures.pop("cpu_us")
    figures["cpu_by_part_us"] = {label: sum(by_pid[str(pid)] for pid in pids)
                                 for label, pids in variant.servers.items()}
    figures["cpu_us"] = sum(by_pid.values())
    return figures


def summary(samples):
    """Medians of the rounds."""
    out = {name: median([s[name] for s in samples])
           for name in ("requests_per_s", "p50_us", "p99_us", "cpu_us", "own_cpu_us", "others_cpu")}
    out["cpu_by_part_us"] = {label: median([s["cpu_by_part_us"][label] for s in samples])
                             for label in samples[0]["cpu_by_part_us"]}
    return out


def ratio(numerators, denominators, name):
    """Of the same rounds: median, least, greatest."""
    values = [a[name] / b[name] for a, b in zip(numerators, denominators)]
    return {"median": median(values), "min": min(values), "max": max(values)}


def report(samples, options):
    """The document and its text. `samples`: (pinned, connections, variant) -> figures of each round."""
    document = {"points": [], "ratios": []}
    text = ""
    for pinned in options.pinning:
        where = "servers on CPU%d, load on CPU%d" % (harness.SERVER_CPU, harness.CLIENT_CPU) \
            if pinned else "unpinned"
        rows = []
        parts = []
        for connections in options.connections:
            for name in options.variants:
                point = summary(samples[pinned, connections, name])
                document["points"].append({"pinned": pinned, "connections": connections, "variant": name, **point})
                rows.append([name, connections, "%.0f" % point["requests_per_s"], "%.0f" % point["p50_us"],
                             "%.0f" % point["p99_us"], "%.1f" % point["cpu_us"], "%.1f" % point["own_cpu_us"],
                             "%.2f" % point["others_cpu"]])
                if len(point["cpu_by_part_us"]) > 1:
                    parts.append([name, connections, " ".join("%s %.1f" % part for part in
                                                              point["cpu_by_part_us"].items())])
        text += "\n%s\n" % where + harness.table(
            ["variant", "conc", "req/s", "p50 us", "p99 us", "CPU us/req", "load CPU", "others"], rows)
        text += "\n" + harness.table(["CPU us/req by part", "conc", ""], parts)
    rows = []
    for pinned in options.pinning:
        for connections in options.connections:
            for subject, name, target in ((s, n, t) for s in TARGETS for n, t in TARGETS[s]):
                if subject not in options.variants or name not in options.variants:
                    continue
                ours, other = samples[pinned, connections, subject], samples[pinned, connections, name]
                figures = {what: ratio(ours, other, what) for what in ("requests_per_s", "cpu_us", "p50_us")}
                judged = pinned and connections == 64 and not options.quick
                document["ratios"].append({"pinned": pinned, "connections": connections, "of": subject,
                                           "against": name, **figures, **({"target": target} if judged else {})})
                throughput = figures["requests_per_s"]
                rows.append([subject + " / " + name, "pinned" if pinned else "unpinned", connections,
                             "%.2f [%.2f-%.2f]" % (throughput["median"], throughput["min"], throughput["max"]),
                             "%.2f" % figures["cpu_us"]["median"], "%.2f" % figures["p50_us"]["median"],
                             ">= %.1f: %s" % (target, "met" if throughput["median"] >= target else "missed")
                             if judged else ""])
    if rows:
        text += "\nratios within each round, median [least-greatest]\n" + harness.table(
            ["", "", "conc", "req/s", "CPU", "p50", "target"], rows)
    return document, text


def main():
    parser = harness.parser("chain", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each point, measured")
    parser.add_argument("--warm-up", type=float, default=0.3, help="seconds before that")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--only", choices=["pinned", "unpinned"])
    options = parser.parse_args()
    options.requests = None
    if options.quick:
        options.rounds, options.seconds, options.warm_up, options.requests = 1, 30, 0, 200
    options.pinning = {None: [True, False], "pinned": [True], "unpinned": [False]}[options.only]
    if os.cpu_count() < 2:
        options.pinning = [False]

    if "nginx3" in options.variants and find_nginx() is None:
        if not options.quick:
            raise SystemExit("no nginx: ./dev bench chain fetches it")
        say("no nginx: its variant is left out")
        options.variants = [v for v in options.variants if v != "nginx3"]

    machine = harness.start(options)
    content = secrets.token_bytes(FILE_BYTES)
    samples = {}
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="space-bench-chain-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        platform = stack.enter_context(harness.Platform())
        variants = start_chain(platform, content)
        if "plain" in options.variants or "nginx3" in options.variants:
            variants["plain"] = start_plain(platform, content)
        if "nginx3" in options.variants:
            variants["nginx3"] = start_nginx(stack, folder, variants["plain"])
            machine["nginx"] = variants["nginx3"].version

        files = {"body": os.path.join(folder, "body")}
        with open(files["body"], "wb") as f:
            f.write(content)
        size = max(len(v.head) for v in variants.values()) + 64
        for name, variant in variants.items():
            files[name] = os.path.join(folder, name + ".request")
            with open(files[name], "w") as f:
                f.write(variant.request(size))

        for number in range(options.rounds):
            say("round %d of %d" % (number + 1, options.rounds))
            order = options.variants[number % len(options.variants):] + \
                options.variants[:number % len(options.variants)]
            for pinned in options.pinning:
                for connections in options.connections:
                    for name in order:
                        figures = measure(variants[name], files, connections, pinned, options)
                        samples.setdefault((pinned, connections, name), []).append(figures)
    document, text = report(samples, options)
    document = {"benchmark": "chain", "machine": machine, "rounds": options.rounds, "seconds": options.seconds,
                "request_bytes": size, "quick": options.quick, **document}
    harness.print_result(options.json, document, harness.heading(machine) + text)


if __name__ == "__main__":
    main()
