// What every queue on Node does here: post a signed body, as Tocsin does, and read the answer. Also their common frame.
import { createHmac } from "node:crypto";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline/promises";

export const require = createRequire(new URL("../.peers/", import.meta.url));
const { Agent, request } = require("undici");
const pg = require("pg");

const agent = new Agent({ connections: 64, pipelining: 1 });

export async function post({ url, id, subscriber, body }) {
  const timestamp = Math.floor(Date.now() / 1000);
  const key = Buffer.alloc(32);
  key.writeUInt32BE(subscriber, 28);
  const signature = createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
  const answer = await request(url, {
    method: "POST",
    dispatcher: agent,
    headers: {
      "content-type": "application/json",
      "webhook-id": id,
      "webhook-timestamp": String(timestamp),
      "webhook-signature": `v1,${signature}`,
    },
    body,
  });
  await answer.body.dump();
  if (answer.statusCode !== 200) throw new Error(`answered ${answer.statusCode}`);
}

export function pool(options) {
  const made = new pg.Pool(options);
  for (const event of ["error", "connect"]) made.on(event, (it) => it?.on?.("error", () => {})); // it is dropped in the end
  return made;
}

// Run one of the three verbs: `install`, `work SETTINGS`, which says when it is ready, `enqueue FILE`. Jobs become
// visible all at once, by a commit that waits for a line on stdin.
export async function main({ install, work, enqueue }) {
  const [verb, argument] = process.argv.slice(2);
  if (verb === "install") await install();
  if (verb === "work") {
    await work(JSON.parse(argument));
    console.log("ready");
  }
  if (verb === "enqueue") {
    const client = new pg.Client();
    await client.connect();
    await client.query("BEGIN");
    await enqueue(client, JSON.parse(readFileSync(argument, "utf8")));
    console.log("ready");
    for await (const _ of createInterface({ input: process.stdin })) break;
    await client.query("COMMIT");
    console.log("done");
    await client.end();
  }
  if (verb !== "work") process.exit(0);
}
