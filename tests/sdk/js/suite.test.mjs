// The everyday calls of the official JavaScript SDK against a running platform, with nothing set but
// what `space env` prints. E2B_PACKAGE names which version is loaded.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, before, describe, test } from 'node:test'

const { Sandbox, CommandExitError, NotFoundError, SandboxError, TimeoutError } = await import(
  process.env.E2B_PACKAGE
)

// Everything that was made is removed at the end, whatever happened.
const made = []
async function create(options = {}) {
  const sandbox = await Sandbox.create('base', options)
  made.push(sandbox.sandboxId)
  return sandbox
}
after(async () => {
  for (const id of made) await Sandbox.kill(id)
})

async function listAll(options) {
  const pages = Sandbox.list(options)
  const found = []
  while (pages.hasNext) found.push(...(await pages.nextItems()))
  return found
}

describe('files', () => {
  let sandbox
  before(async () => {
    sandbox = await create()
  })

  test('text is written and read back', async () => {
    const info = await sandbox.files.write('notes.txt', 'hello\nworld\n')
    assert.equal(info.path, '/home/user/notes.txt')
    assert.equal(info.name, 'notes.txt')
    assert.equal(info.type, 'file')
    assert.equal(await sandbox.files.read('notes.txt'), 'hello\nworld\n')
    assert.equal(await sandbox.files.read('/home/user/notes.txt'), 'hello\nworld\n')
  })
  test('every byte value survives', async () => {
    const bytes = Uint8Array.from({ length: 4096 }, (_, i) => i % 256)
    await sandbox.files.write('all-bytes.bin', bytes.buffer)
    assert.deepEqual(await sandbox.files.read('all-bytes.bin', { format: 'bytes' }), bytes)
  })
  test('an empty file is empty (C058)', async () => {
    await sandbox.files.write('empty', '')
    assert.equal(await sandbox.files.read('empty'), '')
    assert.equal((await sandbox.files.read('empty', { format: 'bytes' })).length, 0)
  })
  test('5 MiB of noise survive', async () => {
    const noise = new Uint8Array(randomBytes(5 << 20))
    await sandbox.files.write('noise.bin', noise.buffer)
    assert.deepEqual(await sandbox.files.read('noise.bin', { format: 'bytes' }), noise)
  })
  test('a file is read as a stream', async () => {
    await sandbox.files.write('stream.txt', 'x'.repeat(200_000))
    let size = 0
    for await (const chunk of await sandbox.files.read('stream.txt', { format: 'stream' })) {
      size += chunk.length
    }
    assert.equal(size, 200_000)
  })
  const oddNames = ['with space', 'ümlaut-文件', 'plus+and&amp', 'per%20cent%', 'quote\'s "double"', 'a=b;c', '#hash?', '-dash', '.hidden']
  for (const name of oddNames) {
    test(`the odd name ${name} is kept as it is`, async () => {
      const path = `/home/user/odd/${name}`
      await sandbox.files.write(path, name)
      assert.equal(await sandbox.files.read(path), name)
      const entries = await sandbox.files.list('/home/user/odd')
      assert.ok(entries.some((entry) => entry.name === name && entry.path === path))
    })
  }
  test('several files are written in one call', async () => {
    const infos = await sandbox.files.write([
      { path: 'many/one.txt', data: 'one' },
      { path: '/home/user/many/two.txt', data: 'two' },
    ])
    assert.deepEqual(infos.map((info) => info.path), ['/home/user/many/one.txt', '/home/user/many/two.txt'])
    assert.equal(await sandbox.files.read('many/two.txt'), 'two')
  })
  test('a missing file is a not-found error', async () => {
    await assert.rejects(sandbox.files.read('nowhere'), NotFoundError)
    assert.equal(await sandbox.files.exists('nowhere'), false)
  })
  test('folders are made, listed and removed', async () => {
    assert.equal(await sandbox.files.makeDir('folder/inner'), true)
    assert.equal(await sandbox.files.makeDir('folder/inner'), false)
    await sandbox.files.write('folder/file', 'x')
    const entries = await sandbox.files.list('folder')
    assert.deepEqual(entries.map((entry) => [entry.name, entry.type]).sort(), [['file', 'file'], ['inner', 'dir']])
    assert.equal(await sandbox.files.exists('folder/file'), true)
    const info = await sandbox.files.getInfo('folder/file')
    assert.equal(info.size, 1)
    assert.equal(info.owner, 'user')
    assert.equal(info.permissions, '-rw-r--r--')
    await sandbox.files.remove('folder')
    assert.equal(await sandbox.files.exists('folder'), false)
  })
  test('a file belongs to the user who wrote it', async () => {
    await sandbox.files.write('/root/secret', 'x', { user: 'root' })
    await assert.rejects(sandbox.files.read('/root/secret'), SandboxError)
    assert.equal(await sandbox.files.read('/root/secret', { user: 'root' }), 'x')
  })
})

