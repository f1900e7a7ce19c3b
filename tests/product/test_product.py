"""End-to-end tests: the `space` command line and the real parts, in a data folder of their own.

Run: SPACE_BUILD=build/release python3 tests/product/test_product.py -v [TestClass[.test]]
"""

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from own_platform import SPACE, W1, W2, Platform  # noqa: E402

CAP = 60  # seconds a test waits for anything; bounds are judged by the benchmarks

FAILED, NO_SANDBOX, OUTCOME_UNKNOWN, PLATFORM_DOWN = 240, 241, 242, 3


def wait_until(condition, what):
    deadline = time.monotonic() + CAP
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("%d s passed without: %s" % (CAP, what))
        time.sleep(0.05)


class PlatformTest(unittest.TestCase):
    """One platform for the tests of a class; each test has its own sandbox."""

    template = "host"

    @classmethod
    def setUpClass(cls):
        cls.platform = Platform(base=cls.template == "base")
        cls.addClassCleanup(cls.platform.stop)
        cls.platform.start()

    def run_space(self, *arguments, code=0, stdin=None):
        result = self.platform.space(*arguments, stdin=stdin)
        self.assertEqual(result.returncode, code, "space %s\nstdout: %s\nstderr: %s\n%s" % (
            " ".join(arguments), result.stdout[-2000:].decode(errors="replace"),
            result.stderr[-2000:].decode(errors="replace"),
            self.platform.logs() if code != result.returncode else ""))
        return result

    def out(self, *arguments, **keywords):
        return self.run_space(*arguments, **keywords).stdout.decode()

    def document(self, *arguments, **keywords):
        return json.loads(self.run_space("--json", *arguments, **keywords).stdout)

    def create(self, *arguments):
        sandbox = self.out("create", "--template", self.template, *arguments).strip()
        self.assertRegex(sandbox, "^[a-z2-7]{20}$")
        self.addCleanup(self.platform.space, "kill", sandbox)
        return sandbox

    def execution(self, sandbox):
        route = self.document("route", sandbox)["selected"]
        return (route["generation"], route["worker"])


