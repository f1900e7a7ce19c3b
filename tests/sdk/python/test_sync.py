"""The everyday calls of the official Python SDK (sync client) against a running platform."""
import os
import re
import unittest

from e2b import (CommandExitException, NotFoundException, Sandbox, SandboxException, SandboxQuery,
                 SandboxState, TimeoutException)

ODD_NAMES = ["with space", "ümlaut-文件", "plus+and&amp", "per%20cent%", "quote's \"double\"", "a=b;c", "#hash?",
             "-dash", ".hidden"]
UNKNOWN = "a" * 20


def list_all(**query):
    pages = Sandbox.list(query=SandboxQuery(**query))
    found = []
    while pages.has_next:
        found += pages.next_items()
    return found


class Case(unittest.TestCase):
    def create(self, **options):
        sandbox = Sandbox.create("base", **options)
        self.addCleanup(Sandbox.kill, sandbox.sandbox_id)
        return sandbox


class Files(Case):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create("base")
        cls.addClassCleanup(cls.sandbox.kill)
        cls.files = cls.sandbox.files

    def test_text_is_written_and_read_back(self):
        info = self.files.write("notes.txt", "hello\nworld\n")
        self.assertEqual((info.path, info.name), ("/home/user/notes.txt", "notes.txt"))
        self.assertEqual(self.files.read("notes.txt"), "hello\nworld\n")

    def test_every_byte_value_survives(self):
        data = bytes(range(256)) * 16
        self.files.write("all-bytes.bin", data)
        self.assertEqual(bytes(self.files.read("all-bytes.bin", format="bytes")), data)

    def test_an_empty_file_is_empty_C058(self):
        self.files.write("empty", "")
        self.assertEqual(self.files.read("empty"), "")

    def test_5_MiB_of_noise_survive(self):
        noise = os.urandom(5 << 20)
        self.files.write("noise.bin", noise)
        self.assertEqual(bytes(self.files.read("noise.bin", format="bytes")), noise)

    def test_a_file_is_read_as_a_stream(self):
        self.files.write("stream.txt", "x" * 200_000)
        self.assertEqual(sum(len(chunk) for chunk in self.files.read("stream.txt", format="stream")), 200_000)

    def test_odd_names_are_kept_as_they_are(self):
        for name in ODD_NAMES:
            with self.subTest(name=name):
                path = f"/home/user/odd/{name}"
                self.files.write(path, name)
                self.assertEqual(self.files.read(path), name)
                self.assertIn((name, path), [(e.name, e.path) for e in self.files.list("/home/user/odd")])

    def test_several_files_are_written_in_one_call(self):
        infos = self.files.write_files([{"path": "many/one.txt", "data": "one"},
                                        {"path": "/home/user/many/two.txt", "data": b"two"}])
        self.assertEqual([i.path for i in infos], ["/home/user/many/one.txt", "/home/user/many/two.txt"])
        self.assertEqual(self.files.read("many/two.txt"), "two")

    def test_a_missing_file_is_a_not_found_error(self):
        with self.assertRaises(NotFoundException):
            self.files.read("nowhere")
        self.assertFalse(self.files.exists("nowhere"))

    def test_folders_are_made_listed_and_removed(self):
        self.assertTrue(self.files.make_dir("folder/inner"))
        self.assertFalse(self.files.make_dir("folder/inner"))
        self.files.write("folder/file", "x")
        self.assertEqual(sorted((e.name, e.type.value) for e in self.files.list("folder")),
                         [("file", "file"), ("inner", "dir")])
        info = self.files.get_info("folder/file")
        self.assertEqual((info.size, info.owner, info.permissions), (1, "user", "-rw-r--r--"))
        self.files.remove("folder")
        self.assertFalse(self.files.exists("folder"))

    def test_a_file_belongs_to_the_user_who_wrote_it(self):
        self.files.write("/root/secret", "x", user="root")
        with self.assertRaises(SandboxException):
            self.files.read("/root/secret")
        self.assertEqual(self.files.read("/root/secret", user="root"), "x")


