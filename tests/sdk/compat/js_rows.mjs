// Every method of the JavaScript client that asks a server, once; rows.py says what a row is and what is printed.
// Rows have the names of the Python client; what they call is the same in camel case, options are looked up in the
// package's type declarations, and so are the public methods, because TypeScript's private ones exist at run time.
//
// usage: node js_rows.mjs NODE_MODULES PACKAGE [ROW...]        PACKAGE: the name that the release has there
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

const require = createRequire(process.argv[2] + '/')
const e2b = require(process.argv[3])
const { Sandbox, Template, Volume, Secret } = e2b
const types = readFileSync(join(dirname(require.resolve(process.argv[3])), 'index.d.ts'), 'utf8')
const DEADLINE_MS = 120_000
const rows = new Map()
const row = (...names) => { const f = names.pop(); for (const n of names) { assert(!rows.has(n), n); rows.set(n, f) } }

const made = []
let box
const create = async (opts = {}) => {
  const b = await Sandbox.create({ timeoutMs: 300_000, ...opts })
  made.push(b)
  return b
}
const pause = (ms) => new Promise((done) => setTimeout(done, ms))
const until = async (condition, what) => {
  for (const end = Date.now() + 90_000; !(await condition()); await pause(50)) assert(Date.now() < end, `never: ${what}`)
}
const unique = () => `${Date.now()}${Math.floor(Math.random() * 1e6)}`
const noProcess = async (words) => !(await box.commands.run('ps -eo args')).stdout.includes(words)
const all = async (pages) => { const found = []; while (pages.hasNext) found.push(...(await pages.nextItems())); return found }
const bytes = (text) => new TextEncoder().encode(text)

// ---- sandbox