describe('commands', () => {
  let sandbox
  before(async () => {
    sandbox = await create({ envs: { GREETING: 'good day' } })
  })

  test('both outputs and the exit code arrive', async () => {
    const result = await sandbox.commands.run('echo out; echo err >&2')
    assert.deepEqual([result.exitCode, result.stdout, result.stderr], [0, 'out\n', 'err\n'])
  })
  test('a non-zero exit code is an error that carries the output', async () => {
    const failure = await sandbox.commands.run('echo seen; exit 7').catch((error) => error)
    assert.ok(failure instanceof CommandExitError)
    assert.deepEqual([failure.exitCode, failure.stdout], [7, 'seen\n'])
  })
  test('output arrives by callback while the command runs', async () => {
    const chunks = []
    await sandbox.commands.run('for i in 1 2 3; do echo line $i; done', { onStdout: (data) => { chunks.push(data) } })
    assert.equal(chunks.join(''), 'line 1\nline 2\nline 3\n')
  })
  test('10,000 lines arrive whole and in order (C043)', async () => {
    const result = await sandbox.commands.run('seq 1 10000')
    assert.equal(result.stdout, Array.from({ length: 10_000 }, (_, i) => `${i + 1}\n`).join(''))
  })
  test('it runs as user, in the home folder, with sudo', async () => {
    assert.equal((await sandbox.commands.run('whoami; pwd')).stdout, 'user\n/home/user\n')
    assert.equal((await sandbox.commands.run('sudo id -u')).stdout, '0\n')
    assert.equal((await sandbox.commands.run('whoami', { user: 'root' })).stdout, 'root\n')
  })
  test('environment and working directory reach the command', async () => {
    assert.equal((await sandbox.commands.run('echo $GREETING')).stdout, 'good day\n')
    const result = await sandbox.commands.run('echo $MODE; pwd', { envs: { MODE: 'test' }, cwd: '/tmp' })
    assert.equal(result.stdout, 'test\n/tmp\n')
  })
  test('the tools of the template run', async () => {
    const result = await sandbox.commands.run('python3 -c "print(6*7)"; git --version; curl --version | head -c 4; bash --version | head -c 8')
    assert.match(result.stdout, /^42\ngit version .*\ncurlGNU bash/)
  })
  test('a background command is listed, gets input and is killed', async () => {
    const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
    assert.ok((await sandbox.commands.list()).some((process) => process.pid === handle.pid))
    await sandbox.commands.sendStdin(handle.pid, 'to stdin\n')
    while (handle.stdout !== 'to stdin\n') await new Promise((resolve) => setTimeout(resolve, 10))
    assert.equal(await handle.kill(), true)
    const failure = await handle.wait().catch((error) => error)
    assert.ok(failure instanceof CommandExitError)
    assert.equal(await sandbox.commands.kill(handle.pid), false)
  })
  test('closing stdin ends a reader with its own exit code', async () => {
    const handle = await sandbox.commands.run('wc -c', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, '12345')
    await sandbox.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, '5\n')
  })
  test('a command that takes too long is killed and said to be', async () => {
    await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 500 }), TimeoutError)
  })
  test('commands run beside each other', async () => {
    const results = await Promise.all(Array.from({ length: 20 }, (_, i) => sandbox.commands.run(`echo ${i}`)))
    assert.deepEqual(results.map((result) => result.stdout), Array.from({ length: 20 }, (_, i) => `${i}\n`))
  })
})

