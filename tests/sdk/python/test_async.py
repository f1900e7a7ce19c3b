"""The everyday calls of the official Python SDK (async client) against a running platform."""
import asyncio
import os
import re
import unittest

from e2b import (AsyncSandbox, CommandExitException, NotFoundException, SandboxQuery, SandboxState,
                 TimeoutException)

ODD_NAMES = ["with space", "ümlaut-文件", "plus+and&amp", "per%20cent%", "a=b;c", "#hash?"]


async def list_all(**query):
    pages = AsyncSandbox.list(query=SandboxQuery(**query))
    found = []
    while pages.has_next:
        found += await pages.next_items()
    return found


class Case(unittest.IsolatedAsyncioTestCase):
    async def create(self, **options):
        sandbox = await AsyncSandbox.create("base", **options)
        self.addAsyncCleanup(AsyncSandbox.kill, sandbox.sandbox_id)
        return sandbox


class Files(Case):
    async def test_text_bytes_empty_5_MiB_and_odd_names_survive(self):
        sandbox = await self.create()
        files = sandbox.files
        noise = os.urandom(5 << 20)
        for name, data in [("notes.txt", b"hello\n"), ("all-bytes.bin", bytes(range(256))), ("empty", b""),
                           ("noise.bin", noise)] + [(f"odd/{n}", n.encode()) for n in ODD_NAMES]:
            with self.subTest(name=name):
                info = await files.write(name, data)
                self.assertEqual(info.path, f"/home/user/{name}")
                self.assertEqual(bytes(await files.read(name, format="bytes")), data)
        self.assertEqual(sorted(e.name for e in await files.list("odd")), sorted(ODD_NAMES))
        size = 0
        async for chunk in await files.read("noise.bin", format="stream"):
            size += len(chunk)
        self.assertEqual(size, len(noise))

    async def test_folders_are_made_listed_and_removed(self):
        files = (await self.create()).files
        self.assertTrue(await files.make_dir("folder/inner"))
        self.assertFalse(await files.make_dir("folder/inner"))
        self.assertTrue(await files.exists("folder/inner"))
        await files.remove("folder")
        self.assertFalse(await files.exists("folder"))
        with self.assertRaises(NotFoundException):
            await files.read("folder/file")


class Commands(Case):
    async def test_outputs_exit_codes_and_callbacks(self):
        commands = (await self.create(envs={"GREETING": "good day"})).commands
        chunks = []
        result = await commands.run("echo out; echo err >&2; echo $GREETING; whoami", on_stdout=chunks.append)
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (0, "out\ngood day\nuser\n", "err\n"))
        self.assertEqual("".join(chunks), result.stdout)
        with self.assertRaises(CommandExitException) as caught:
            await commands.run("echo seen; exit 7")
        self.assertEqual((caught.exception.exit_code, caught.exception.stdout), (7, "seen\n"))
        with self.assertRaises(TimeoutException):
            await commands.run("sleep 60", timeout=0.5)

    async def test_twenty_commands_run_beside_each_other(self):
        commands = (await self.create()).commands
        results = await asyncio.gather(*(commands.run(f"echo {i}") for i in range(20)))
        self.assertEqual([r.stdout for r in results], [f"{i}\n" for i in range(20)])

    async def test_a_background_command_is_listed_gets_input_and_is_killed(self):
        commands = (await self.create()).commands
        seen = asyncio.Event()
        handle = await commands.run("cat", background=True, stdin=True, on_stdout=lambda _: seen.set())
        self.assertIn(handle.pid, [process.pid for process in await commands.list()])
        await commands.send_stdin(handle.pid, "to stdin\n")
        await asyncio.wait_for(seen.wait(), 60)
        self.assertEqual(handle.stdout, "to stdin\n")
        self.assertTrue(await handle.kill())
        with self.assertRaises(CommandExitException):
            await handle.wait()
        self.assertFalse(await commands.kill(handle.pid))


class Lifecycle(Case):
    async def test_create_list_by_metadata_pause_connect_kill(self):
        metadata = {"build id": "rc/7 beta", "p": "50%", "u": "ñ+&=", "tag": os.urandom(6).hex()}
        sandbox = await self.create(metadata=metadata, timeout=600)
        self.assertTrue(await sandbox.is_running())
        self.assertEqual([s.sandbox_id for s in await list_all(metadata=metadata)], [sandbox.sandbox_id])
        await sandbox.files.write("kept", "still here")
        before = (await sandbox.get_info()).end_at
        await AsyncSandbox.connect(sandbox.sandbox_id, timeout=60)
        self.assertGreaterEqual((await sandbox.get_info()).end_at, before)
        self.assertTrue(await sandbox.pause())
        paused = await list_all(metadata=metadata, state=[SandboxState.PAUSED])
        self.assertEqual([s.sandbox_id for s in paused], [sandbox.sandbox_id])
        again = await AsyncSandbox.connect(sandbox.sandbox_id)
        self.assertEqual(await again.files.read("kept"), "still here")
        self.assertTrue(await again.kill())
        self.assertFalse(await again.kill())
        self.assertFalse(await again.is_running())
        with self.assertRaisesRegex(Exception, re.compile("not running|not found", re.I)):
            await again.commands.run("true")

    async def test_twenty_connects_resume_a_paused_sandbox_once_C009(self):
        sandbox = await self.create()
        await sandbox.pause()
        callers = await asyncio.gather(*(AsyncSandbox.connect(sandbox.sandbox_id) for _ in range(20)))
        boots = await asyncio.gather(*(c.commands.run("cat /proc/1/stat | cut -d' ' -f22") for c in callers))
        self.assertEqual(len({b.stdout for b in boots}), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
