// What every Node client here is made of: where the gateway is, and cases that run one after the other.
// The parent sets the environment; the report is one JSON line per case on standard output.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";

export const BASE = process.env.CLIENT_BASE;
export const V1 = `${BASE}/v1`;
export const KEY = process.env.CLIENT_KEY;
export const SPENT_KEY = process.env.CLIENT_SPENT_KEY;
export const MODEL = process.env.CLIENT_MODEL;
export const EMBEDDER = process.env.CLIENT_EMBEDDER;

// What a prompt holds and its answer must repeat.
export const token = () => `tok-${randomBytes(5).toString("hex")}`;

export function includes(text, part) {
  assert.ok(typeof text === "string" && text.includes(part), `${JSON.stringify(text)} does not hold ${part}`);
}

// The error that `call` ends with; `kind` is its class.
export async function raised(kind, call) {
  try {
    await call();
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error?.message} is no ${kind.name}`);
    return error;
  }
  assert.fail(`no ${kind.name} was raised`);
}

export async function collect(iterable) {
  const found = [];
  for await (const one of iterable) found.push(one);
  return found;
}

export async function run(cases) {
  const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(cases);
  for (const name of names) {
    const began = performance.now();
    let why = "";
    try {
      await cases[name]();
    } catch (error) {
      why = `${error?.stack ?? error}`.slice(0, 4000) || "failed";
    }
    console.log(JSON.stringify({ case: name, why, seconds: Math.round(performance.now() - began) / 1000 }));
  }
  process.exit(0);
}