describe('lifecycle', () => {
  test('create, info, list by metadata, timeout, kill', async () => {
    const tag = randomBytes(6).toString('hex')
    const metadata = { 'build id': 'rc/7 beta', p: '50%', u: 'ñ+&=', e: '', tag }  // C109
    const sandbox = await create({ metadata, timeoutMs: 120_000 })
    assert.equal(await sandbox.isRunning(), true)

    const info = await sandbox.getInfo()
    assert.equal(info.sandboxId, sandbox.sandboxId)
    assert.equal(info.templateId, 'base')
    assert.deepEqual(info.metadata, metadata)
    assert.equal(info.state, 'running')

    const found = await listAll({ query: { metadata } })
    assert.deepEqual(found.map((each) => each.sandboxId), [sandbox.sandboxId])
    assert.deepEqual(await listAll({ query: { metadata: { tag: 'another' } } }), [])
    assert.deepEqual(await listAll({ query: { metadata: { tag }, state: ['paused'] } }), [])

    await sandbox.setTimeout(600_000)
    assert.ok((await sandbox.getInfo()).endAt.getTime() > info.endAt.getTime() + 300_000)

    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.kill(), false)
    assert.equal(await sandbox.isRunning(), false)
    await assert.rejects(Sandbox.connect(sandbox.sandboxId), NotFoundError)
  })
  test('a connection by id finds the same sandbox and never shortens its life (C091)', async () => {
    const sandbox = await create({ timeoutMs: 600_000 })
    await sandbox.files.write('mark', sandbox.sandboxId)
    const before = (await sandbox.getInfo()).endAt.getTime()
    const other = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
    assert.equal(await other.files.read('mark'), sandbox.sandboxId)
    assert.ok((await other.getInfo()).endAt.getTime() >= before)
  })
  test('a paused sandbox is continued by connect with its files and processes', async () => {
    const sandbox = await create()
    await sandbox.files.write('kept', 'still here')
    const handle = await sandbox.commands.run('sleep 1000', { background: true })
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.pause(), false)
    assert.deepEqual(
      (await listAll({ query: { state: ['paused'] } })).filter((each) => each.sandboxId === sandbox.sandboxId).length, 1)
    const again = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(again.sandboxId, sandbox.sandboxId)
    assert.equal(await again.isRunning(), true)
    assert.equal(await again.files.read('kept'), 'still here')
    assert.ok((await again.commands.list()).some((process) => process.pid === handle.pid))
    assert.equal(await again.commands.kill(handle.pid), true)
    await handle.wait().catch(() => {})
  })
  test('a paused sandbox can be killed', async () => {
    const sandbox = await create()
    await sandbox.pause()
    assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  })
  test('an unknown sandbox is not found', async () => {
    assert.equal(await Sandbox.kill('aaaaaaaaaaaaaaaaaaaa'), false)
    await assert.rejects(Sandbox.connect('aaaaaaaaaaaaaaaaaaaa'), NotFoundError)
  })
  test('calls on a killed sandbox say that it is gone (C111)', async () => {
    const sandbox = await create()
    await sandbox.kill()
    await assert.rejects(sandbox.commands.run('true'), /not running|not found/i)
    await assert.rejects(sandbox.files.read('notes.txt'), /not found|timeout/i)
  })
  test('what is not built is refused by name (C108)', async () => {
    await assert.rejects(Sandbox.create('base', { network: { denyOut: ['0.0.0.0/0'] } }), /network/)
    await assert.rejects(Sandbox.create('no-such-template'), /no-such-template|template/)
  })
})