class CommandLine(PlatformTest):
    def test_C103_exit_codes_of_remote_commands_pass_through(self):
        sandbox = self.create()
        self.run_space("exec", sandbox, "--", "true")
        self.run_space("exec", sandbox, "--", "sh", "-c", "exit 7", code=7)
        self.run_space("exec", sandbox, "--", "sh", "-c", "exit 255", code=255)
        self.run_space("exec", sandbox, "--", "sh", "-c", "kill -KILL $$", code=128 + 9)
        self.run_space("exec", sandbox, "--", "sh", "-c", "kill -TERM $$", code=128 + 15)
        self.run_space("exec", sandbox, "--timeout", "1", "--", "sleep", "600", code=128 + 15)

    def test_env_is_all_a_shell_needs_to_use_the_platform(self):
        sandbox = self.create()
        assignments = self.out("env")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SPACE_")}
        clean["HOME"] = "/nonexistent"
        shell = subprocess.run(["sh", "-c", 'eval "$1"; exec "$2" --json info "$3"', "sh", assignments,
                                SPACE, sandbox],
                               env=clean, capture_output=True, timeout=CAP, check=False)
        self.assertEqual(shell.returncode, 0, shell.stderr)
        self.assertEqual(json.loads(shell.stdout)["id"], sandbox)

    def test_C103_our_own_failures_have_codes_of_their_own(self):
        sandbox = self.create()
        self.run_space("exec", "a" * 20, "--", "true", code=NO_SANDBOX)
        self.run_space("kill", sandbox)
        self.run_space("exec", sandbox, "--", "true", code=NO_SANDBOX)
        self.run_space("exec", sandbox, code=FAILED)
        self.run_space("nonsense", code=2)
        dead = dict(self.platform.environment, SPACE_URL="http://127.0.0.1:9")
        result = subprocess.run([SPACE, "exec", sandbox, "--", "true"], env=dead,
                                capture_output=True, check=False)
        self.assertEqual(result.returncode, FAILED)

    def test_C104_json_is_one_document_on_every_command_and_error(self):
        sandbox = self.create("-m", "who=test")
        for arguments, code in [
            (["status"], 0), (["ls"], 0), (["info", sandbox], 0), (["route", sandbox], 0),
            (["doctor"], 0), (["cat", sandbox, "/etc/passwd"], 0),
            (["info", "a" * 20], NO_SANDBOX), (["cat", sandbox, "/nonexistent"], FAILED),
            (["info", "NOT AN ID/../x"], None), (["ls", "--nonsense"], 2),
            (["create", "--template", "no-such"], FAILED), (["up", "--no-template"], 0),
            (["template", "ls"], 0), (["template", "build", "no-such"], FAILED),
            (["template", "rm", "no-such"], FAILED), (["template", "rm", "host"], FAILED),
            (["template"], 2), (["template", "build"], 2),
        ]:
            with self.subTest(arguments=arguments):
                result = self.platform.space("--json", *arguments)
                document = json.loads(result.stdout)
                if code is None:
                    self.assertIn(result.returncode, (FAILED, NO_SANDBOX))
                else:
                    self.assertEqual(result.returncode, code, result.stdout + result.stderr)
                self.assertEqual("error" in document, result.returncode != 0, document)
                self.assertNotIn(b"\x1b", result.stdout)
        self.assertEqual(self.document("info", sandbox)["metadata"], {"who": "test"})
        lines = self.run_space("--json", "exec", sandbox, "--", "sh", "-c", "echo out; exit 3",
                               code=3).stdout.splitlines()
        events = [json.loads(line) for line in lines]
        self.assertEqual(base64.b64decode("".join(e.get("stdout", "") for e in events)), b"out\n")
        self.assertEqual(events[-1]["exited"]["exit_code"], 3)

    def test_C104_stdout_closed_early_is_no_crash(self):
        sandbox = self.create()
        process = subprocess.Popen([SPACE, "exec", sandbox, "--", "sh", "-c", "yes | head -c 5000000"],
                                   env=self.platform.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdout.read(10)
        process.stdout.close()
        process.stderr.read()
        self.assertEqual(process.wait(CAP), OUTCOME_UNKNOWN)

    def test_exec_keeps_streams_apart_and_takes_stdin(self):
        sandbox = self.create()
        result = self.run_space("exec", sandbox, "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr), (b"out\n", b"err\n"))
        data = os.urandom(700_000)
        result = self.run_space("exec", "-i", sandbox, "--", "cat", stdin=data)
        self.assertEqual(result.stdout, data)
        self.assertEqual(self.out("exec", sandbox, "--", "cat"), "")  # no -i: end of file at once
        self.assertEqual(
            self.out("exec", "-e", "A=b c", "-w", "/tmp", sandbox, "--", "sh", "-c", "echo $A $PWD"),
            "b c /tmp\n")

    def test_C103_ctrl_c_reaches_the_remote_process_first(self):
        sandbox = self.create()
        script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"
        process = subprocess.Popen([SPACE, "exec", sandbox, "--", "sh", "-c", script],
                                   env=self.platform.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=CAP)
        self.assertEqual((rest, process.returncode), (b"caught\n", 9), errors)

    def test_files_go_both_ways_unchanged(self):
        sandbox = self.create()
        data = os.urandom(3_000_000)
        with tempfile.TemporaryDirectory() as folder:
            source, back = os.path.join(folder, "in"), os.path.join(folder, "out")
            with open(source, "wb") as f:
                f.write(data)
            self.run_space("cp", source, sandbox + ":/tmp/a file")
            self.run_space("cp", sandbox + ":/tmp/a file", back)
            with open(back, "rb") as f:
                self.assertEqual(f.read(), data)
            self.assertEqual(self.run_space("cat", sandbox, "/tmp/a file").stdout, data)
            self.run_space("cp", sandbox + ":/no/such", os.path.join(folder, "none"), code=FAILED)
            self.assertFalse(os.path.exists(os.path.join(folder, "none")))
        self.run_space("cp", "-", sandbox + ":/tmp/piped", stdin=b"from a pipe")
        self.assertEqual(self.out("cat", sandbox, "/tmp/piped"), "from a pipe")

    def test_folders_go_both_ways_with_modes_and_no_way_out(self):
        sandbox = self.create()
        with tempfile.TemporaryDirectory() as folder:
            project = os.path.join(folder, "project")
            os.makedirs(os.path.join(project, "deep/er"))
            os.mkdir(os.path.join(project, "empty"))
            for name, content in [("deep/er/data", os.urandom(300_000)), ("a b ü", b"odd"), ("none", b"")]:
                with open(os.path.join(project, name), "wb") as f:
                    f.write(content)
            with open(os.path.join(project, "run.sh"), "w") as f:
                f.write("#!/bin/sh\necho ran\n")
            os.chmod(os.path.join(project, "run.sh"), 0o755)
            self.run_space("cp", project, sandbox + ":/tmp/there")
            self.assertEqual(self.out("exec", sandbox, "--", "/tmp/there/run.sh"), "ran\n")
            self.run_space("cp", project, sandbox + ":/tmp/there")  # a folder that is there: inside it
            self.assertEqual(self.out("exec", sandbox, "--", "/tmp/there/project/run.sh"), "ran\n")
            self.run_space("exec", sandbox, "--", "rm", "-r", "/tmp/there/project")
            self.run_space("cp", sandbox + ":/tmp/there", os.path.join(folder, "back"))
            compared = subprocess.run(["diff", "-r", project, os.path.join(folder, "back")], check=False)
            self.assertEqual(compared.returncode, 0)
            self.assertEqual(os.stat(os.path.join(folder, "back/run.sh")).st_mode & 0o777, 0o755)

            os.symlink("/etc/passwd", os.path.join(project, "link"))
            result = self.run_space("cp", project, sandbox + ":/tmp/linked", code=FAILED)
            self.assertIn(b"link", result.stderr)
            # A link in the sandbox arrives as a link, and nothing is written through one that is here.
            self.run_space("exec", sandbox, "--", "sh", "-c",
                           "mkdir -p /tmp/trap/sub; ln -s /etc/passwd /tmp/trap/l; echo x > /tmp/trap/sub/f")
            trap = os.path.join(folder, "trap")
            os.mkdir(trap)
            os.mkdir(os.path.join(trap, "trap"))
            os.symlink(folder, os.path.join(trap, "trap/sub"))
            self.run_space("cp", sandbox + ":/tmp/trap", trap, code=FAILED)
            self.assertFalse(os.path.exists(os.path.join(folder, "f")))
            self.run_space("cp", sandbox + ":/tmp/trap", os.path.join(folder, "fine"))
            self.assertEqual(os.readlink(os.path.join(folder, "fine/l")), "/etc/passwd")

    def test_capability_shows_the_claims_and_nothing_that_could_be_presented(self):
        sandbox = self.create()
        claims = self.document("capability", sandbox, "--operation", "process.start")
        self.assertEqual(claims["access"], ["process.write"])
        self.assertEqual((claims["execution"]["sandbox"], claims["execution"]["generation"]), (sandbox, 1))
        text = self.out("capability", sandbox)
        self.assertIn("files.read", text)
        longest = max(re.findall("[0-9a-f]+", text), key=len)
        self.assertLessEqual(len(longest), 64)  # the holder's hash; a signature has 128
        self.run_space("capability", sandbox, "--operation", "sandbox.kill", code=FAILED)
        self.run_space("capability", "a" * 20, code=NO_SANDBOX)

    def test_logs_and_top_tell_what_happened(self):
        sandbox = self.create()
        self.run_space("exec", sandbox, "--", "true")
        lines = self.out("logs", "--sandbox", sandbox).splitlines()
        self.assertTrue(any("node.started" in line for line in lines), lines)
        self.assertEqual(lines, sorted(lines, key=lambda line: line.split()[0]))
        for line in self.run_space("--json", "logs", "-n", "3").stdout.splitlines():
            self.assertIn("event", json.loads(line))
        sample = self.document("top", "--samples", "1")
        self.assertIn(sandbox, [s["id"] for s in sample["sandboxes"]])
        self.assertGreater(sample["status"]["node_api"]["admitted"], 0)
        self.assertIn(sandbox, self.out("top"))

    def test_pause_and_resume_on_the_same_worker_keeps_processes(self):
        sandbox = self.create("--worker", W1)
        self.run_space("exec", sandbox, "--", "sh", "-c",
                       "echo kept > /tmp/f; (while :; do sleep 0.1; done) >/dev/null 2>&1 & echo $! > /tmp/pid")
        before = self.execution(sandbox)
        self.run_space("pause", sandbox)
        self.assertEqual(self.document("info", sandbox)["state"], "paused")
        self.run_space("exec", sandbox, "--", "true", code=FAILED)
        self.run_space("resume", sandbox)
        self.assertEqual(self.execution(sandbox), (before[0] + 1, W1))
        self.assertEqual(self.out("cat", sandbox, "/tmp/f"), "kept\n")
        self.run_space("exec", sandbox, "--", "sh", "-c", "kill -0 $(cat /tmp/pid)")

    def test_resume_elsewhere_and_move_keep_files(self):
        sandbox = self.create("--worker", W1)
        self.run_space("exec", sandbox, "--", "sh", "-c", "echo kept > /tmp/f")
        generation, worker = self.execution(sandbox)
        self.assertEqual(worker, W1)
        self.run_space("pause", sandbox)
        self.run_space("resume", sandbox, "--worker", W2)
        self.assertEqual(self.execution(sandbox), (generation + 1, W2))
        self.assertEqual(self.out("cat", sandbox, "/tmp/f"), "kept\n")
        self.run_space("move", sandbox)
        self.assertEqual(self.execution(sandbox), (generation + 2, W1))
        self.assertEqual(self.out("cat", sandbox, "/tmp/f"), "kept\n")
        installed = {r["worker"]: r["installed"] for r in self.document("route", sandbox)["receivers"]}
        self.assertEqual(installed[W1]["generation"], generation + 2)
        self.assertIsNone(installed[W2])

    def test_a_paused_sandbox_can_be_killed_and_a_killed_one_is_gone(self):
        sandbox = self.create()
        self.run_space("pause", sandbox)
        self.run_space("kill", sandbox)
        self.run_space("exec", sandbox, "--", "true", code=NO_SANDBOX)

    def test_a_sandbox_is_killed_when_its_time_is_up(self):
        sandbox = self.create("--timeout", "2")
        wait_until(lambda: self.platform.space("exec", sandbox, "--", "true").returncode == NO_SANDBOX,
                   "the sandbox is gone")

    def test_up_again_says_already_up(self):
        self.assertTrue(self.document("up")["already"])


class BadInput(PlatformTest):
    def request(self, method, target, body=None, headers=None):
        with open(os.path.join(self.platform.data, "cli.toml")) as f:
            key = next(line.split('"')[1] for line in f if line.startswith("api_key"))
        headers = {"X-API-KEY": key, **(headers or {})}
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.platform.port, target),
                                         data=body, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=CAP) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def test_bad_requests_get_a_clear_error(self):
        for method, target, body, status in [
            ("POST", "/space/v1/sandboxes", b"{", 400),
            ("POST", "/space/v1/sandboxes", b'{"template":"host","template":"host"}', 400),
            ("POST", "/space/v1/sandboxes", b'{"template":"host","timeout_s":-1}', 400),
            ("POST", "/space/v1/sandboxes", b'{"template":"host","x":1}', 400),
            ("POST", "/space/v1/sandboxes", b"\xff\xfe", 400),
            ("GET", "/space/v1/nothing", None, 404),
            ("GET", "/space/v1/sandboxes/" + "a" * 20, None, 404),
        ]:
            with self.subTest(target=target, body=body):
                code, answer = self.request(method, target, body)
                self.assertEqual(code, status, answer)
                self.assertTrue(json.loads(answer)["message"])
        code, answer = self.request("GET", "/space/v1/sandboxes", headers={"X-API-KEY": "e2b_00"})
        self.assertEqual(code, 401, answer)
        self.assertEqual(self.request("GET", "/space/v1/health")[0], 200)

    def test_bytes_that_are_no_http_do_not_hang_or_crash_it(self):
        pid = self.platform.part("space-node-api")["pid"]
        for junk in [b"\0" * 100, b"GET / HTTP/9.9\r\n\r\n", os.urandom(5000),
                     b"POST /space/v1/sandboxes HTTP/1.1\r\nContent-Length: 5\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n"]:
            with socket.create_connection(("127.0.0.1", self.platform.port), timeout=CAP) as s:
                s.sendall(junk)
                s.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    while s.recv(65536):
                        pass
        self.assertEqual(self.request("GET", "/space/v1/health")[0], 200)
        self.assertEqual(self.platform.part("space-node-api")["pid"], pid)

    def test_a_bad_configuration_is_refused_with_its_line(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "space.toml"), "w") as f:
                f.write("[node_api]\nlissten = 5\n")
            result = subprocess.run([SPACE, "--json", "up"], capture_output=True, check=False,
                                    env=dict(self.platform.environment, SPACE_DATA=folder))
            self.assertEqual(result.returncode, FAILED)
            self.assertIn("space.toml:2:1", json.loads(result.stdout)["error"]["message"])


