"""What the benchmarks share: a platform of their own, process CPU and memory, pinning, statistics, tables.

Every process that is started here is ended here, by its pid.
"""

import argparse
import atexit
import base64
import contextlib
import http.client
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import time
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("SPACE_BUILD", os.path.join(ROOT, "build/release"))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import own_platform  # noqa: E402

PROGRAMS = os.path.join(own_platform.BUILD, "bench")
SERVER_CPU, CLIENT_CPU = 1, 0  # when pinned


def say(text):
    """Progress, for people: stdout is for the result alone."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def wait_until(condition, what, cap=60):
    deadline = time.monotonic() + cap
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise RuntimeError("%d s passed without: %s" % (cap, what))
        time.sleep(0.02)


def parser(name, description):
    """The options that every benchmark has."""
    out = argparse.ArgumentParser(prog="./dev bench " + name, description=description,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    out.add_argument("--quick", action="store_true", help="only see that it works: no figure judged")
    out.add_argument("--priority", action="store_true",
                     help="all that is measured goes before everything else: for a machine that is not quiet")
    return out


def start(options):
    """What `parser` promised; the description of the machine."""
    if options.priority:
        prefer_all()
    return machine(options)


# ---- priority: weights of CPU control groups, since a niceness counts only within one ----

CPU_GROUPS = "/sys/fs/cgroup/cpu" if os.path.isdir("/sys/fs/cgroup/cpu") else "/sys/fs/cgroup"
OWN_GROUP = os.path.join(CPU_GROUPS, "space-bench-%d" % os.getpid())


def prefer(group):
    for name, weight in (("cpu.shares", "262144"), ("cpu.weight", "10000")):
        if os.path.exists(os.path.join(group, name)):
            with open(os.path.join(group, name), "w") as f:
                f.write(weight)


def prefer_all():
    """Moves this process, and so all that it starts, into a group of the greatest weight."""
    def move(group):
        with open(os.path.join(group, "cgroup.procs"), "w") as f:
            f.write(str(os.getpid()))

    def leave():
        move(CPU_GROUPS)
        with contextlib.suppress(OSError):
            os.rmdir(OWN_GROUP)
    os.mkdir(OWN_GROUP)
    atexit.register(leave)
    prefer(OWN_GROUP)
    move(OWN_GROUP)


def prefer_sandboxes_of(pid):
    """The same for the outermost group of a sandbox's agent, which holds all sandboxes of its platform."""
    for line in cpu_groups(pid).splitlines():
        _, controllers, path = line.split(":", 2)
        if path != "/" and (controllers == "" or "cpu" in controllers.split(",")):
            prefer(os.path.join(CPU_GROUPS, path.split("/")[1]))


# ---- processes ----

def read_proc(pid, name):
    with open("/proc/%d/%s" % (pid, name), errors="replace") as f:
        return f.read()


def pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def process_name(pid):
    """argv[0] without its folder; empty when there is no such process any more."""
    with contextlib.suppress(OSError):
        return os.path.basename(read_proc(pid, "cmdline").split("\0")[0])
    return ""


def parent(pid):
    with contextlib.suppress(OSError):
        return int(read_proc(pid, "stat").rsplit(")", 1)[1].split()[1])
    return 0


def cpu_groups(pid):
    """The control groups of a process, one line each."""
    with contextlib.suppress(OSError):
        return read_proc(pid, "cgroup")
    return ""


def pin(process, cpus):
    """All threads of a process."""
    for thread in os.listdir("/proc/%d/task" % process):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)


def memory_kib(pid):
    """{'Rss': KiB, 'Pss': KiB, 'Private': KiB} of a process."""
    values = {}
    for line in read_proc(pid, "smaps_rollup").splitlines()[1:]:
        name, value = line.split(":")
        values[name] = int(value.split()[0])
    return {"Rss": values["Rss"], "Pss": values["Pss"],
            "Private": values["Private_Clean"] + values["Private_Dirty"]}


# ---- the platform ----