row('Sandbox.create', async () => {
  const b = await create()
  assert.equal((await b.commands.run('echo hello')).stdout, 'hello\n')
  await b.kill()
})
row('Sandbox.create(metadata=)', 'Sandbox.get_info', async () => {
  const b = await create({ metadata: { 'a b': 'ü&=' } })
  const info = await b.getInfo()
  assert.deepEqual([info.sandboxId, info.metadata], [b.sandboxId, { 'a b': 'ü&=' }])
  assert.equal((await Sandbox.getInfo(b.sandboxId)).state, 'running')
  await b.kill()
})
row('Sandbox.create(envs=)', async () => {
  const b = await create({ envs: { WORD: 'told' } })
  assert.equal((await b.commands.run('echo $WORD')).stdout, 'told\n')
  await b.kill()
})
row('Sandbox.get_full_info', async () => assert.equal((await Sandbox.getFullInfo(box.sandboxId)).sandboxId, box.sandboxId))
const created = (opts) => async () => {
  const b = await create(opts)
  assert.equal(await b.isRunning(), true)
  await b.kill()
}
row('Sandbox.create(secure=)', created({ secure: true }))
row('Sandbox.create(allow_internet_access=)', created({ allowInternetAccess: false }))
row('Sandbox.create(network=)', created({ network: { allowOut: ['192.0.2.1'], denyOut: ['0.0.0.0/0'] } }))
row('Sandbox.create(lifecycle=)', created({ lifecycle: { onTimeout: 'pause', autoResume: false } }))
row('Sandbox.create(volume_mounts=)', created({ volumeMounts: { '/mnt/data': 'no-such-volume' } }))
row('Sandbox.create(mcp=)', created({ mcp: { time: {} } }))
row('Sandbox.create(iam=)', created({ iam: { tokens: { a: { audience: 'b', tokenType: 'JWT-SVID' } } } }))
row('Sandbox.create(idempotency_key=)', async () => {
  const idempotencyKey = `compat-${unique()}`
  const [a, b] = [await create({ idempotencyKey }), await create({ idempotencyKey })]
  assert.equal(a.sandboxId, b.sandboxId)
  await a.kill()
})
row('Sandbox.beta_create', async () => {
  const b = await Sandbox.betaCreate({ timeoutMs: 300_000 })
  made.push(b)
  assert.equal(await b.isRunning(), true)
  await b.kill()
})
row('Sandbox.connect', async () => {
  const again = await Sandbox.connect(box.sandboxId)
  assert.equal((await again.commands.run('echo again')).stdout, 'again\n')
  assert.equal((await again.connect({ timeoutMs: 300_000 })).sandboxId, box.sandboxId)
})
row('Sandbox.kill', async () => {
  const [a, b] = [await create(), await create()]
  const told = [await a.kill(), await a.kill()]
  assert.deepEqual(told, told[0] === undefined ? [undefined, undefined] : [true, false]) // older: Promise<void>
  assert.deepEqual([await Sandbox.kill(b.sandboxId), await Sandbox.kill(b.sandboxId)], [true, false])
  assert.equal(await a.isRunning(), false)
})
row('Sandbox.set_timeout', async () => {
  const b = await create()
  await Sandbox.setTimeout(b.sandboxId, 200_000)
  await b.setTimeout(1000)
  await until(async () => !(await b.isRunning()), 'the end of its life')
})
row('Sandbox.is_running', async () => assert.equal(await box.isRunning(), true))
row('Sandbox.list', 'SandboxPaginator.next_items', async () => {
  assert((await all(Sandbox.list({ limit: 1 }))).some((s) => s.sandboxId === box.sandboxId))
})
row('Sandbox.list(query=)', async () => {
  const metadata = { page: `ü&=%${unique()}` }
  const b = await create({ metadata })
  const found = await all(Sandbox.list({ query: { metadata } }))
  assert.deepEqual(found.map((s) => s.sandboxId), [b.sandboxId])
  await b.kill()
})
row('Sandbox.list(order=)', async () => {
  const b = await create()
  const ids = (await all(Sandbox.list({ order: 'asc' }))).map((s) => s.sandboxId)
  assert(ids.includes(box.sandboxId) && ids.indexOf(box.sandboxId) < ids.indexOf(b.sandboxId))
  await b.kill()
})
row('Sandbox.get_metrics', () => until(async () => (await box.getMetrics())[0]?.memTotal > 0, 'a first sample'))
row('Sandbox.get_host', async () => assert(box.getHost(3000).startsWith(`3000-${box.sandboxId}.`)))
const fetched = async (url, opts = {}) => {
  const answer = await fetch(url, { signal: AbortSignal.timeout(30_000), ...opts })
  assert.equal(answer.ok, true, `${answer.status} ${url}`)
  return answer.text()
}
row('Sandbox.download_url', async () => {
  await box.files.write('/tmp/down.txt', 'down')
  assert.equal(await fetched(await box.downloadUrl('/tmp/down.txt')), 'down')
  assert.equal(await fetched(await box.downloadUrl('/tmp/down.txt', { useSignatureExpiration: 60_000 })), 'down')
})
row('Sandbox.upload_url', async () => {
  const body = new FormData()
  body.append('file', new Blob(['up']), 'f')
  await fetched(await box.uploadUrl('/tmp/up.txt'), { method: 'POST', body })
  assert.equal(await box.files.read('/tmp/up.txt'), 'up')
})
const pauseAndBack = (opts) => async () => {
  const b = await create()
  await b.files.write('/tmp/kept', 'kept')
  await b.pause(opts)
  assert.equal((await b.getInfo()).state, 'paused')
  await b.connect()
  assert.equal(await b.files.read('/tmp/kept'), 'kept')
  await b.kill()
}
row('Sandbox.pause', pauseAndBack())
row('Sandbox.connect (resume)', async () => {
  if (Sandbox.prototype.pause) return pauseAndBack()()
  // Older: only betaPause pauses.
  const b = await create()
  await b.betaPause()
  assert.equal(await (await b.connect()).isRunning(), true)
  await b.kill()
})
row('Sandbox.pause(keep_memory=)', pauseAndBack({ keepMemory: false }))
row('Sandbox.connect(on_resume=)', async () => {
  const b = await create()
  await b.pause()
  const again = await Sandbox.connect(b.sandboxId, { onResume: 'reboot' })
  assert.equal((await again.commands.run('echo back')).stdout, 'back\n')
  await b.kill()
})
row('Sandbox.beta_pause', async () => {
  const b = await create()
  await b.betaPause()
  await b.kill()
})
const snapshot = async () => {
  const b = await create()
  await b.files.write('/home/user/kept', 'kept')
  return [b, await b.createSnapshot()]
}
row('Sandbox.create_snapshot', async () => {
  const [b, s] = await snapshot()
  const copy = await Sandbox.create(s.snapshotId, { timeoutMs: 300_000 })
  made.push(copy)
  assert.equal(await copy.files.read('/home/user/kept'), 'kept')
  await copy.kill()
  await b.kill()
})
row('Sandbox.list_snapshots', 'SnapshotPaginator.next_items', async () => {
  await all(Sandbox.listSnapshots())
  const [b, s] = await snapshot()
  assert((await all(b.listSnapshots())).some((one) => one.snapshotId === s.snapshotId))
  await b.kill()
})
row('Sandbox.delete_snapshot', async () => {
  assert.equal(await Sandbox.deleteSnapshot('no-such-snapshot'), false)
  const [b, s] = await snapshot()
  await b.kill()
  assert.deepEqual([await Sandbox.deleteSnapshot(s.snapshotId), await Sandbox.deleteSnapshot(s.snapshotId)], [true, false])
})
row('Sandbox.fork', async () => {
  const b = await create()
  await b.files.write('/home/user/kept', 'kept')
  for (const copy of await b.fork({ count: 2 })) {
    assert(!(copy instanceof Error), copy)
    made.push(copy)
    assert.equal(await copy.files.read('/home/user/kept'), 'kept')
    await copy.kill()
  }
  await b.kill()
})
row('Sandbox.update_network', () => box.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['192.0.2.1'] }))
row('Sandbox.get_mcp_token', async () => {
  await box.commands.run('mkdir -p /etc/mcp-gateway && printf secret >/etc/mcp-gateway/.token', { user: 'root' })
  assert.equal(await box.getMcpToken(), 'secret')
})
row('Sandbox.get_mcp_url', async () => assert.equal(box.getMcpUrl(), `https://${box.getHost(50005)}/mcp`))