class TemplateBase(PlatformTest):
    """The template `base`, built from Debian's archives by the first test that needs it."""

    template = "base"

    def test_its_user_has_sudo_and_the_programs_that_agents_expect(self):
        sandbox = self.create()

        def run(command, *options, code=0):
            return self.out("exec", *options, sandbox, "--", "/bin/bash", "-l", "-c", command, code=code)

        self.assertEqual(run("whoami; id -gn; pwd; echo $HOME"), "user\nuser\n/home/user\n/home/user\n")
        self.assertEqual(run("id -u; getent passwd user | cut -d: -f7"), "1000\n/bin/bash\n")
        self.assertEqual(run("sudo id -u"), "0\n")
        self.assertEqual(run("sudo -u user sudo -n whoami"), "root\n")
        self.assertEqual(run("python3 -c 'print(6 * 7)'"), "42\n")
        self.assertEqual(run("git init -q r && cd r && git -c user.name=a -c user.email=b commit -q "
                             "--allow-empty -m made && git log --format=%s"), "made\n")
        self.assertEqual(run("cd /tmp && echo served > f && (python3 -m http.server 8000 >/dev/null 2>&1 & "
                             "curl -s --retry-connrefused --retry 50 --retry-delay 1 localhost:8000/f; kill $!)"),
                         "served\n")
        self.assertEqual(run("touch x && stat -c %U:%G:%a x"), "user:user:644\n")
        self.assertEqual(run("stat -c %U:%G / /etc/passwd /home/user /usr/bin/sudo"),
                         "root:root\nroot:root\nuser:user\nroot:root\n")
        self.assertEqual(run("whoami; mkdir -p /0/a && ls /0", "-u", "root"), "root\na\n")
        # Its /usr is its own: what it installs there stays there.
        run("sudo touch /usr/local/bin/mine")
        self.run_space("exec", self.create(), "--", "test", "-e", "/usr/local/bin/mine", code=1)

    def test_what_was_changed_survives_a_move_over_the_same_template(self):
        sandbox = self.create("--worker", W1)
        self.run_space("exec", sandbox, "--", "sudo", "sh", "-c",
                       "echo changed > /etc/motd; rm /usr/bin/git; echo kept > /home/user/f")
        self.run_space("move", sandbox, "--worker", W2)
        self.assertEqual(self.out("exec", sandbox, "--", "sh", "-c", "cat /etc/motd f; ls /usr/bin/git || true"),
                         "changed\nkept\n")
        self.assertEqual(self.out("exec", sandbox, "--", "sudo", "id", "-u"), "0\n")

    def test_the_list_names_its_users_and_a_shared_folder_is_not_removed_from(self):
        sandbox = self.create()
        paused = self.create()
        self.run_space("pause", paused)
        newest = [t for t in self.document("template", "ls")["templates"] if t["name"] == "base" and t["newest"]]
        self.assertEqual(len(newest), 1)
        self.assertRegex(newest[0]["hash"], "^[0-9a-f]{64}$")
        self.assertLess(newest[0]["size_bytes"], 400 << 20)
        self.assertLessEqual({"sandbox " + sandbox, "sandbox " + paused}, set(newest[0]["used_by"]))
        error = self.document("template", "rm", "base", code=FAILED)["error"]
        self.assertEqual(error["code"], "templates_shared")
        self.assertFalse(self.document("template", "build", "base")["built"])