class Platform(own_platform.Platform):
    """A platform of one worker in a data folder of its own. As a context manager it leaves nothing behind."""

    def __init__(self, max_sandboxes=64, base=False):
        if os.geteuid() != 0:
            say("this benchmark starts a platform: it needs root")
            raise SystemExit(77)
        super().__init__(["bench-" + secrets.token_hex(3)], max_sandboxes, base)

    def __enter__(self):
        say("starting a platform in " + self.data)
        try:
            self.start()
            with open(os.path.join(self.data, "cli.toml"), "rb") as f:
                self.key = tomllib.load(f)["api_key"]
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def pid(self, part):
        """Of the first part whose name begins so."""
        return next(p["pid"] for p in self.state()["parts"] if p["name"].startswith(part))

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def request(self, connection, method, path, body=None, raw=None):
        """Sends a request, under /space/v1 unless the path is absolute; the head of its response has arrived."""
        headers = {"X-API-KEY": self.key}
        if body is not None:
            raw = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection.request(method, path if path.startswith("/") else "/space/v1/" + path, raw, headers)
        response = connection.getresponse()
        if response.status >= 300:
            raise RuntimeError("%s %s: %d %s" % (method, path, response.status, response.read()[:400]))
        return response

    def call(self, method, path, body=None, raw=None):
        """One request on a connection of its own; the JSON of the answer."""
        with contextlib.closing(self.connect()) as connection:
            return json.loads(self.request(connection, method, path, body, raw).read() or b"null")


class Sandbox:
    """A running sandbox and the processes that serve it: `bridge` (spaced-host) and `agent` (spaced-guest)."""

    def __init__(self, platform, **parameters):
        self.platform = platform
        manager = platform.pid("sbx-manager")
        before = self.bridges(manager)
        parameters = {"template": "host", "timeout_s": 7200, **parameters}
        self.id = platform.call("POST", "sandboxes", parameters)["id"]
        self.agent = wait_until(lambda: next((p for p in pids() if process_name(p) == "spaced-guest"
                                              and self.id in cpu_groups(p)), None), "an agent")
        self.bridge = wait_until(lambda: self.bridges(manager) - before, "a bridge").pop()
        if os.path.exists(OWN_GROUP):
            prefer_sandboxes_of(self.agent)

    @staticmethod
    def bridges(manager):
        return {p for p in pids() if parent(p) == manager and process_name(p) == "spaced-host"}

    def path(self, rest):
        return "sandboxes/%s/%s" % (self.id, rest)

    def write(self, path, content):
        self.platform.call("PUT", self.path("files?path=" + path + "&user=root"), raw=content)

    def start(self, command, *arguments):
        """Starts a command as root; returns a Process."""
        return Process(self, {"command": command, "arguments": list(arguments), "user": "root"})

    def kill(self):
        self.platform.call("DELETE", "sandboxes/" + self.id)


class Process:
    """The event stream of a command in a sandbox."""

    def __init__(self, sandbox, body):
        self.connection = sandbox.platform.connect()
        self.response = sandbox.platform.request(self.connection, "POST", sandbox.path("processes"), body)

    def next(self):
        """The next event, or None at the end."""
        line = self.response.readline()
        return json.loads(line) if line else None

    def wait_for_output(self, text):
        output = b""
        while text.encode() not in output:
            event = self.next()
            if event is None or "exited" in event or "error" in event:
                raise RuntimeError("ended without printing %r: %s %s" % (text, output, event))
            for channel in ("stdout", "stderr"):
                output += base64.b64decode(event.get(channel, ""))


# ---- servers outside sandboxes ----

class Server:
    """A program in the foreground, ended by SIGTERM to its pid."""

    def __init__(self, arguments):
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def children(self):
        return [p for p in pids() if parent(p) == self.process.pid]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# ---- figures ----

def median(values):
    return statistics.median(values)


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) * percent // 100]


def table(headers, rows):
    """Text columns: the first left-aligned, the others right-aligned."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    lines = []
    for row in [headers, ["-" * w for w in widths], *rows]:
        lines.append("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths))).rstrip())
    return "\n".join(lines) + "\n"


def machine(options):
    """What a figure depends on."""
    model = "unknown"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True,
                            text=True, check=False).stdout.strip()
    return {"cpu": model, "cpus": os.cpu_count(), "kernel": os.uname().release, "commit": commit,
            "load_average": list(os.getloadavg()), "priority": options.priority,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def heading(of):
    return "%s, %d CPUs, Linux %s, commit %s, load average %.1f%s\n" % (
        of["cpu"], of["cpus"], of["kernel"], of["commit"], of["load_average"][0],
        ", with priority" if of["priority"] else "")


def print_result(as_json, document, text):
    sys.stdout.write(json.dumps(document, indent=1) + "\n" if as_json else text)