// ---- commands

row('commands.run', async () => {
  const done = await box.commands.run('echo out; echo err >&2')
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\n', 'err\n', 0])
})
row('commands.run (exit code)', () => assert.rejects(box.commands.run('echo out; exit 3'), (e) =>
  e instanceof e2b.CommandExitError && e.exitCode === 3 && e.stdout === 'out\n'))
row('commands.run(envs=)', 'commands.run(cwd=)', 'commands.run(user=)', async () => {
  const done = await box.commands.run('echo $A; pwd; whoami', { envs: { A: 'ü\'"' }, cwd: '/tmp', user: 'root' })
  assert.equal(done.stdout, 'ü\'"\n/tmp\nroot\n')
})
row('commands.run(on_stdout=)', 'commands.run(on_stderr=)', async () => {
  let [out, err] = ['', '']
  await box.commands.run('echo 1; sleep 0.2; echo 2; echo 3 >&2', { onStdout: (s) => { out += s }, onStderr: (s) => { err += s } })
  assert.deepEqual([out, err], ['1\n2\n', '3\n'])
})
row('commands.run(timeout=)', async () => {
  await assert.rejects(box.commands.run('sleep 301', { timeoutMs: 1000 }), e2b.TimeoutError)
  await until(() => noProcess('sleep 301'), 'the end of the command')
})
row('commands.run(background=)', 'handle.wait', async () => {
  assert.equal((await (await box.commands.run('echo out', { background: true })).wait()).stdout, 'out\n')
})
row('commands.list', async () => {
  const handle = await box.commands.run('sleep 302', { background: true, envs: { B: 'c' }, cwd: '/tmp' })
  const found = (await box.commands.list()).find((p) => p.pid === handle.pid)
  assert.deepEqual([found.cmd, found.args.at(-1), found.envs.B, found.cwd], ['/bin/bash', 'sleep 302', 'c', '/tmp'])
  await handle.kill()
})
row('commands.kill', async () => {
  const handle = await box.commands.run('sleep 303', { background: true })
  assert.equal(await box.commands.kill(handle.pid), true)
  await assert.rejects(handle.wait(), e2b.CommandExitError)
  assert.equal(await box.commands.kill(handle.pid), false)
})
row('commands.connect', async () => {
  const handle = await box.commands.run('read line; echo got $line', { background: true, stdin: true })
  const again = await box.commands.connect(handle.pid)
  await box.commands.sendStdin(handle.pid, 'it\n')
  assert.equal((await again.wait()).stdout, 'got it\n')
})
row('commands.run(stdin=)', 'commands.send_stdin', async () => {
  const handle = await box.commands.run('read line; echo got $line', { background: true, stdin: true })
  await box.commands.sendStdin(handle.pid, 'words ü\n')
  assert.equal((await handle.wait()).stdout, 'got words ü\n')
})
row('commands.close_stdin', async () => {
  const handle = await box.commands.run('wc -c', { background: true, stdin: true })
  await box.commands.sendStdin(handle.pid, 'x'.repeat(1000))
  await box.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, '1000\n')
})
row('handle.send_stdin', 'handle.close_stdin', async () => {
  const handle = await box.commands.run('cat', { background: true, stdin: true })
  await handle.sendStdin('words')
  await handle.closeStdin()
  assert.equal((await handle.wait()).stdout, 'words')
})
row('handle.kill', async () => {
  const handle = await box.commands.run('sleep 304', { background: true })
  assert.equal(await handle.kill(), true)
  await until(() => noProcess('sleep 304'), 'the end of the command')
})
row('handle.disconnect', async () => {
  const handle = await box.commands.run('sleep 305', { background: true })
  await handle.disconnect()
  assert((await box.commands.list()).some((p) => p.pid === handle.pid))
  assert.equal(await box.commands.kill(handle.pid), true)
})