class Templates(PlatformTest):
    """Their folder, without the time a build takes."""

    def test_one_that_is_not_built_is_named_with_what_to_do(self):
        credentials = self.document("env")
        request = urllib.request.Request(
            credentials["SPACE_URL"] + "/space/v1/sandboxes", b'{"template":"base"}',
            {"X-API-KEY": credentials["SPACE_API_KEY"], "Content-Type": "application/json"})
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=CAP)
        with caught.exception as answer:
            self.assertEqual(answer.code, 404)
            self.assertIn("space template build base", json.load(answer)["message"])
        # The command line builds for the platform of its own data folder only.
        elsewhere = dict(self.platform.environment, SPACE_API_KEY=credentials["SPACE_API_KEY"],
                         SPACE_URL=credentials["SPACE_URL"].replace("127.0.0.1", "localhost"))
        result = subprocess.run([SPACE, "create"], env=elsewhere, capture_output=True, timeout=CAP, check=False)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertIn(b"space template build base", result.stderr)
        for name in ("../../etc", "base@" + "0" * 64, "Base", "a" * 41):
            self.run_space("create", "--template", name, code=FAILED)

    def add_by_hand(self, ref, content):
        """A template of nothing but a file: the agent in it needs no other program."""
        name, digest = ref.split("@")
        folder = os.path.join(self.platform.data, "templates", ref)
        for part in ("etc", "dev", "proc", "sys", "tmp", "run", "home/user", ".space"):
            os.makedirs(os.path.join(folder, "root", part))
        os.chmod(folder, 0o700)
        for path, text in (("etc/passwd", "user:x:1000:1000::/home/user:/bin/sh\n"), ("etc/group", "user:x:1000:\n"),
                           ("content", content), (".space/spaced-guest", "")):
            with open(os.path.join(folder, "root", path), "w") as f:
                f.write(text)
        os.chown(os.path.join(folder, "root/home/user"), 1000, 1000)
        with open(os.path.join(folder, "manifest.json"), "w") as f:
            json.dump({"format": 1, "name": name, "hash": digest, "suite": "none", "arch": "none", "packages": [],
                       "built_at": "2026-01-01T00:00:00Z", "size_bytes": 1}, f)
        return folder

    def test_a_sandbox_stays_on_the_build_it_was_made_of_and_that_one_stays(self):
        old, new = "tiny@" + "1" * 64, "tiny@" + "2" * 64
        self.add_by_hand(old, "old")
        sandbox = self.out("create", "--template", "tiny", "--worker", W1).strip()
        self.addCleanup(self.platform.space, "kill", sandbox)
        self.run_space("cp", "-", sandbox + ":kept", stdin=b"kept")
        folder = self.add_by_hand(new, "new")
        later = time.time() + 60
        os.utime(os.path.join(folder, "manifest.json"), (later, later))
        other = self.out("create", "--template", "tiny").strip()
        self.addCleanup(self.platform.space, "kill", other)
        self.assertEqual(self.out("cat", other, "/content"), "new")
        self.run_space("move", sandbox, "--worker", W2)
        self.assertEqual(self.out("cat", sandbox, "/content"), "old")
        self.assertEqual(self.out("cat", sandbox, "kept"), "kept")
        self.assertEqual(self.out("cat", sandbox, "/etc/hostname"), sandbox + "\n")

        self.run_space("pause", sandbox)
        for name, user in (("tiny@1", sandbox), (old, sandbox), ("tiny@2", other)):
            error = self.document("template", "rm", name, code=FAILED)["error"]
            self.assertEqual(error["code"], "template_in_use")
            self.assertIn(user, error["message"])
        self.run_space("kill", other)
        self.assertEqual(self.document("template", "rm", "tiny@2")["removed"], [new])
        self.run_space("resume", sandbox)
        self.assertEqual(self.out("cat", sandbox, "/content"), "old")
        self.run_space("kill", sandbox)
        self.assertEqual(self.document("template", "rm", "tiny")["removed"], [old])
        self.run_space("create", "--template", "tiny", code=FAILED)
        self.assertEqual([t["name"] for t in self.document("template", "ls")["templates"]], ["host"])

    def test_a_killed_build_leaves_no_process_and_no_template(self):
        with tempfile.TemporaryDirectory() as data:
            environment = dict(self.platform.environment, SPACE_DATA=data)
            with subprocess.Popen([SPACE, "template", "build", "base"], env=environment,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as build:
                line = build.stderr.readline()
                while line and b"package lists" not in line:
                    line = build.stderr.readline()
                self.assertTrue(line, "it ended before it began")
                build.kill()
            wait_until(lambda: not self.processes_naming(data), "everything it started ended")
            self.assertEqual([e for e in os.listdir(os.path.join(data, "templates")) if "@" in e], [])
            with open("/proc/self/mounts") as mounts:
                self.assertNotIn(data, mounts.read())

    @staticmethod
    def processes_naming(folder):
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open("/proc/%s/cmdline" % entry, "rb") as f:
                if folder.encode() in f.read():
                    found.append(entry)
        return found


class Crashes(PlatformTest):
    """C008, C033: a part that dies loses no sandbox and no file, and requests work again."""

    def kill_part(self, name):
        part = self.platform.part(name)
        os.kill(part["pid"], signal.SIGKILL)
        wait_until(lambda: self.platform.part(name)["starts"] > part["starts"] and
                   self.platform.part(name)["pid"] not in (0, part["pid"]), name + " is started again")

    def check_alive(self, sandbox, execution):
        """The same execution serves again, with its file and its process."""
        last = wait_until(
            lambda: self.platform.space("exec", sandbox, "--", "sh", "-c",
                                        "cat /tmp/f && kill -0 $(cat /tmp/pid)").stdout == b"kept\n",
            "the sandbox serves again\n" + self.platform.logs())
        self.assertTrue(last)
        self.assertEqual(self.execution(sandbox), execution)
        self.assertIn(sandbox, [s["id"] for s in self.document("ls")["sandboxes"]
                                if s["state"] == "running"])

    def prepared(self):
        sandbox = self.create("--worker", W1)
        self.run_space("exec", sandbox, "--", "sh", "-c",
                       "echo kept > /tmp/f; (while :; do sleep 0.1; done) >/dev/null 2>&1 & echo $! > /tmp/pid")
        return sandbox, self.execution(sandbox)

    def test_C008_killing_a_part_loses_no_sandbox_and_no_file(self):
        for name in ("space-control", "space-node-api", "sbx-manager-" + W1):
            with self.subTest(part=name):
                sandbox, execution = self.prepared()
                self.kill_part(name)
                self.check_alive(sandbox, execution)

    def test_killing_the_bridge_loses_no_sandbox_and_no_file(self):
        sandbox, execution = self.prepared()
        bridges = wait_until(lambda: self.bridges(), "a spaced-host runs")
        for pid in bridges:
            os.kill(pid, signal.SIGKILL)
        self.check_alive(sandbox, execution)

    def bridges(self):
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open("/proc/%s/comm" % entry) as f:
                    name = f.read().strip()
                if name == "spaced-host" and os.stat("/proc/%s" % entry).st_uid in (64300, 64301, 0):
                    with open("/proc/%s/status" % entry) as f:
                        uids = next(line for line in f if line.startswith("Uid:")).split()[1:]
                    if uids[0] in ("64300", "64301"):
                        found.append(int(entry))
        return found

    def test_killing_the_supervisor_and_up_again_loses_nothing(self):
        sandbox, execution = self.prepared()
        os.kill(self.platform.state()["pid"], signal.SIGKILL)
        wait_until(lambda: self.platform.space("status").returncode == PLATFORM_DOWN, "it is down")
        self.assertFalse(self.platform.start()["already"])
        self.check_alive(sandbox, execution)

    def test_down_keep_leaves_the_sandbox_for_the_next_up(self):
        sandbox, execution = self.prepared()
        self.run_space("down", "--keep")
        self.run_space("status", code=PLATFORM_DOWN)
        self.platform.start()
        self.check_alive(sandbox, execution)


class UpAndDown(unittest.TestCase):
    def test_down_leaves_nothing_running_and_nothing_mounted(self):
        platform = Platform()
        try:
            platform.start()
            sandbox = platform.space("create", "--template", "host").stdout.decode().strip()
            self.assertEqual(platform.space("exec", sandbox, "--", "true").returncode, 0)
            result = platform.space("down", timeout=180)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(platform.processes(""), [])
            self.assertEqual(platform.mounts(), [])
            self.assertEqual(platform.space("down").returncode, 0)
            self.assertEqual(platform.space("status").returncode, PLATFORM_DOWN)
        finally:
            platform.stop()

    def test_a_taken_port_is_named_with_the_setting(self):
        platform = Platform()
        try:
            with socket.socket() as s:
                s.bind(("127.0.0.1", platform.port))
                s.listen()
                result = platform.space("--json", "up")
            self.assertEqual(result.returncode, FAILED)
            message = json.loads(result.stdout)["error"]["message"]
            self.assertIn("port", message)
            self.assertIn("[node_api] listen", message)
        finally:
            platform.stop()


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: needs root")
        sys.exit(77)
    if not os.path.exists(SPACE):
        sys.exit("%s is missing; build first" % SPACE)
    unittest.main(argv=sys.argv)
