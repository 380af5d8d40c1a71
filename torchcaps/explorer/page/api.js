// Talking to the server. All addresses are relative, as the explorer may be mounted under a prefix.

/** @typedef {{channels: number, height: number, width: number}} Shape */
/** @typedef {{id: string, title: string, architecture: string, parameters: number, picture: Shape, drawing: Shape,
 *   classes: string[], objects: number, multi_label: boolean, digits: boolean, pose_size: number, measure: string,
 *   routing: string, iterations: number, most_iterations: number, decodes: boolean, samples: number, card: ?{data: string,
 *   test_error_percent: number, command: string, seed: number, training_minutes: number}}} Model */
/** @typedef {{label: number, pixels: string}} Drawing */
/** @typedef {{lengths: number[], found: number[], poses: number[][], drawings: Drawing[], blank: boolean}} Look */
/** @typedef {{labels: number[], pixels: string, parts: string[]}} Sample */
/** @typedef {{row: number, column: number, type: number, activation: number}} Part */
/** @typedef {{lengths: number[], entropy: number, agreement: number, coupling: number[][]}} Step */
/** @typedef {{parts: Part[], types: number, patch: [number, number], seen: string, uniform_entropy: number,
 *   steps: Step[]}} Routing */

/** The server said no, and why. */
export class Refused extends Error {}

/** The server did not answer at all. */
export class Unreachable extends Error {}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Unreachable("The explorer's server does not answer. Is it still running?");
  }
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Refused(`The server's answer could not be read (status ${response.status}).`);
  }
  if (response.ok) return body;
  const { detail } = body;
  throw new Refused(typeof detail === "string" ? detail : `The server refused this (status ${response.status}).`);
}

const post = (path, value) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });

const of = (model) => `api/models/${encodeURIComponent(model.id)}`;

/** @returns {Promise<Model[]>} */
export const models = async () => (await ask("api/models")).models;
/** @returns {Promise<Sample[]>} */
export const samples = async (model) => (await ask(`${of(model)}/samples`)).samples;
/** @returns {Promise<Look>} */
export const look = (model, pixels) => post(`${of(model)}/look`, { pixels });
/** @returns {Promise<Drawing>} */
export const decode = (model, label, pose) => post(`${of(model)}/decode`, { label, pose });
/** @returns {Promise<Routing>} */
export const routing = (model, pixels, iterations) => post(`${of(model)}/routing`, { pixels, iterations });
/** @returns {Promise<{pixels: string}>} */
export const upload = (model, bytes, invert, centre) =>
  ask(`${of(model)}/upload?invert=${invert}&centre=${centre}`, {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream" },
    body: bytes,
  });

/**
 * One request in flight; of those that come meanwhile only the newest is kept, so nothing ever queues up behind a slow
 * answer, and the last state is always the one that is shown in the end.
 * @template Question, Answer
 * @param {(question: Question) => Promise<Answer>} work
 * @param {(answer: Answer, question: Question, last: boolean) => void} deliver
 * @param {(error: Error, question: Question) => void} fail
 * @returns {(question: Question) => void}
 */
export function newestWins(work, deliver, fail) {
  let busy = false;
  let waiting = null;
  async function run(question) {
    busy = true;
    try {
      const answer = await work(question);
      deliver(answer, question, waiting === null);
    } catch (error) {
      if (waiting === null) fail(error, question);
    } finally {
      busy = false;
    }
    if (waiting !== null) {
      const { next } = waiting;
      waiting = null;
      run(next);
    }
  }
  return (question) => {
    if (busy) waiting = { next: question };
    else run(question);
  };
}