// ---- pty

const collector = () => {
  const c = { text: '', onData: (d) => { c.text += new TextDecoder().decode(d) } }
  return c
}
const ended = (handle) => handle.wait().catch((e) => { if (!(e instanceof e2b.CommandExitError)) throw e })
row('pty.create', 'pty.send_stdin', async () => {
  const c = collector()
  const handle = await box.pty.create({ rows: 24, cols: 80, onData: c.onData, envs: { A: 'b' }, cwd: '/tmp', user: 'root' })
  await box.pty.sendInput(handle.pid, bytes('echo "<$A:$PWD:$(whoami):$TERM>"; exit\n'))
  await ended(handle)
  assert(c.text.includes('<b:/tmp:root:xterm-256color>'), c.text)
})
row('pty.resize', async () => {
  const c = collector()
  const handle = await box.pty.create({ rows: 24, cols: 80, onData: c.onData })
  await box.pty.resize(handle.pid, { rows: 33, cols: 101 })
  await box.pty.sendInput(handle.pid, bytes('stty size; exit\n'))
  await ended(handle)
  assert(c.text.includes('33 101'), c.text)
})
row('pty.kill', async () => {
  const handle = await box.pty.create({ rows: 24, cols: 80, onData: () => {} })
  assert.equal(await box.pty.kill(handle.pid), true)
  await ended(handle)
  assert.equal(await box.pty.kill(handle.pid), false)
})
row('pty.connect', async () => {
  const c = collector()
  const handle = await box.pty.create({ rows: 24, cols: 80, onData: () => {} })
  const again = await box.pty.connect(handle.pid, { onData: c.onData })
  await box.pty.sendInput(handle.pid, bytes('echo w$((1))rds; exit\n'))
  await ended(again)
  await ended(handle)
  assert(c.text.includes('w1rds'), c.text)
})

// ---- files

