// The whole state in the address, after the #: model, picture, class, pose, routing. Nothing is sent to the server for it.

import { count, fromBase64, toBase64 } from "./pictures.js";

/** @typedef {import("./strokes.js").Layer} Layer */
/** @typedef {{model: string, layers: ?string[], label: ?number, pose: [number, number][], step: ?number,
 *   steps: ?number, whole: boolean, measure: string, watched: ?number}} State */

const LONGEST = 200_000; // characters of an address
const LARGEST = 2_000_000; // characters of a picture when unpacked

const urlSafe = (text) => text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const urlUnsafe = (text) => text.replaceAll("-", "+").replaceAll("_", "/");

async function through(stream, bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader();
  const pieces = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(pieces).arrayBuffer());
    size += value.length;
    if (size > LARGEST) throw new Error("too large");
    pieces.push(value);
  }
}

/** z… is deflated, j… is plain, for browsers that cannot deflate. */
async function pack(value) {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  if (typeof CompressionStream === "undefined") return `j${urlSafe(toBase64(bytes))}`;
  return `z${urlSafe(toBase64(await through(new CompressionStream("deflate-raw"), bytes)))}`;
}

async function unpack(text) {
  let bytes = fromBase64(urlUnsafe(text.slice(1)));
  if (text[0] === "z") bytes = await through(new DecompressionStream("deflate-raw"), bytes);
  else if (text[0] !== "j") throw new Error("unknown packing");
  return JSON.parse(new TextDecoder().decode(bytes));
}

/** @param {Layer} layer */
export function packLayer({ base, strokes }) {
  return pack({
    b: base ? toBase64(base) : null,
    s: strokes.map(({ erase, points }) => [erase ? 1 : 0, ...points.map((value) => Math.round(value * 1000))]),
  });
}

/** @returns {Promise<Layer>} */
export async function unpackLayer(text, model) {
  const { b, s } = await unpack(text);
  const base = b === null ? null : fromBase64(b);
  if (base && base.length !== count(model.picture)) throw new Error("a picture of another size");
  const strokes = s.map(([erase, ...points]) => {
    if (points.length < 2 || points.length % 2 || !points.every(Number.isFinite)) throw new Error("not a stroke");
    return { erase: erase === 1, points: points.map((value) => value / 1000) };
  });
  return { base, strokes };
}

/** @returns {Promise<string>} with its # */
export async function writeHash({ model, layers, whole, label, pose, step, steps, measure, watched }) {
  const packed = await Promise.all(layers.map(packLayer));
  const fields = [`model=${encodeURIComponent(model)}`, ...packed.map((text, i) => `picture${i || ""}=${text}`)];
  if (label !== null) fields.push(`class=${label}`);
  if (pose.length) fields.push(`pose=${pose.map(([dimension, value]) => `${dimension}:${value}`).join(",")}`);
  if (step !== null) fields.push(`step=${step}`);
  if (steps !== null) fields.push(`steps=${steps}`);
  if (measure !== "share") fields.push(`size=${measure}`);
  if (watched !== null) fields.push(`watch=${watched}`);
  if (whole) fields.push("objects=all");
  const hash = `#${fields.join("&")}`;
  if (hash.length > LONGEST) throw new Error("This picture is too large to be put into a link.");
  return hash;
}

/** @returns {?State} null if there is nothing; throws if it makes no sense */
export function readHash(hash) {
  if (!hash.includes("=")) return null; // empty, or the name of a place on the page
  if (hash.length > LONGEST) throw new Error("too long");
  const fields = new URLSearchParams(hash.slice(1));
  const model = fields.get("model");
  if (!model) throw new Error("no model");
  const number = (name) => {
    const text = fields.get(name);
    if (text === null) return null;
    if (!/^\d{1,6}$/.test(text)) throw new Error(`no ${name}`);
    return Number(text);
  };
  const pose = (fields.get("pose") ?? "").split(",").filter(Boolean).map((each) => {
    const [dimension, value, ...more] = each.split(":").map(Number);
    const sound = more.length === 0 && Number.isInteger(dimension) && dimension >= 0 && Math.abs(value) <= 10;
    if (!sound) throw new Error("no pose");
    return [dimension, value];
  });
  const layers = [];
  for (let i = 0; fields.has(`picture${i || ""}`); i++) layers.push(fields.get(`picture${i || ""}`));
  const [label, step, steps, watched] = ["class", "step", "steps", "watch"].map(number);
  const measure = fields.get("size") === "above" ? "above" : "share";
  const whole = fields.get("objects") === "all";
  return { model, layers: layers.length ? layers : null, whole, label, pose, step, steps, measure, watched };
}