class Commands(Case):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create("base", envs={"GREETING": "good day"})
        cls.addClassCleanup(cls.sandbox.kill)
        cls.commands = cls.sandbox.commands

    def test_both_outputs_and_the_exit_code_arrive(self):
        result = self.commands.run("echo out; echo err >&2")
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (0, "out\n", "err\n"))

    def test_a_non_zero_exit_code_is_an_error_that_carries_the_output(self):
        with self.assertRaises(CommandExitException) as caught:
            self.commands.run("echo seen; exit 7")
        self.assertEqual((caught.exception.exit_code, caught.exception.stdout), (7, "seen\n"))

    def test_output_arrives_by_callback(self):
        chunks = []
        self.commands.run("for i in 1 2 3; do echo line $i; done", on_stdout=chunks.append)
        self.assertEqual("".join(chunks), "line 1\nline 2\nline 3\n")

    def test_10000_lines_arrive_whole_and_in_order_C043(self):
        self.assertEqual(self.commands.run("seq 1 10000").stdout, "".join(f"{i}\n" for i in range(1, 10_001)))

    def test_it_runs_as_user_in_the_home_folder_with_sudo(self):
        self.assertEqual(self.commands.run("whoami; pwd").stdout, "user\n/home/user\n")
        self.assertEqual(self.commands.run("sudo id -u").stdout, "0\n")
        self.assertEqual(self.commands.run("whoami", user="root").stdout, "root\n")

    def test_environment_and_working_directory_reach_the_command(self):
        self.assertEqual(self.commands.run("echo $GREETING").stdout, "good day\n")
        result = self.commands.run("echo $MODE; pwd", envs={"MODE": "test"}, cwd="/tmp")
        self.assertEqual(result.stdout, "test\n/tmp\n")

    def test_a_background_command_is_listed_gets_input_and_is_killed(self):
        handle = self.commands.run("head -n1; sleep 1000", background=True, stdin=True)
        self.assertIn(handle.pid, [process.pid for process in self.commands.list()])
        self.commands.send_stdin(handle.pid, "to stdin\n")
        for stdout, _, _ in handle:
            if stdout == "to stdin\n":
                break
        self.assertTrue(handle.kill())
        with self.assertRaises(CommandExitException):
            handle.wait()
        self.assertFalse(self.commands.kill(handle.pid))

    def test_closing_stdin_ends_a_reader_with_its_own_exit_code(self):
        handle = self.commands.run("wc -c", background=True, stdin=True)
        self.commands.send_stdin(handle.pid, "12345")
        self.commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout, "5\n")

    def test_a_command_that_takes_too_long_is_killed_and_said_to_be(self):
        with self.assertRaises(TimeoutException):
            self.commands.run("sleep 60", timeout=0.5)


class Lifecycle(Case):
    def test_create_info_list_by_metadata_timeout_kill_C109(self):
        tag = os.urandom(6).hex()
        metadata = {"build id": "rc/7 beta", "p": "50%", "u": "ñ+&=", "e": "", "tag": tag}
        sandbox = self.create(metadata=metadata, timeout=120)
        self.assertTrue(sandbox.is_running())
        info = sandbox.get_info()
        self.assertEqual((info.sandbox_id, info.template_id, info.metadata, info.state),
                         (sandbox.sandbox_id, "base", metadata, SandboxState.RUNNING))
        self.assertEqual([s.sandbox_id for s in list_all(metadata=metadata)], [sandbox.sandbox_id])
        self.assertEqual(list_all(metadata={"tag": "another"}), [])
        self.assertEqual(list_all(metadata={"tag": tag}, state=[SandboxState.PAUSED]), [])
        sandbox.set_timeout(600)
        self.assertGreater((sandbox.get_info().end_at - info.end_at).total_seconds(), 300)
        self.assertTrue(sandbox.kill())
        self.assertFalse(sandbox.kill())
        self.assertFalse(sandbox.is_running())
        with self.assertRaises(NotFoundException):
            Sandbox.connect(sandbox.sandbox_id)

    def test_a_connection_by_id_never_shortens_its_life_C091(self):
        sandbox = self.create(timeout=600)
        sandbox.files.write("mark", sandbox.sandbox_id)
        before = sandbox.get_info().end_at
        other = Sandbox.connect(sandbox.sandbox_id, timeout=60)
        self.assertEqual(other.files.read("mark"), sandbox.sandbox_id)
        self.assertGreaterEqual(other.get_info().end_at, before)

    def test_a_paused_sandbox_is_continued_by_connect_with_its_files_and_processes(self):
        sandbox = self.create()
        sandbox.files.write("kept", "still here")
        handle = sandbox.commands.run("sleep 1000", background=True)
        self.assertTrue(sandbox.pause())
        self.assertFalse(sandbox.pause())
        self.assertIn(sandbox.sandbox_id, [s.sandbox_id for s in list_all(state=[SandboxState.PAUSED])])
        again = Sandbox.connect(sandbox.sandbox_id)
        self.assertTrue(again.is_running())
        self.assertEqual(again.files.read("kept"), "still here")
        self.assertIn(handle.pid, [process.pid for process in again.commands.list()])
        self.assertTrue(again.commands.kill(handle.pid))

    def test_an_unknown_sandbox_is_not_found(self):
        self.assertFalse(Sandbox.kill(UNKNOWN))
        with self.assertRaises(NotFoundException):
            Sandbox.connect(UNKNOWN)

    def test_calls_on_a_killed_sandbox_say_that_it_is_gone_C111(self):
        sandbox = self.create()
        sandbox.kill()
        with self.assertRaisesRegex(Exception, re.compile("not running|not found", re.I)):
            sandbox.commands.run("true")

    def test_what_is_not_built_is_refused_by_name_C108(self):
        with self.assertRaisesRegex(SandboxException, "network"):
            Sandbox.create("base", network={"deny_out": ["0.0.0.0/0"]})


if __name__ == "__main__":
    unittest.main(verbosity=2)