const every = Uint8Array.from({ length: 256 * 64 }, (_, i) => i & 255)
const same = (data) => assert.deepEqual(Buffer.from(data), Buffer.from(every))
row('files.write', 'files.read', async () => {
  assert.equal((await box.files.write('/tmp/f/deep/text.txt', 'content ä')).path, '/tmp/f/deep/text.txt')
  assert.equal(await box.files.read('/tmp/f/deep/text.txt'), 'content ä')
})
row('files.write (bytes)', 'files.read (bytes)', async () => {
  await box.files.write('/tmp/f/every', every.buffer)
  same(await box.files.read('/tmp/f/every', { format: 'bytes' }))
})
row('files.write (file object)', async () => {
  await box.files.write('/tmp/f/object', new ReadableStream({
    start(c) { for (let i = 0; i < 50; i++) c.enqueue(every); c.close() },
  }))
  assert.equal((await box.commands.run('stat -c %s /tmp/f/object')).stdout, `${every.length * 50}\n`)
})
row('files.write (blob)', 'files.read (blob)', async () => {
  await box.files.write('/tmp/f/blob', new Blob([every]))
  same(await (await box.files.read('/tmp/f/blob', { format: 'blob' })).arrayBuffer())
})
row('files.read (stream)', async () => {
  await box.files.write('/tmp/f/stream', every.buffer)
  same(await new Response(await box.files.read('/tmp/f/stream', { format: 'stream' })).arrayBuffer())
})
row('files.write(gzip=)', 'files.read(gzip=)', async () => {
  await box.files.write('/tmp/f/gzip', 'g'.repeat(10_000), { gzip: true })
  assert.equal(await box.files.read('/tmp/f/gzip', { gzip: true }), 'g'.repeat(10_000))
  assert.equal(await box.files.read('/tmp/f/gzip'), 'g'.repeat(10_000))
})
row('files.write(use_octet_stream=)', async () => {
  await box.files.write('/tmp/f/octets', every.buffer, { useOctetStream: true })
  same(await box.files.read('/tmp/f/octets', { format: 'bytes' }))
})
row('files.write(metadata=)', async () => {
  await box.files.write('/tmp/f/meta', 'x', { metadata: { author: 'me' } })
  assert.deepEqual((await box.files.getInfo('/tmp/f/meta')).metadata, { author: 'me' })
})
row('files.write(user=)', 'files.read(user=)', async () => {
  await box.files.write('/root/own', 'r', { user: 'root' })
  assert.equal(await box.files.read('/root/own', { user: 'root' }), 'r')
  assert.equal((await box.commands.run('stat -c %U /root/own', { user: 'root' })).stdout, 'root\n')
})
row('files.write_files', async () => {
  const files = [0, 1, 2, 3, 4].map((i) => ({ path: `/tmp/f/m${i}`, data: String(i) }))
  assert.deepEqual((await box.files.writeFiles(files)).map((i) => i.path), files.map((f) => f.path))
  assert.equal(await box.files.read('/tmp/f/m4'), '4')
})
row('files.write (several)', async () => {
  const files = [0, 1].map((i) => ({ path: `/tmp/f/n${i}`, data: String(i) }))
  assert.deepEqual((await box.files.write(files)).map((i) => i.path), files.map((f) => f.path))
})
row('files.list', async () => {
  await box.files.write('/tmp/list/a/b/c.txt', 'c')
  const found = await box.files.list('/tmp/list')
  assert.deepEqual(found.map((e) => [e.name, e.type, e.path]), [['a', 'dir', '/tmp/list/a']])
})
row('files.list(depth=)', async () => {
  await box.files.write('/tmp/list/a/b/c.txt', 'c')
  assert.deepEqual((await box.files.list('/tmp/list', { depth: 3 })).map((e) => e.name).sort(), ['a', 'b', 'c.txt'])
})
row('files.exists', async () => {
  assert.deepEqual([await box.files.exists('/etc/passwd'), await box.files.exists('/etc/none')], [true, false])
})
row('files.get_info', async () => {
  const info = await box.files.getInfo('/etc/passwd')
  assert.deepEqual([info.name, info.owner, info.mode & 0o777, info.permissions], ['passwd', 'root', 0o644, '-rw-r--r--'])
})
row('files.remove', async () => {
  await box.files.write('/tmp/gone/a', 'a')
  await box.files.remove('/tmp/gone')
  assert.equal(await box.files.exists('/tmp/gone'), false)
})
row('files.rename', async () => {
  await box.files.write('/tmp/f/old', 'o')
  assert.equal((await box.files.rename('/tmp/f/old', '/tmp/f/new')).path, '/tmp/f/new')
})
row('files.make_dir', async () => {
  const name = `/tmp/made/${unique()}/deep`
  assert.deepEqual([await box.files.makeDir(name), await box.files.makeDir(name)], [true, false])
})
const watch = async (change, expected, opts) => {
  const folder = `/tmp/watch/${unique()}`
  await box.files.makeDir(folder)
  const events = []
  const handle = await box.files.watchDir(folder, (e) => { events.push(e) }, opts)
  await box.commands.run(change, { cwd: folder })
  await until(() => events.some((e) => e.name === expected), `an event of ${expected}`)
  await handle.stop()
  return events.filter((e) => e.name === expected)
}
row('files.watch_dir', 'watch.stop', async () => assert.equal((await watch('echo a >made', 'made'))[0].type, 'create'))
row('files.watch_dir(recursive=)', () => watch('mkdir -p a/b && touch a/b/c', 'a/b/c', { recursive: true }))
row('files.watch_dir(include_entry=)', async () => {
  assert((await watch('echo a >made', 'made', { includeEntry: true })).some((e) => e.entry?.name === 'made'))
})
row('files.watch_dir(allow_network_mounts=)', () => watch('echo a >made', 'made', { allowNetworkMounts: true }))

