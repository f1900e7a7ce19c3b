"""A platform of its own for a test: the built programs, a temporary data folder, a free port."""

import contextlib
import glob
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(os.environ.get("SPACE_BUILD", "build/release"))
SPACE = os.path.join(BUILD, "bin/space")
# Templates take a minute and the network to build, so all tests of a build folder share them.
TEMPLATES = os.path.abspath(os.environ.get("SPACE_TEST_TEMPLATES", os.path.join(BUILD, "templates")))
# Names of their own, so that control groups of a platform of this machine are not in the way.
W1, W2 = ("%s-%s" % (name, secrets.token_hex(3)) for name in ("t1", "t2"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Platform:
    """One platform in a temporary folder; `stop` leaves nothing running.

    With `base` it has the template `base`, which `start` builds when no test has done it yet; else the template
    `host` alone, which needs no network.
    """

    def __init__(self, workers=(W1, W2), max_sandboxes=16, base=False):
        self.base = base
        self.data = tempfile.mkdtemp(prefix="space-product-")
        os.chmod(self.data, 0o711)
        self.port = free_port()
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": self.data, "SPACE_DATA": self.data,
            "LANG": "C.UTF-8",
        }
        # Other uids than the defaults, for the same reason.
        with open(os.path.join(self.data, "space.toml"), "w") as f:
            if base:
                f.write('[platform]\ntemplates = "%s"\n' % TEMPLATES)
            f.write('[node_api]\nlisten = "127.0.0.1:%d"\nuid = 64201\nholder = "%s"\n'
                    '[workers]\nbridge_uid = 64300\n' % (self.port, secrets.token_hex(32)))
            for number, worker in enumerate(workers):
                f.write('[[worker]]\nid = "%s"\nfirst_uid = %d\nmax_sandboxes = %d\n'
                        % (worker, 0x60000000 + number * 0x10000000, max_sandboxes))

    def space(self, *arguments, stdin=None, timeout=120):
        return subprocess.run([SPACE, *arguments], env=self.environment, input=stdin,
                              stdin=subprocess.DEVNULL if stdin is None else None,
                              capture_output=True, timeout=timeout, check=False)

    def start(self):
        up = ["up", "--json"] + ([] if self.base else ["--no-template"])
        result = self.space(*up, timeout=1900 if self.base else 120)
        if result.returncode != 0:
            raise AssertionError("up failed (%d)\n%s\n%s\n%s" % (
                result.returncode, result.stdout.decode(), result.stderr.decode(), self.logs()))
        document = json.loads(result.stdout)
        if self.base and "base" not in document["templates"]:
            raise AssertionError("no template base: " + result.stderr.decode())
        return document

    def logs(self):
        text = ""
        for name in sorted(glob.glob(os.path.join(self.data, "log/*.log"))):
            with open(name, errors="replace") as f:
                text += "".join(["--- %s\n" % name] + f.readlines()[-15:])
        return text

    def state(self):
        with open(os.path.join(self.data, "run/supervise.json")) as f:
            return json.load(f)

    def part(self, name):
        return next(p for p in self.state()["parts"] if p["name"] == name)

    def processes(self, needle):
        """Pids whose command line or data-folder environment belongs to this platform."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open("/proc/%s/cmdline" % entry, "rb") as f:
                    command = f.read().replace(b"\0", b" ").decode(errors="replace")
                with open("/proc/%s/environ" % entry, "rb") as f:
                    ours = ("SPACE_DATA=%s\0" % self.data).encode() in f.read() + b"\0"
                if needle in command and (ours or self.data in command):
                    found.append(int(entry))
        return found

    def stop(self):
        result = self.space("down", timeout=180)
        state = os.path.join(self.data, "run/supervise.json")
        if result.returncode != 0 and os.path.exists(state):
            sys.stderr.write("down failed: %s\n%s\n" % (result.stderr.decode(), self.logs()))
            with contextlib.suppress(OSError, ValueError):
                os.kill(self.state()["pid"], signal.SIGKILL)
        for mount in self.mounts():
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        if os.environ.get("SPACE_KEEP"):
            sys.stderr.write("kept: %s\n" % self.data)
        else:
            shutil.rmtree(self.data, ignore_errors=True)
        return result

    def mounts(self):
        with open("/proc/self/mounts") as f:
            return [line.split()[1] for line in f if line.split()[1].startswith(self.data + "/")][::-1]
