// Plays the tests of the npm package http-cache-tests (https://cache-tests.fyi/) against a real edge,
// and compares what does not pass with the list in expected.txt.
//
//   node run.mjs PACKAGE CACHEBOY [--id TEST]
//
// PACKAGE is the folder of the installed package, CACHEBOY the program. --id plays one test and shows
// each of its messages. Ends with 0 when exactly the expected tests do not pass, 1 otherwise.
//
// The package's server is the master of a project that takes every host; the tests' own requests go
// through the edge, what sets a test up or asks the server how it went does not.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import net from 'node:net'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const here = path.dirname(new URL(import.meta.url).pathname)
const [packageFolder, cacheboy, ...options] = process.argv.slice(2).map(a => a)
if (!packageFolder || !cacheboy || !(options.length === 0 || (options[0] === '--id' && options[1]))) {
  console.error('usage: node run.mjs PACKAGE CACHEBOY [--id TEST]')
  process.exit(2)
}
const onlyId = options[1]
const folder = path.resolve(packageFolder)
const load = file => import(pathToFileURL(path.join(folder, file)))
const work = path.join(here, '../../target/http-cache')
const children = []

// A port that nobody listens on now.
function freePort () {
  return new Promise(resolve => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

// Starts a process whose output goes to a file below the work folder.
function start (name, command, args, settings) {
  const log = fs.openSync(path.join(work, `${name}.log`), 'w')
  const child = spawn(command, args, { stdio: ['ignore', log, log], ...settings })
  child.name = name
  children.push(child)
  return child
}

// Waits until the process answers at the URL.
async function answers (child, url) {
  for (let tries = 0; tries < 600; tries++) {
    if (child.exitCode !== null) break
    try {
      const response = await fetch(url)
      await response.arrayBuffer()
      if (response.ok) return
    } catch {}
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  throw new Error(`${child.name} does not answer: see ${path.join(work, child.name)}.log`)
}

function writeConfig (port, masterPort) {
  const nodeMap = {
    format: 1,
    generation: Date.now(),
    publisher: 'test',
    map: {
      sites: { here: {} },
      nodes: { edge1: { site: 'here', addresses: ['127.0.0.1'] } },
      pools: { all: { edge1: 1 } },
      maps: { default: { default: ['all'] } },
      zones: {
        example: {
          ns: ['ns1.dns.example'], ttl_s: 3600, soa: { contact: 'noc.example', negative_ttl_s: 60 }
        }
      },
      projects: {
        tests: {
          name: 'tests.example',
          hosts: ['*'],
          map: 'default',
          ttl_s: 60,
          all_down: 'last-good',
          // A reload of a client is believed at once.
          reload_min_age_s: 0,
          unsafe_methods: true,
          // The server knows requests apart by the first three. With the others the first question
          // about a target says what its client says, so that the tests count no second one.
          request_fields: ['test-id', 'test-name', 'req-num', 'abc', 'accept-language', 'bar', 'baz', 'foo'],
          masters: { server: { url: `http://127.0.0.1:${masterPort}` } }
        }
      }
    },
    states: { edge1: { v4: { state: 'up', reason: 'test', since_ms: 0 } } }
  }
  fs.writeFileSync(path.join(work, 'node-map.json'), JSON.stringify(nodeMap))
  fs.writeFileSync(path.join(work, 'edge.toml'), `[host]
name = "edge1"
state_dir = "state"

[follow]
node_map = ["file:node-map.json"]

[edge]
listen = ["127.0.0.1:${port}"]
drain_notice_s = 0

[[edge.store]]
path = "cache"
size = "1 GiB"
`)
}

// `ID WORDS` lines: the tests that do not pass, each with the reason.
function readExpected () {
  const lines = fs.readFileSync(path.join(here, 'expected.txt'), 'utf8').split('\n')
  return new Map(lines.filter(l => l && !l.startsWith('#')).map(l => {
    const [id, ...reason] = l.split(' ')
    return [id, reason.join(' ').trim()]
  }))
}

async function play () {
  fs.rmSync(work, { recursive: true, force: true })
  fs.mkdirSync(work, { recursive: true })
  const [port, masterPort] = [await freePort(), await freePort()]
  writeConfig(port, masterPort)
  const server = start('server', process.execPath, ['server/server.mjs'], {
    cwd: folder,
    env: {
      ...process.env,
      npm_config_protocol: 'http',
      npm_config_port: String(masterPort),
      npm_config_pidfile: path.join(work, 'server.pid')
    }
  })
  const edge = start('edge', path.resolve(cacheboy), ['edge', '--config', 'edge.toml'], { cwd: work })
  await answers(server, `http://127.0.0.1:${masterPort}/package.json`)
  await answers(edge, `http://127.0.0.1:${port}/.well-known/cacheboy/health`)

  const { default: suites } = await load('tests/index.mjs')
  const { runTests, getResults } = await load('client/runner.mjs')
  const { default: fetchThrough } = createRequire(path.join(folder, 'package.json'))('node-fetch')
  const chosen = suites.map(suite => ({
    ...suite, tests: suite.tests.filter(test => !onlyId || test.id === onlyId)
  }))
  if (onlyId) for (const suite of chosen) for (const test of suite.tests) test.dump = true
  const base = `http://127.0.0.1:${port}`
  const routed = (url, init) => {
    const isControl = url.startsWith(`${base}/config/`) || url.startsWith(`${base}/state/`)
    return fetchThrough(isControl ? url.replace(base, `http://127.0.0.1:${masterPort}`) : url, init)
  }
  await runTests(chosen, routed, false, base)
  return [chosen, getResults()]
}

// Prints the counts and what differs from the expectations; gives the exit code.
function judge (suites, results) {
  const expected = readExpected()
  const counts = {}
  const failed = new Map()
  const count = (kind, passed) => {
    counts[kind] ??= [0, 0]
    counts[kind][1]++
    if (passed) counts[kind][0]++
  }
  for (const suite of suites) {
    for (const test of suite.tests) {
      if (test.browser_only) continue
      const passed = results[test.id] === true
      const kind = test.kind ?? 'required'
      count(kind, passed)
      if (suite.id === 'partial') count('partial content', passed)
      // A check asks how a cache behaves: both answers are right.
      if (!passed && kind !== 'check') failed.set(test.id, `${kind}: ${results[test.id]?.[1]}`)
    }
  }
  for (const [kind, [passed, all]] of Object.entries(counts)) console.log(`${kind}: ${passed} of ${all}`)
  let code = 0
  const complain = (title, ids, words) => {
    if (ids.length === 0) return
    code = 1
    console.log(`\n${title}:`)
    for (const id of ids) console.log(`  ${id}  ${words(id)}`)
  }
  complain('do not pass, and are not in expected.txt',
    [...failed.keys()].filter(id => !expected.has(id)), id => failed.get(id))
  complain('pass now: take them out of expected.txt',
    [...expected.keys()].filter(id => results[id] === true), id => expected.get(id))
  if (!onlyId) {
    complain('are in expected.txt, but there is no such test',
      [...expected.keys()].filter(id => !(id in results)), id => expected.get(id))
  }
  return code
}

let code = 1
try {
  const [suites, results] = await play()
  fs.writeFileSync(path.join(work, 'results.json'), JSON.stringify(results, null, 1))
  code = judge(suites, results)
} catch (error) {
  console.error(`http-cache-tests: ${error.message}`)
} finally {
  for (const child of children) child.kill()
}
process.exit(code)