// ---- git

const REPO = '/tmp/git/repo'
const repo = async () => {
  await box.commands.run('rm -rf /tmp/git; mkdir /tmp/git')
  await box.git.init('/tmp/git/bare.git', { bare: true, initialBranch: 'main' })
  await box.git.init(REPO, { initialBranch: 'main' })
  await box.files.write(`${REPO}/a.txt`, '1')
  await box.git.add(REPO)
  await box.git.commit(REPO, 'first', { authorName: 'A', authorEmail: 'a@example.com' })
  return box.git
}
row('git.init', 'git.add', 'git.commit', async () => {
  await repo()
  assert.equal((await box.commands.run(`git -C ${REPO} log --format=%an:%s`)).stdout, 'A:first\n')
})
row('git.status', async () => {
  const g = await repo()
  await box.files.write(`${REPO}/b.txt`, '2')
  const status = await g.status(REPO)
  assert.deepEqual([status.currentBranch, status.fileStatus.map((f) => f.name)], ['main', ['b.txt']])
})
row('git.branches', 'git.create_branch', 'git.checkout_branch', 'git.delete_branch', async () => {
  const g = await repo()
  await g.createBranch(REPO, 'side')
  await g.checkoutBranch(REPO, 'main')
  const found = await g.branches(REPO)
  assert.deepEqual([found.currentBranch, [...found.branches].sort()], ['main', ['main', 'side']])
  await g.deleteBranch(REPO, 'side', { force: true })
  assert.deepEqual((await g.branches(REPO)).branches, ['main'])
})
row('git.configure_user', 'git.set_config', 'git.get_config', async () => {
  const g = await repo()
  await g.configureUser('B', 'b@example.com')
  assert.equal(await g.getConfig('user.name'), 'B')
  await g.setConfig('core.abbrev', '12', { scope: 'local', path: REPO })
  assert.equal(await g.getConfig('core.abbrev', { scope: 'local', path: REPO }), '12')
})
row('git.remote_add', 'git.remote_get', 'git.push', 'git.clone', 'git.pull', async () => {
  const g = await repo()
  await g.remoteAdd(REPO, 'origin', '/tmp/git/bare.git')
  assert.equal(await g.remoteGet(REPO, 'origin'), '/tmp/git/bare.git')
  await g.push(REPO, { remote: 'origin', branch: 'main' })
  await g.clone('/tmp/git/bare.git', { path: '/tmp/git/copy' })
  assert.equal(await box.files.read('/tmp/git/copy/a.txt'), '1')
  await g.pull('/tmp/git/copy', { remote: 'origin', branch: 'main' })
})
row('git.reset', 'git.restore', async () => {
  const g = await repo()
  await box.files.write(`${REPO}/a.txt`, 'changed')
  await g.add(REPO)
  await g.reset(REPO, { mode: 'mixed' })
  await g.restore(REPO, { paths: ['a.txt'] })
  assert.equal(await box.files.read(`${REPO}/a.txt`), '1')
})
row('git.dangerously_authenticate', async () => {
  await box.git.dangerouslyAuthenticate({ username: 'me', password: 'secret', host: 'git.example.com' })
  const found = await box.commands.run("printf 'protocol=https\\nhost=git.example.com\\n\\n' | git credential fill")
  assert(found.stdout.includes('password=secret'))
})

