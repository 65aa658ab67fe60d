// An agent with one of the two TypeScript SDKs: lists the tools, makes a call that is allowed and one that needs approval,
// and prints what it saw as JSON. Arguments: directory of the packages, v1 or v2, address, key.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, version, url, key] = process.argv.slice(2);
const packages = createRequire(`${directory}/`);
const load = (name) => import(pathToFileURL(packages.resolve(name)));

let Client, StreamableHTTPClientTransport;
let options = { capabilities: {} };
if (version === 'v1') {
  ({ Client } = await load('@modelcontextprotocol/sdk/client/index.js'));
  ({ StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js'));
} else {
  ({ Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client'));
  options = { ...options, versionNegotiation: { mode: 'auto' } };
}

const client = new Client({ name: 'smoke', version: '1' }, options);
const headers = { Authorization: `Bearer ${key}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { tools } = await client.listTools();
const call = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  return { isError: result.isError ?? false, text: result.content[0].text };
};
console.log(JSON.stringify({
  tools: tools.map((tool) => tool.name),
  allowed: await call('get_order', { order_id: 'A-17' }),
  gated: await call('refund_order', { order_id: 'A-17', amount_cents: 12000 }),
}));
process.exit(0);
