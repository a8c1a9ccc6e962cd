// The official JavaScript SDK, unmodified, against a running service (E2B_* in the environment).
import assert from 'node:assert/strict'
import { test, after, before } from 'node:test'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(process.env.E2B_NODE_MODULES + '/')
const e2b = await import(pathToFileURL(require.resolve('e2b')))
const { Sandbox, CommandExitError, NotFoundError, AuthenticationError, TimeoutError } = e2b

let sandbox
before(async () => { sandbox = await Sandbox.create({ timeoutMs: 300_000 }) })
after(async () => { await sandbox?.kill() })

test('quick start', async () => {
  const box = await Sandbox.create()
  assert.equal((await box.commands.run('echo hello')).stdout, 'hello\n')
  await box.files.write('/tmp/data.txt', 'content')
  assert.equal(await box.files.read('/tmp/data.txt'), 'content')
  assert.equal(await box.isRunning(), true)
  assert.equal(await box.kill(), true)
  assert.equal(await box.isRunning(), false)
  assert.equal(await box.kill(), false)
})

test('info, list, connect', async () => {
  const box = await Sandbox.create({ metadata: { who: 'js & co', ü: 'x=y' }, envs: { FOO: 'bar' } })
  const info = await box.getInfo()
  assert.deepEqual(info.metadata, { who: 'js & co', ü: 'x=y' })
  const pages = Sandbox.list({ query: { metadata: { who: 'js & co' } } })
  const items = await pages.nextItems()
  assert.deepEqual(items.map((s) => s.sandboxId), [box.sandboxId])
  assert.equal(pages.hasNext, false)
  const again = await Sandbox.connect(box.sandboxId)
  assert.equal((await again.commands.run('echo $FOO')).stdout, 'bar\n')
  await box.kill()
})

test('exit code, stderr, env, cwd, user', async () => {
  await assert.rejects(sandbox.commands.run('echo out; echo err >&2; exit 7'), (e) => {
    assert(e instanceof CommandExitError)
    assert.equal(e.exitCode, 7)
    assert.equal(e.stdout, 'out\n')
    assert.equal(e.stderr, 'err\n')
    return true
  })
  const r = await sandbox.commands.run('pwd; whoami; echo $A', { cwd: '/tmp', user: 'root', envs: { A: 'b' } })
  assert.equal(r.stdout, '/tmp\nroot\nb\n')
})

test('timeout, background, stdin', async () => {
  await assert.rejects(sandbox.commands.run('sleep 100', { timeoutMs: 1000 }), TimeoutError)
  const h = await sandbox.commands.run('read l; echo got $l', { background: true, stdin: true })
  assert((await sandbox.commands.list()).some((p) => p.pid === h.pid))
  await sandbox.commands.sendStdin(h.pid, 'words\n')
  assert.equal((await h.wait()).stdout, 'got words\n')
  assert.equal(await sandbox.commands.kill(h.pid), false)
})

test('files: bytes, empty, many, stream, large', async () => {
  const every = Uint8Array.from({ length: 1024 }, (_, i) => i & 255)
  await sandbox.files.write('/tmp/js/every.bin', every.buffer)
  assert.deepEqual(await sandbox.files.read('/tmp/js/every.bin', { format: 'bytes' }), every)
  await sandbox.files.write('/tmp/js/empty', '')
  assert.equal(await sandbox.files.read('/tmp/js/empty'), '')
  await sandbox.files.write([{ path: '/tmp/js/a', data: '1' }, { path: '/tmp/js/b', data: '2' }])
  assert.deepEqual((await sandbox.files.list('/tmp/js')).map((e) => e.name).sort(), ['a', 'b', 'empty', 'every.bin'])
  const chunks = []
  for await (const c of await sandbox.files.read('/tmp/js/every.bin', { format: 'stream' })) chunks.push(...c)
  assert.deepEqual(Uint8Array.from(chunks), every)
  const big = new Uint8Array(100 << 20).fill(120)
  await sandbox.files.write('/tmp/js/big', big.buffer, { requestTimeoutMs: 60_000 })
  assert.equal((await sandbox.files.read('/tmp/js/big', { format: 'bytes', requestTimeoutMs: 60_000 })).length, big.length)
})

test('file operations and errors', async () => {
  assert.equal(await sandbox.files.makeDir('/tmp/js2/x'), true)
  assert.equal(await sandbox.files.makeDir('/tmp/js2/x'), false)
  await sandbox.files.write('/tmp/js2/f', 'x')
  await sandbox.files.rename('/tmp/js2/f', '/tmp/js2/g')
  assert.equal(await sandbox.files.exists('/tmp/js2/g'), true)
  assert.equal(await sandbox.files.exists('/tmp/js2/f'), false)
  await sandbox.files.remove('/tmp/js2')
  await assert.rejects(sandbox.files.read('/no/such'), NotFoundError)
})

test('wrong key, unknown template, unknown id', async () => {
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
  await assert.rejects(Sandbox.create('no-such-template'), /not found/i)
  await assert.rejects(Sandbox.connect('i' + '0'.repeat(20)), NotFoundError)
})

test('kill during a command', async () => {
  const box = await Sandbox.create()
  setTimeout(() => box.kill(), 700)
  await assert.rejects(box.commands.run('sleep 100'), TimeoutError)
})

test('setTimeout ends it', async () => {
  const box = await Sandbox.create()
  await box.setTimeout(1000)
  const until = Date.now() + 90_000
  while (await box.isRunning()) {
    assert(Date.now() < until)
    await new Promise((r) => setTimeout(r, 100))
  }
})

test('watching a folder', async () => {
  const events = []
  let wake = () => {}
  const until = async (name, type) => {
    while (!events.some((e) => e.name === name && e.type === type)) {
      await new Promise((resolve, reject) => {
        wake = resolve
        setTimeout(() => reject(new Error(JSON.stringify(events))), 90_000).unref()
      })
    }
  }
  await sandbox.files.makeDir('/tmp/watched')
  let end
  const exit = new Promise((resolve) => { end = resolve })
  await sandbox.files.watchDir('/tmp/watched', (e) => { events.push(e); wake() }, { recursive: true, timeoutMs: 0, onExit: end })
  await sandbox.files.write('/tmp/watched/f', 'content')
  await until('f', 'write')
  assert.deepEqual(events.map((e) => [e.name, e.type]), [['f', 'create'], ['f', 'chmod'], ['f', 'write']])
  await sandbox.commands.run('mkdir -p /tmp/watched/a/b && echo 1 > /tmp/watched/a/b/g')
  await until('a/b/g', 'write')
  assert.deepEqual(events.filter((e) => e.type === 'create').map((e) => e.name), ['f', 'a', 'a/b', 'a/b/g'])
  await sandbox.files.remove('/tmp/watched')
  await until('.', 'remove')
  assert.equal(await exit, undefined)
  await assert.rejects(sandbox.files.watchDir('/tmp/watched', () => {}), NotFoundError)
})

test('pause and connect', async () => {
  const box = await Sandbox.create()
  await box.files.write('/home/user/f', 'mine')
  assert.equal(await box.pause(), true)
  assert.equal(await box.pause(), false)
  assert.equal(await box.isRunning(), false)
  assert.equal((await box.getInfo()).state, 'paused')
  const paused = await Sandbox.list({ query: { state: ['paused'] } }).nextItems()
  assert.ok(paused.some((s) => s.sandboxId === box.sandboxId))
  const again = await Sandbox.connect(box.sandboxId)
  assert.equal(await again.files.read('/home/user/f'), 'mine')
  assert.equal(await box.isRunning(), true)
  assert.equal(await box.kill(), true)
})