// ---- templates, volumes, secrets

const small = () => Template().fromTemplate('base').runCmd('echo built >/home/user/built')
row('Template.build', async () => {
  const name = `compat-${unique()}`
  await Template.build(small(), { alias: name })
  const b = await Sandbox.create(name, { timeoutMs: 300_000 })
  made.push(b)
  assert.equal(await b.files.read('/home/user/built'), 'built\n')
})
row('Template.build_in_background', () => Template.buildInBackground(small(), `compat-${unique()}`))
row('Template.get_build_status', () =>
  Template.getBuildStatus({ templateId: 'no-such-template', buildId: '00000000-0000-4000-8000-000000000000' }))
row('Template.exists', async () => assert.equal(await Template.exists('base'), true))
row('Template.alias_exists', async () => assert.equal(await Template.aliasExists('base'), true))
row('Template.assign_tags', () => Template.assignTags('base:default', ['compat']))
row('Template.get_tags', () => Template.getTags('base'))
row('Template.remove_tags', () => Template.removeTags('base', ['compat']))

const volume = () => Volume.create(`compat-${unique()}`)
row('Volume.create', 'Volume.destroy', async () => {
  const v = await volume()
  assert.deepEqual([await Volume.destroy(v.volumeId), await Volume.destroy(v.volumeId)], [true, false])
})
row('Volume.connect', () => Volume.connect('no-such-volume'))
row('Volume.get_info', () => Volume.getInfo('no-such-volume'))
row('Volume.list', async () => assert(Array.isArray(await Volume.list())))
const volumeRow = (name, call) => row(`Volume.${name}`, async () => {
  await call(new Volume('no-such-volume', 'n', 't')).catch((e) => assert(isOwn(e), e))
  const v = await volume()
  if (name !== 'write_file') await v.writeFile('/a.txt', 'content')
  await call(v)
  await Volume.destroy(v.volumeId)
})
volumeRow('write_file', (v) => v.writeFile('/a.txt', 'a'))
volumeRow('read_file', async (v) => assert.equal(await v.readFile('/a.txt'), 'content'))
volumeRow('list (content)', (v) => v.list('/'))
volumeRow('get_info (content)', (v) => v.getInfo('/a.txt'))
volumeRow('make_dir', (v) => v.makeDir('/d'))
volumeRow('exists', (v) => v.exists('/a.txt'))
volumeRow('update_metadata', (v) => v.updateMetadata('/a.txt', { mode: 0o600 }))
volumeRow('remove', (v) => v.remove('/a.txt'))

row('Secret.create', () => Secret.create(`compat-${unique()}`, 'value'))
row('Secret.update', () => Secret.update('no-such-secret', 'value'))
row('Secret.get_info', () => Secret.getInfo('no-such-secret'))
row('Secret.list', 'SecretPaginator.next_items', () => all(Secret.list()))
row('Secret.exists', () => Secret.exists('no-such-secret'))
row('Secret.destroy', () => Secret.destroy('no-such-secret'))

// ---- what the client has

const OWNERS = {
  Sandbox: ['Sandbox', 'SandboxApi'], commands: ['Commands'], handle: ['CommandHandle'], pty: ['Pty'], files: ['Filesystem'],
  watch: ['WatchHandle'], git: ['Git'], Template: ['TemplateBase'], Volume: ['Volume'], Secret: ['Secret'],
  SandboxPaginator: ['SandboxPaginator'], SnapshotPaginator: ['SnapshotPaginator'], SecretPaginator: ['SecretPaginator'],
}
const OPTIONS = {
  'Sandbox.create': ['SandboxOpts'], 'Sandbox.list': ['SandboxListOpts'], 'Sandbox.pause': ['SandboxPauseOpts'],
  'Sandbox.connect': ['SandboxConnectOpts'], 'commands.run': ['CommandStartOpts'],
  'files.read': ['FilesystemReadOpts', 'FilesystemRequestOpts'], 'files.write': ['FilesystemWriteOpts', 'FilesystemRequestOpts'],
  'files.list': ['FilesystemListOpts'], 'files.watch_dir': ['WatchOpts'],
}
const LOCAL = ['Sandbox.fileUrl', 'Secret.fill', 'Secret.iamToken', 'Template.toJSON', 'Template.toDockerfile']
const camel = (s) => s.replace(/_(\w)/g, (_, c) => c.toUpperCase())
const jsName = (name) => camel(name).replace(/^pty\.sendStdin/, 'pty.sendInput')
const block = (kind, name) => types.match(new RegExp(`^(?:declare )?${kind} ${name}\\b[\\s\\S]*?^\\}`, 'm'))?.[0] ?? ''

function isThere(name) {
  const method = name.match(/^[\w.]+/)[0]
  const option = name.match(/\((\w+)=\)/)?.[1]
  const [owner, member] = jsName(method).split('.')
  if (!OWNERS[owner]?.some((c) => new RegExp(`^ +(static )?(get )?${member}[<(]`, 'm').test(block('(?:abstract )?class', c)))) {
    if (!/Paginator$/.test(owner) || !block('class', owner)) return false
  }
  if (!option) return true
  const wanted = { timeout: 'timeoutMs' }[option] ?? camel(option)
  return OPTIONS[method].some((i) => new RegExp(`^ +${wanted}\\??:`, 'm').test(block('interface', i) || block('type', i)))
}

function publicMethods() {
  const found = new Set()
  for (const [owner, names] of Object.entries(OWNERS)) {
    for (const name of names) {
      const methods = owner === 'Template' ? 'static ' : '(?:static )?' // a template's own methods describe it, without a server
      const method = new RegExp(`^(?:  |    )${methods}(\\w+)(?:<[^\n]*>)?\\(`, 'gm')
      for (const [, member] of block('class', name).matchAll(method)) {
        if (member !== 'constructor') found.add(`${owner}.${member}`)
      }
    }
  }
  return found
}

const isOwn = (e) => Object.values(e2b).includes(e?.constructor) && !(e instanceof assert.AssertionError)
function toldBy(error) {
  const status = Number(String(error?.message).match(/\b([45]\d\d)\b/)?.[1] ?? 0)
  if (isOwn(error) && (status || String(error.message).includes('not available on this server'))) {
    return { error: error.constructor.name, status: status || 501 }
  }
  return { failed: String(error).slice(0, 500), where: String(error?.stack).slice(0, 1500) }
}

box = await create()
const results = new Map()
for (const [name, f] of rows) {
  if (process.argv.length > 4 && !process.argv.slice(4).includes(name)) continue
  let told = isThere(name) ? results.get(f) : { na: true }
  if (!told) {
    const watchdog = setTimeout(() => { console.error(`no answer: ${name}`); process.exit(3) }, DEADLINE_MS)
    try {
      await f()
      told = { ok: true }
    } catch (e) {
      told = toldBy(e)
    }
    clearTimeout(watchdog)
    results.set(f, told)
  }
  console.log(JSON.stringify({ row: name, ...told }))
}
const covered = new Set([...rows.keys()].map((n) => jsName(n.match(/^[\w.]+/)[0])))
console.log(JSON.stringify({ uncovered: [...publicMethods()].filter((n) => !covered.has(n) && !LOCAL.includes(n)).sort() }))
for (const b of made) await b.kill()
process.exit(0)
